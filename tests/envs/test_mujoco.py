"""Gymnasium's MuJoCo environments as they come, and their states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlpyt
from rlpyt.envs import EnvAdapter, check_env, make_env, restores_exactly
from rlpyt.envs.state_data import StateError
from rlpyt.envs.state_mujoco import load_mujoco, save_mujoco

IDS = sorted(
    id
    for id, spec in gymnasium.registry.items()
    if id.endswith("-v5") and "gymnasium.envs.mujoco" in str(spec.entry_point)
)


@pytest.fixture
def mujoco(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where MuJoCo 4 leaves MUJOCO_LOG.TXT, with a warning of HalfCheetah's model
    return pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install rlpyt[mujoco]")


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
    env.close()
    other.close()


MODEL = """<mujoco><asset><material name='a'/></asset>
<worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"""


@pytest.mark.parametrize(
    ("name", "number", "fits"),
    [
        ("geom_contype", 2, True),
        ("geom_matid", 9, False),  # MuJoCo would read and write there without a look
        ("jnt_qposadr", 9, False),
        ("opt.cone", 1, True),
        ("opt.cone", -1, False),  # chooses no algorithm, and may end the process
    ],
)
def test_places_and_choices_of_a_model_are_not_taken_from_a_state(mujoco, name, number, fits):
    model, fresh = (mujoco.MjModel.from_xml_string(MODEL) for _ in range(2))

    def numbers(of: Any) -> Any:
        return np.atleast_1d(getattr(of.opt, name[4:]) if name.startswith("opt.") else getattr(of, name))

    if name.startswith("opt."):
        setattr(model.opt, name[4:], number)
    else:
        getattr(model, name)[0] = number
    if fits:
        load_mujoco(save_mujoco(model), fresh)()
        assert numbers(fresh)[0] == numbers(model)[0] == number
    else:
        with pytest.raises(StateError, match=f"got other numbers of {name}"):
            load_mujoco(save_mujoco(model), fresh)


def test_what_was_computed_of_a_state_is_restored_with_its_flags(mujoco):
    model = mujoco.MjModel.from_xml_string(MODEL)
    data, fresh = mujoco.MjData(model), mujoco.MjData(model)
    mujoco.mj_step(model, data)
    mujoco.mj_rnePostConstraint(model, data)
    assert data.flg_rnepost
    load_mujoco(save_mujoco(data), fresh)()
    assert fresh.flg_rnepost
