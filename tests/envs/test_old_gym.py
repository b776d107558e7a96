from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from rlpyt.envs import gym_make


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
