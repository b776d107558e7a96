"""Gymnasium's MuJoCo environments and goal environments as they come, through adapter and samplers."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlpyt
from rlpyt.agents import PgAgent
from rlpyt.envs import EnvAdapter, check_env, make_env, restores_exactly
from rlpyt.envs.state_data import StateError
from rlpyt.envs.state_mujoco import load_mujoco, save_mujoco
from rlpyt.spaces import null_value, random_value
from tests.samplers.sampler_kit import running

IDS = sorted(
    id
    for id, spec in gymnasium.registry.items()
    if id.endswith("-v5") and "gymnasium.envs.mujoco" in str(spec.entry_point)
)
SHORT_BY_DEFAULT = {"Reacher-v5": 50, "Pusher-v5": 100}


@pytest.fixture
def mujoco(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where MuJoCo 4 leaves MUJOCO_LOG.TXT, with a warning of HalfCheetah's model
    return pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install rlpyt[mujoco]")


def play(id: str, seed: int, n_steps: int = 5) -> list[Any]:
    env, rng = make_env(gymnasium.make, {"id": id}), np.random.default_rng(0)
    seen: list[Any] = [env.reset(seed)[0].tolist()]
    for _ in range(n_steps):
        observation, *rest = env.step(random_value(env.action_space, rng))
        seen.append((observation.tolist(), rest[:3]))
    seen.append(env.reset()[0].tolist())
    env.close()
    return seen


def test_all_eleven_are_tested():
    assert len(IDS) == 11
    assert {id: gymnasium.spec(id).max_episode_steps for id in IDS} == {
        id: SHORT_BY_DEFAULT.get(id, 1000) for id in IDS
    }


@pytest.mark.parametrize("id", IDS)
def test_it_keeps_to_its_spaces(mujoco, recwarn, id):
    env = make_env(gymnasium.make, {"id": id})
    examples = check_env(env, seed=0)
    assert examples.ignored_info == ()
    assert examples.observation.dtype == examples.action.dtype == np.float32
    action_space: Any = env.action_space
    assert np.isfinite(action_space.low).all()
    assert np.isfinite(action_space.high).all()
    library = str(Path(rlpyt.__file__).parent) + os.sep
    warned = [w for w in recwarn if w.filename.startswith(library) or "observation" in str(w.message)]
    assert [str(w.message) for w in warned] == []
    env.close()


@pytest.mark.parametrize("id", IDS)
def test_a_row_is_what_the_environment_gives_as_float32_and_actions_are_clipped_into_its_bounds(mujoco, id):
    env, raw = make_env(gymnasium.make, {"id": id}), gymnasium.make(id).unwrapped
    space: Any = raw.action_space
    np.testing.assert_array_equal(env.reset(3)[0], np.float32(raw.reset(seed=3)[0]))
    rng = np.random.default_rng(0)
    for _ in range(5):
        action = rng.uniform(-2, 2, space.shape).astype(np.float32) * space.high
        observation, reward, terminated, truncated, _ = env.step(action)
        expected = raw.step(np.clip(action, space.low, space.high))
        assert observation.dtype == np.float32
        np.testing.assert_array_equal(observation, np.float32(expected[0]))
        assert (reward, terminated, truncated) == expected[1:4]
    env.close()
    raw.close()


@pytest.mark.parametrize("id", IDS)
def test_a_seed_repeats_an_episode_and_the_next(mujoco, id):
    assert play(id, seed=5) == play(id, seed=5)
    assert play(id, seed=5) != play(id, seed=6)


@pytest.mark.parametrize("id", IDS)
def test_the_time_limit_truncates(mujoco, id):
    env = make_env(gymnasium.make, {"id": id, "max_episode_steps": 4})
    env.reset(0)
    ends = [env.step(null_value(env.action_space))[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]
    env.close()


def test_hopper_terminates_when_it_falls(mujoco):
    env = make_env(gymnasium.make, {"id": "Hopper-v5"})
    env.reset(0)
    hopper = env.env.unwrapped
    for _ in range(300):
        assert hopper.is_healthy
        _, _, terminated, truncated, _ = env.step(np.ones(3, np.float32))
        if terminated or truncated:
            break
    assert (terminated, truncated) == (True, False)
    assert not hopper.is_healthy
    env.close()


def test_the_serial_sampler_makes_it_by_its_id(mujoco):
    env_kwargs = {"id": "HalfCheetah-v5", "max_episode_steps": 6}
    with running("serial", PgAgent(), gymnasium.make, T=14, B=2, env_kwargs=env_kwargs) as sampler:
        samples, traj_infos = sampler.obtain_samples(0)
    assert samples.env.observation.shape == (14, 2, 17)
    assert samples.env.observation.dtype == torch.float32
    assert samples.env.truncated[:, 0].nonzero().flatten().tolist() == [5, 12]
    assert samples.env.valid[:, 0].logical_not().nonzero().flatten().tolist() == [6, 13]
    assert not samples.env.terminated.any()
    assert [info.Length for info in traj_infos] == [6] * 4
    starts = samples.env.observation[[0, 7]].flatten(0, 1)
    assert len({tuple(start.tolist()) for start in starts}) == 4


# ---- goal environments ----


class GoalLine(gymnasium.Env[Any, Any]):
    """A point on a line, and where it should be; terminates there, truncated after 8 steps.

    The keys are those of Gymnasium-Robotics.
    """

    def __init__(self) -> None:
        place = spaces.Box(-5, 5, (1,), np.float64)
        self.observation_space = spaces.Dict(
            {"observation": spaces.Box(-5, 5, (2,), np.float64), "achieved_goal": place, "desired_goal": place}
        )
        self.action_space = spaces.Box(-0.1, 0.5, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.place, self.goal = 0, 0.0, float(self.np_random.choice([-3, 1]))
        return self.observe(), {"is_success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.t, self.place = self.t + 1, self.place + float(action[0])
        success = math.isclose(self.place, self.goal, abs_tol=0.3)
        return self.observe(), float(success) - 1, success, self.t == 8, {"is_success": success}

    def observe(self) -> dict[str, np.ndarray]:
        return {
            "observation": np.array([self.place, self.t / 2]),
            "achieved_goal": np.array([self.place]),
            "desired_goal": np.array([self.goal]),
        }


def test_a_goal_environment_passes_the_check():
    examples = check_env(make_env(GoalLine, {}), seed=0)
    assert sorted(examples.observation._fields) == ["achieved_goal", "desired_goal", "observation"]
    assert {x.dtype for x in examples.observation} == {np.dtype(np.float32)}
    assert list(examples.info) == ["is_success"]


@pytest.mark.parametrize("kind", ["serial", "cpu2"])
def test_goal_observations_go_through_the_samplers_by_name(kind):
    agent = PgAgent(model_kwargs={"hidden_sizes": 8})
    with running(kind, agent, GoalLine, T=40, B=4, env_info_keys=("is_success",)) as sampler:
        samples, _ = sampler.obtain_samples(0)
    env, observation = samples.env, samples.env.observation
    assert observation.observation.shape == (40, 4, 2)
    assert observation.achieved_goal.dtype == torch.float32
    assert set(observation.desired_goal.unique().tolist()) == {-3.0, 1.0}
    torch.testing.assert_close(observation.achieved_goal[..., 0], observation.observation[..., 0], rtol=0, atol=0)
    reached = (observation.achieved_goal[1:] - observation.desired_goal[1:]).abs()[..., 0] <= 0.3
    stepped = env.valid[:-1]
    assert torch.equal(env.terminated[:-1][stepped], reached[stepped])
    assert torch.equal(env.env_info.is_success, env.terminated)
    assert env.terminated.any()
    assert env.truncated.any()
    # Actions of the agent are clipped into the bounds, which are not symmetric.
    moved = (observation.achieved_goal[1:] - observation.achieved_goal[:-1])[..., 0][stepped]
    assert -0.1 - 1e-6 <= moved.min() < -0.09
    assert 0.49 < moved.max() <= 0.5 + 1e-6


class TaskThatChangesTheModel(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws the time step, the gravity and the options of every episode, as domain randomisation does."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed)
        unwrapped: Any = self.env.unwrapped
        option = unwrapped.model.opt
        option.timestep = unwrapped.np_random.uniform(0.001, 0.01)
        option.gravity[2] = unwrapped.np_random.uniform(-10, -5)
        option.iterations = int(unwrapped.np_random.integers(2, 20))
        option.disableflags = int(unwrapped.np_random.integers(2)) << 4
        unwrapped.model.body_mass[1] = unwrapped.np_random.uniform(5, 10)
        return observation, info


def test_a_task_that_changes_the_model_is_restored_with_its_changes(mujoco):
    env, other = (EnvAdapter(TaskThatChangesTheModel(gymnasium.make("HalfCheetah-v5"))) for _ in range(2))
    assert restores_exactly(env, other, seed=1, n_steps=5, n_before=3) is None
    env.reset(1), other.reset(2)
    other.load_state_dict(env.state_dict())
    option, expected = other.env.unwrapped.model.opt, env.env.unwrapped.model.opt
    for name in ("timestep", "iterations", "disableflags"):
        assert getattr(option, name) == getattr(expected, name)
    assert option.gravity[2] == expected.gravity[2] < -5
    assert other.env.unwrapped.model.body_mass[1] == env.env.unwrapped.model.body_mass[1]
    env.close()
    other.close()


@pytest.mark.parametrize(
    ("name", "number", "fits"), [("geom_contype", 2, True), ("geom_matid", 9, False), ("jnt_qposadr", 9, False)]
)
def test_places_in_the_arrays_of_a_model_are_not_taken_from_a_state(mujoco, name, number, fits):
    """MuJoCo would read and write there without a look."""
    body = "<body><freejoint/><geom size='1'/></body>"
    text = f"<mujoco><asset><material name='a'/></asset><worldbody>{body}</worldbody></mujoco>"
    model, fresh = mujoco.MjModel.from_xml_string(text), mujoco.MjModel.from_xml_string(text)
    getattr(model, name)[0] = number
    if fits:
        load_mujoco(save_mujoco(model), fresh)()
        assert getattr(fresh, name)[0] == number
    else:
        with pytest.raises(StateError, match=f"got other numbers of {name}"):
            load_mujoco(save_mujoco(model), fresh)


@pytest.mark.parametrize(("name", "number", "fits"), [("cone", 1, True), ("cone", -1, False)])
def test_choices_of_a_state_are_those_of_an_algorithm(mujoco, name, number, fits):
    """A number that chooses none may end the process."""
    text = "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    model, fresh = mujoco.MjModel.from_xml_string(text), mujoco.MjModel.from_xml_string(text)
    setattr(model.opt, name, number)
    if fits:
        load_mujoco(save_mujoco(model), fresh)()
        assert getattr(fresh.opt, name) == number
    else:
        with pytest.raises(StateError, match=f"got other numbers of opt.{name}"):
            load_mujoco(save_mujoco(model), fresh)


def test_what_was_computed_of_a_state_is_restored_with_its_flags(mujoco):
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    data, fresh = mujoco.MjData(model), mujoco.MjData(model)
    mujoco.mj_step(model, data)
    mujoco.mj_rnePostConstraint(model, data)
    assert data.flg_rnepost
    load_mujoco(save_mujoco(data), fresh)()
    assert fresh.flg_rnepost
