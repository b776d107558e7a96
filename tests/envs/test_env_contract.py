"""What the adapter promises to samplers, over every kind of environment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlpyt.envs import EnvExamples, check_env, make_env
from rlpyt.spaces import null_value, random_value
from tests.envs.env_kinds import KINDS, UNSEEDED


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def form(row: Any) -> Any:
    return [form(x) for x in row] if isinstance(row, tuple) else (row.shape, row.dtype)


def plain(row: Any) -> Any:
    return [plain(x) for x in row] if isinstance(row, tuple) else np.asarray(row).tolist()


def play(kind: str, seed: int, n_steps: int) -> list[Any]:
    """Everything that an environment gives in some steps, copied."""
    EnvCls, env_kwargs = KINDS[kind]
    env, rng = make_env(EnvCls, env_kwargs, seed=seed), np.random.default_rng(seed)
    seen: list[Any] = []
    observation, info = env.reset()
    seen.append((plain(observation), info))
    for _ in range(n_steps):
        observation, *rest = env.step(random_value(env.action_space, rng))
        seen.append((plain(observation), rest))
        if rest[1] or rest[2]:
            observation, info = env.reset()
            seen.append((plain(observation), info))
    env.close()
    return seen


def test_every_value_has_its_form(kind):
    EnvCls, env_kwargs = KINDS[kind]
    env, rng = make_env(EnvCls, env_kwargs, rank=3), np.random.default_rng(0)
    assert env.spaces == (env.observation_space, env.action_space)
    expected = form(null_value(env.observation_space))
    observation, info = env.reset(1)
    assert form(observation) == expected
    assert type(info) is dict
    n_ends = 0
    for _ in range(40):
        observation, reward, terminated, truncated, info = env.step(random_value(env.action_space, rng))
        assert form(observation) == expected
        assert type(reward) is float
        assert math.isfinite(reward)
        assert type(terminated) is bool
        assert type(truncated) is bool
        assert not (terminated and truncated)
        assert type(info) is dict
        if terminated or truncated:
            n_ends += 1
            observation, info = env.reset()
            assert form(observation) == expected
            assert type(info) is dict
    assert n_ends > 0 or kind == "continuous"
    assert env.n_steps == 40
    env.close()


def test_the_same_seed_repeats_everything(kind):
    same = repr(play(kind, 5, 25)) == repr(play(kind, 5, 25))
    assert same == (kind not in UNSEEDED)


def test_another_seed_gives_other_observations(kind):
    assert repr(play(kind, 5, 25)) != repr(play(kind, 6, 25))


def test_check_env_gives_examples_of_the_right_form(kind):
    EnvCls, env_kwargs = KINDS[kind]
    env = make_env(EnvCls, env_kwargs)
    if kind in UNSEEDED:
        with pytest.warns(UserWarning, match="two resets with seed 2 gave different observations"):
            examples = check_env(env, seed=2)
    else:
        examples = check_env(env, seed=2)
    assert isinstance(examples, EnvExamples)
    observation, *_ = env.step(random_value(env.action_space, np.random.default_rng(0)))
    assert form(examples.observation) == form(observation)
    assert form(examples.action) == form(random_value(env.action_space))
    assert examples.reward.dtype == np.float32
