from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import gymnasium
import pytest

from rlpyt.envs import EnvInfo, GymEnvWrapper, gym_make, make_env
from rlpyt.envs.gym import make
from tests.toy_envs import CountingEnv, OldCountingEnv


def fake_gym(make):
    module: Any = ModuleType("gym")
    module.make = make
    return module


def test_the_checker_is_turned_off_where_there_is_one(monkeypatch):
    def make(id, max_episode_steps=None, disable_env_checker=None, **kwargs):
        return id, max_episode_steps, disable_env_checker, kwargs

    monkeypatch.setitem(sys.modules, "gym", fake_gym(make))
    assert gym_make("A-v0", gravity=1) == ("A-v0", None, True, {"gravity": 1})
    assert gym_make(id="A-v0", disable_env_checker=False) == ("A-v0", None, False, {})


def test_older_versions_are_not_given_the_flag(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", fake_gym(lambda id, **kwargs: (id, kwargs)))
    assert gym_make("A-v0", x=1) == ("A-v0", {"x": 1})


def test_without_gym_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[gym\].*EnvCls=gymnasium\.make"):
        gym_make("CartPole-v1")


@pytest.mark.parametrize("EnvCls", [CountingEnv, OldCountingEnv])
def test_the_predecessors_face_of_an_environment(EnvCls):
    env = GymEnvWrapper(EnvCls(), info_example={"bonus": 0.5, "t": -1})
    assert env.spaces.action == env.action_space
    assert env.reset(seed=1).tolist() == [1, 0, 0]
    # An episode of one step, ended by a limit alone, follows on two that are terminated, one of them also truncated.
    ends = []
    for _ in range(3):
        done = False
        while not done:
            observation, _, done, info = env.step(1)
            assert info.t == info["t"] == observation[1]
            assert info.bonus == 0.5
        ends.append((int(observation[1]), info.timeout))
        env.reset()
    assert ends == [(1, True), (5, EnvCls is OldCountingEnv), (2, False)]


def test_what_the_predecessor_made_is_an_environment_for_samplers():
    env = make_env(make, {"id": "CartPole-v1", "max_episode_steps": 3}, seed=3)
    reference = make_env(gymnasium.make, {"id": "CartPole-v1", "max_episode_steps": 3}, seed=3)
    assert env.name == reference.name == "CartPoleEnv CartPole-v1"
    assert env.reset()[0].tolist() == reference.reset()[0].tolist()
    for _ in range(3):
        observation, *row, info = env.step(1)
        expected, *expected_row, _ = reference.step(1)
        assert (observation.tolist(), row) == (expected.tolist(), expected_row)
    assert info["timeout"]
    assert EnvInfo() == ()
    env.close()
