from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from rlpyt.envs import check_env, dm_control_make, make_env
from rlpyt.spaces import FrameStack, null_value

# A plain task, one with contacts and a number among its vectors, one with a matrix, and one that ends by itself.
TASKS = (("cartpole", "balance"), ("walker", "run"), ("manipulator", "bring_ball"), ("lqr", "lqr_2_1"))
every_task = pytest.mark.parametrize(("domain", "task"), TASKS, ids=["-".join(task) for task in TASKS])


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dm_control.suite", None)
    monkeypatch.setitem(sys.modules, "dm_control.mujoco", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[dm_control\]"):
        dm_control_make("cartpole", "balance")


@pytest.fixture(scope="module")
def dm_control():
    try:
        dm_control_make("cartpole", "balance").close()
    except ImportError as error:
        pytest.skip(str(error))
    return import_module("dm_control.suite")


@pytest.fixture(scope="module")  # once a process: a second try after a failure can end it
def draws(dm_control):
    try:
        dm_control_make("cartpole", "balance", pixels=(8, 8)).close()
    except RuntimeError as error:
        pytest.skip(f"nothing draws images here: {error}")


def raw_task(suite: Any, domain: str, task: str, seed: int) -> Any:
    """Return the suite's own environment, its task made with the number 0 as by `dm_control_make`."""
    env = suite.load(domain, task, task_kwargs={"random": 0})
    env.task._random = np.random.RandomState(seed)
    return env


@every_task
def test_it_keeps_to_its_spaces(dm_control, recwarn, domain, task):
    env = make_env(dm_control_make, {"domain": domain, "task": task})
    examples = check_env(env, seed=0)
    assert examples.info == {}
    assert examples.ignored_info == ()
    assert {(x.ndim, x.dtype) for x in examples.observation} == {(1, np.dtype(np.float32))}
    assert list(recwarn) == []
    env.close()
    env.close()


@every_task
def test_a_row_is_what_the_suite_gives_as_float32_vectors(dm_control, domain, task):
    env, raw = make_env(dm_control_make, {"domain": domain, "task": task}), raw_task(dm_control, domain, task, seed=3)
    flat = make_env(dm_control_make, {"domain": domain, "task": task, "flatten": True})
    rng, (row, _), (flat_row, _), time_step = np.random.default_rng(0), env.reset(3), flat.reset(3), raw.reset()
    for _ in range(6):
        assert sorted(row._fields) == sorted(time_step.observation)
        for name, part in time_step.observation.items():
            np.testing.assert_array_equal(row[name], np.ravel(part).astype(np.float32))
        np.testing.assert_array_equal(flat_row, np.concatenate(list(row)))
        action = rng.uniform(-1, 1, env.action_space.shape)
        row, reward, *_ = env.step(action)
        flat_row = flat.step(action)[0]
        time_step = raw.step(action)
        assert reward == time_step.reward


def test_without_a_seed_chance_decides(dm_control):
    starts = [dm_control_make("cartpole", "balance", flatten=True).reset()[0].tolist() for _ in range(2)]
    assert starts[0] != starts[1]


def test_what_a_task_draws_when_it_is_made_is_the_same_in_every_environment_and_can_be_chosen(dm_control):
    envs: list[Any] = [dm_control_make("lqr", "lqr_2_1", task_kwargs={"random": n}).unwrapped for n in (0, 0, 1)]
    one, two, other = (env.physics.model.jnt_stiffness.tolist() for env in envs)
    assert one == two != other


def test_the_time_limit_truncates(dm_control):
    # A hundredth of a second a step.
    env = make_env(dm_control_make, {"domain": "cartpole", "task": "balance", "task_kwargs": {"time_limit": 0.04}})
    env.reset(0)
    ends = [env.step(np.zeros(1))[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]


def test_a_repeated_action_is_as_many_steps_until_the_episode_ends(dm_control):
    arguments: dict[str, Any] = {"domain": "cartpole", "task": "balance", "task_kwargs": {"time_limit": 0.05}}
    single, repeated = make_env(dm_control_make, arguments), make_env(dm_control_make, arguments | {"action_repeat": 2})
    assert repeated.env.metadata["render_fps"] == 50
    single.reset(3), repeated.reset(3)
    for action, n_steps in ((0.5, 2), (-1.0, 2), (1.0, 1)):
        steps = [single.step(np.full(1, action)) for _ in range(n_steps)]
        one = repeated.step(np.full(1, action))
        assert one[1] == pytest.approx(sum(step[1] for step in steps), abs=1e-6)
        assert one[2:4] == steps[-1][2:4]
        for name, part in one[0].items():
            np.testing.assert_array_equal(part, steps[-1][0][name])
    assert one[3]


def test_a_simulation_that_diverges_truncates_the_episode_at_the_last_observation(dm_control):
    env: Any = dm_control_make("cheetah", "run", flatten=True, action_repeat=2)
    env.action_space.seed(0)
    env.reset(seed=0)
    last, *_ = env.step(env.action_space.sample())
    env.unwrapped.physics.data.qvel[:] = np.nan
    with pytest.warns(UserWarning, match=r"dm_control/cheetah-run-v0: .*mjWARN_BADQ.* truncated where it was"):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert np.array_equal(observation, last)
    assert (reward, terminated, truncated) == (0.0, False, True)
    first, _ = env.reset(seed=0)
    assert np.isfinite(first).all()
    assert not any(env.step(env.action_space.sample())[2:4])


def test_the_end_of_the_task_terminates(dm_control):
    env = make_env(dm_control_make, {"domain": "lqr", "task": "lqr_2_1"})
    env.reset(0)
    assert env.step(np.zeros(1))[2:4] == (False, False)
    physics = env.env.unwrapped.physics
    with physics.reset_context():  # at rest in the middle the task is solved
        physics.data.qpos[:] = 0
        physics.data.qvel[:] = 0
    assert env.step(np.zeros(1))[2:4] == (True, False)


def test_actions_have_the_bounds_of_the_actuators(dm_control):
    quadruped: Any = dm_control_make("quadruped", "walk").action_space
    assert (quadruped.low[:3].tolist(), quadruped.high[:3].tolist()) == ([-1, -1, -0.8], [1, 1.1, 0.8])
    lqr: Any = dm_control_make("lqr", "lqr_2_1").action_space
    assert (lqr.low.tolist(), lqr.high.tolist()) == ([-np.inf], [np.inf])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"domain": "cheeta", "task": "run"}, "no domain 'cheeta'; did you mean cheetah"),
        ({"domain": "zzz", "task": "run"}, "no domain 'zzz'; expected one of acrobot, .*walker"),
        ({"domain": "walker", "task": "rum"}, "no task of walker 'rum'; did you mean run"),
        ({"domain": "walker", "task": "zzz"}, "no task of walker 'zzz'; expected one of stand, walk, run"),
        ({"domain": "walker", "task": "run", "pixels": (0, 84)}, r"pixels=\(0, 84\).*at least 1"),
        ({"domain": "walker", "task": "run", "pixels": (8, 8), "n_frames": 0}, "n_frames=0.*at least 1"),
        ({"domain": "walker", "task": "run", "pixels": (8, 8), "flatten": True}, "no flatten"),
        ({"domain": "walker", "task": "run", "action_repeat": 0}, "action_repeat=0.*at least 1"),
    ],
)
def test_wrong_arguments_are_named(dm_control, arguments, text):
    with pytest.raises(ValueError, match=text):
        dm_control_make(**arguments)


def test_messages_name_the_task_and_videos_have_its_speed(dm_control):
    env = make_env(dm_control_make, {"domain": "cartpole", "task": "balance"})
    assert "dm_control/cartpole-balance" in env.name
    assert env.env.metadata["render_fps"] == 100
    assert dm_control_make("walker", "run").metadata["render_fps"] == 40
    assert env.env.metadata["render_fps"] == 100


def test_images_are_stacked_oldest_first(draws):
    env = make_env(dm_control_make, {"domain": "cartpole", "task": "swingup", "pixels": (12, 16), "n_frames": 2})
    space = env.observation_space
    assert isinstance(space, FrameStack)
    assert (space.shape, space.dtype, space.n_frames) == ((6, 12, 16), np.uint8, 2)
    first = env.reset(0)[0].copy()
    np.testing.assert_array_equal(first[:3], first[3:])
    np.testing.assert_array_equal(first[3:], env.env.render().transpose(2, 0, 1))
    assert first.std() > 5
    second = env.step(np.ones(1))[0].copy()
    np.testing.assert_array_equal(second[:3], first[3:])
    third = env.step(np.ones(1))[0].copy()
    np.testing.assert_array_equal(third[:3], second[3:])
    assert (third[3:] != third[:3]).any()
    assert null_value(space).shape == third.shape
    again = env.reset(0)[0]
    np.testing.assert_array_equal(again, first)
    env.close()


def test_an_image_that_cannot_be_drawn_says_what_to_mend(draws):
    with pytest.raises(RuntimeError, match=r"cartpole-balance.*'camera_id': 99.*failed.*MUJOCO_GL=egl"):
        dm_control_make("cartpole", "balance", pixels=(8, 8), camera_id=99)
