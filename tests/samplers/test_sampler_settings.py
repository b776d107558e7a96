"""Settings that cannot be meant are refused when the sampler is made, with what was expected."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rlpyt.agents import CategoricalPgAgent
from rlpyt.samplers import CpuSampler, SerialSampler, WaitResetCollector, evaluate
from rlpyt.samplers.base import eval_size_of
from rlpyt.settings import all_settings
from tests.toy_envs import CountingEnv


def make(SamplerCls: Any = CpuSampler, **kwargs: Any) -> Any:
    return SamplerCls(**{"EnvCls": CountingEnv, "env_kwargs": {}, "batch_T": 4, "batch_B": 2, **kwargs})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("batch_T", True, "a whole number from 1"),
        ("batch_T", 2.5, "a whole number from 1"),
        ("batch_B", 0, "a whole number from 1"),
        ("batch_B", "4", "a whole number from 1"),
        ("batch_B", -1, "a whole number from 1"),
        ("max_decorrelation_steps", -1, "a whole number from 0"),
        ("eval_n_envs", -1, "a whole number from 0"),
        ("eval_n_envs", np.nan, "a whole number from 0"),
        ("eval_max_trajectories", 2.5, "the number of episodes of one evaluation, from 1, or None"),
        ("eval_max_trajectories", float("nan"), "the number of episodes of one evaluation"),
        ("eval_max_trajectories", True, "the number of episodes of one evaluation"),
        ("eval_max_steps", float("inf"), "a whole number of steps, or None for no limit"),
        ("eval_max_steps", "many", "a whole number of steps"),
        ("eval_max_trajectories", 0, "the number of episodes"),
        ("eval_max_trajectories", -2, "the number of episodes"),
        ("eval_max_steps", -1, "a whole number of steps"),
        ("acting_threads", 0, "a whole number from 1"),
        *(("n_workers", n, "1 to batch_B, 2") for n in (0, 3, -2)),
        ("n_workers", 1.5, "1 to batch_B, 2: every worker needs an environment"),
        ("restart_workers", -1, "a whole number from 0"),
    ],
)
def test_what_is_no_whole_number_is_refused(name, value, expected):
    error = ValueError if type(value) in (int, float) else TypeError
    with pytest.raises(error, match=f"CpuSampler: {name} is {value!r}; expected {expected}"):
        make(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("EnvCls", CountingEnv(), "a callable"),
        ("TrajInfoCls", 1, "a class, or another callable that returns a TrajInfo"),
        ("CollectorCls", 100, "a class, or None"),  # max_decorrelation_steps, had it a name
        ("eval_CollectorCls", "last", "a class, or None"),
        ("eval_env_kwargs", "CartPole-v1", "a dictionary of the environment's arguments"),
        ("eval_env_overrides", "CartPole-v1", "a dictionary of the environment's arguments"),
    ],
)
def test_what_is_of_another_kind_is_refused(name, value, expected):
    with pytest.raises(TypeError, match=f"CpuSampler: {name} is {re.escape(repr(value))}.*; expected {expected}"):
        make(**{name: value})


def test_an_evaluation_of_nothing_or_without_end_is_refused():
    with pytest.raises(ValueError, match="eval_max_trajectories"):
        make(eval_n_envs=4)
    with pytest.raises(ValueError, match=r"eval_max_steps is 3.*4"):
        make(eval_n_envs=4, eval_max_steps=3, eval_max_trajectories=4)


@pytest.mark.parametrize(
    ("given", "evaluated"),
    [
        ({}, {"size": 3, "pay": 1}),
        ({"eval_env_kwargs": {}}, {}),
        ({"eval_env_kwargs": {"pay": 2}}, {"pay": 2}),
        ({"eval_env_overrides": {}}, {"size": 3, "pay": 1}),
        ({"eval_env_overrides": {"pay": 2, "more": 4}}, {"size": 3, "pay": 2, "more": 4}),
        ({"eval_env_kwargs": {"pay": 2}, "eval_env_overrides": {}}, {"pay": 2}),
    ],
)
def test_evaluation_has_the_arguments_of_training_but_for_its_own(given, evaluated):
    sampler = make(env_kwargs={"size": 3, "pay": 1}, **given)
    assert sampler.evaluation_kwargs == evaluated
    assert make(env_kwargs=None).replace(env_kwargs=None).evaluation_kwargs == {}


def test_evaluation_is_not_given_its_arguments_twice():
    with pytest.raises(
        ValueError, match=r"got eval_env_kwargs \{'pay': 2\} and eval_env_overrides \{'pay': 3\}; expected"
    ):
        make(eval_env_kwargs={"pay": 2}, eval_env_overrides={"pay": 3})


def test_training_does_not_leave_an_evaluation_behind_that_was_alike():
    sampler = make(env_kwargs={"game": "a", "pay": 1}, eval_env_kwargs={"game": "a", "pay": 2})
    for changed in ({"game": "b", "pay": 1}, {"pay": 1}):
        with pytest.raises(ValueError, match=r"changes game of the training .* has game='a' as before"):
            sampler.replace(env_kwargs=changed)
        with pytest.raises(ValueError, match="changes game"):  # as update_config copies what it does not change
            sampler.replace(env_kwargs=changed, eval_env_kwargs={**sampler.evaluation_kwargs})
    assert sampler.replace(env_kwargs={"game": "a", "pay": 5, "new": 1}).evaluation_kwargs == {"game": "a", "pay": 2}
    maze = np.zeros(3000)
    large = make(env_kwargs={"maze": maze}, eval_env_kwargs={"maze": maze})
    with pytest.raises(ValueError, match="env_kwargs changes maze "):
        large.replace(env_kwargs={"maze": np.eye(1, 3000, 1500)[0]})  # the texts of large arrays have no middle
    both = sampler.replace(env_kwargs={"game": "b"}, eval_env_kwargs={"game": "b", "pay": 2})
    assert both.evaluation_kwargs == {"game": "b", "pay": 2}
    follows = sampler.replace(env_kwargs={"game": "b"}, eval_env_kwargs=None, eval_env_overrides={"pay": 2})
    assert follows.replace(env_kwargs={"game": "c"}).evaluation_kwargs == {"game": "c", "pay": 2}


def test_resets_are_of_the_collector_and_not_of_the_settings():
    sampler = make(CollectorCls=WaitResetCollector)
    assert not sampler.resets_mid_batch
    assert all_settings(sampler)["mid_batch_reset"]
    assert sampler.replace(CollectorCls=None).resets_mid_batch
    assert not make(CollectorCls=WaitResetCollector, mid_batch_reset=False).replace(CollectorCls=None).resets_mid_batch


def test_the_parts_and_an_evaluation_are_checked_by_the_same_words():
    with pytest.raises(ValueError, match=r"SerialSampler: n_parts is 1\.5; expected a whole number from 1"):
        make(SerialSampler, n_parts=1.5)
    with pytest.raises(TypeError, match="evaluate: n_trajectories is True; expected a whole number from 1"):
        evaluate(CategoricalPgAgent(), CountingEnv, n_trajectories=True)


def test_whole_numbers_of_other_types_are_taken():
    sampler = make(batch_T=4.0, batch_B=np.int64(3), eval_n_envs=4.0, eval_max_trajectories=3.0, eval_max_steps=5e3)
    assert sampler.batch_spec == (4, 3)
    n_envs, quotas, max_T = eval_size_of(sampler)
    assert (n_envs, quotas, max_T) == (3, [1, 1, 1], 1666)
    assert {type(value) for value in (*sampler.batch_spec, n_envs, *quotas, max_T)} == {int}
