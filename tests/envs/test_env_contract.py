"""What the adapter promises to samplers, over every kind of environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlpyt import testing
from rlpyt.envs import EnvExamples, check_env, make_env
from rlpyt.spaces import random_value
from tests.envs.env_kinds import KINDS, UNSEEDED


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def form(row: Any) -> Any:
    return [form(x) for x in row] if isinstance(row, tuple) else (row.shape, row.dtype)


def keeps_contract(kind: str, **options: Any) -> EnvExamples:
    EnvCls, env_kwargs = KINDS[kind]
    return testing.check_env(EnvCls, env_kwargs, seed=5, n_steps=40, must_end=kind != "continuous", **options)


@pytest.mark.filterwarnings("ignore:.*it is random, and neither reset")
def test_the_contract_is_kept(kind):
    examples = keeps_contract(kind, repeats=kind not in UNSEEDED)
    assert isinstance(examples, EnvExamples)


@pytest.mark.parametrize("unseeded", UNSEEDED)
def test_what_cannot_be_seeded_does_not_repeat(unseeded):
    with (
        pytest.warns(UserWarning, match="it is random, and neither reset"),
        pytest.raises(AssertionError, match="two plays with seed 5"),
    ):
        keeps_contract(unseeded)


def test_check_env_gives_examples_of_the_right_form(kind):
    EnvCls, env_kwargs = KINDS[kind]
    env = make_env(EnvCls, env_kwargs)
    if kind in UNSEEDED:
        with pytest.warns(UserWarning, match=r"it is random, and neither reset\(seed=...\) nor .*env_seed"):
            examples = check_env(env, seed=2)
    else:
        examples = check_env(env, seed=2)
    assert isinstance(examples, EnvExamples)
    assert examples.spaces == env.spaces == (env.observation_space, env.action_space)
    observation, *_ = env.step(random_value(env.action_space, np.random.default_rng(0)))
    assert form(examples.observation) == form(observation)
    assert form(examples.action) == form(random_value(env.action_space))
    assert examples.reward.dtype == np.float32
