"""Settings of samplers, those that cannot be meant, and samplers of one's own, as in docs/howto/samplers.md."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.samplers import (
    AlternatingSampler,
    BaseSampler,
    Collector,
    CpuSampler,
    GpuSampler,
    SerialSampler,
)
from rlpyt.samplers.base import eval_size_of
from rlpyt.samplers.fleet import Check, Fleet, check_one
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parts import CompletedTraj
from rlpyt.samplers.work import WorkHere
from rlpyt.types import Run
from tests.markdown import ROOT
from tests.samplers.sampler_kit import assert_equal_batches, batches_of, collect, in_order, random_agent, running
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
        ("max_decorrelation_steps", -1, "a whole number from 0"),
        ("eval_n_envs", -1, "a whole number from 0"),
        ("eval_n_envs", np.nan, "a whole number from 0"),
        ("eval_max_trajectories", 2.5, "the number of episodes of one evaluation, from 1, or None"),
        ("eval_max_steps", float("inf"), "a whole number of steps, or None for no limit"),
        ("eval_max_trajectories", 0, "the number of episodes"),
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


def test_whole_numbers_of_other_types_are_taken():
    sampler = make(batch_T=4.0, batch_B=np.int64(3), eval_n_envs=4.0, eval_max_trajectories=3.0, eval_max_steps=5e3)
    assert sampler.batch_spec == (4, 3)
    n_envs, quotas, max_T = eval_size_of(sampler)
    assert (n_envs, quotas, max_T) == (3, [1, 1, 1], 1666)
    assert {type(value) for value in (*sampler.batch_spec, n_envs, *quotas, max_T)} == {int}


# ---- samplers of one's own, and settings of a subclass ----


EVALUATION: dict[str, Any] = dict(eval_n_envs=3, eval_max_trajectories=5)


def classes_of_the_page() -> tuple[str, dict[str, Any]]:
    """Return the code of the page up to the end of its last class, and what it defines."""
    [block] = [
        b
        for b in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "howto" / "samplers.md").read_text(), re.DOTALL)
        if "class ThreadSampler" in b
    ]
    code, names = block[: block.index("\n\n\nsampler = ")], {"__name__": __name__}
    exec(code, names)
    return code, names


@pytest.mark.parametrize("options", [{}, {"mid_batch_reset": False}])
def test_the_sampler_of_the_page_gives_the_rows_of_all_samplers(options):
    code, names = classes_of_the_page()
    assert len([line for line in code.splitlines() if line.strip()]) <= 60
    with running("serial", random_agent(True), B=5, **EVALUATION, **options) as sampler:
        expected, result = collect(sampler, 4), sampler.evaluate_agent(1)
    options = options | dict(max_decorrelation_steps=0, n_parts=3, **EVALUATION)
    sampler = names["ThreadSampler"](CountingEnv, {}, batch_T=5, batch_B=5, **options)
    sampler.initialize(random_agent(True), Run(batch_spec=sampler.batch_spec, seed=7))
    try:
        assert_equal_batches(collect(sampler, 4), expected, rtol=1e-5)
        assert in_order(sampler.evaluate_agent(1).traj_infos) == in_order(result.traj_infos)
    finally:
        sampler.shutdown()


# ---- settings ----

POSITIONS = ["EnvCls", "env_kwargs", "batch_T", "batch_B", "CollectorCls", "max_decorrelation_steps", "TrajInfoCls"]


@pytest.mark.parametrize("SamplerCls", [SerialSampler, CpuSampler, GpuSampler, AlternatingSampler])
def test_settings_by_position_are_those_of_rlpyt_0_1_and_others_have_names(SamplerCls):
    parameters = inspect.signature(SamplerCls).parameters
    assert list(parameters)[:7] == POSITIONS
    own = set(parameters) - set(inspect.signature(BaseSampler.__init__).parameters)
    assert own
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in own)


class TwiceTheReward(Collector):
    """Loop of a user's, which knows of no row to go on from."""

    def collect_batch(self, itr: int) -> list[CompletedTraj]:  # type: ignore[override]
        completed = super().collect_batch(itr)
        for part in self.parts:
            part.envs.rows.reward[:] *= 2
        return completed


@pytest.mark.parametrize("kind", ["serial", "cpu2", "gpu2"])
def test_a_loop_of_the_users_may_lack_the_row_to_go_on_from(kind):
    [(expected, _)] = batches_of(1, kind, random_agent())
    [(samples, _)] = batches_of(1, kind, random_agent(), CollectorCls=TwiceTheReward)
    assert torch.equal(samples.env.reward, 2 * expected.env.reward)


@dataclass(kw_only=True, eq=False)
class Elsewhere(BaseSampler):
    """Sampler of docs/howto/samplers.md with three methods and a property; its environments are here all the same."""

    fleets: tuple[Fleet, ...] = ()

    def start(self, specs: Specs, affinity: Any) -> Check:
        check = check_one(specs[FleetRole.TRAIN])
        self.fleets = tuple(map(Fleet, specs.values()))
        return check

    def build(self, agent: Any, check: Check, rows: Any) -> WorkHere:
        parts = {fleet.spec.role: [fleet.started_part(rows[fleet.spec.role], check)] for fleet in self.fleets}
        return WorkHere(agent, {fleet.spec.role: fleet.spec for fleet in self.fleets}, parts)

    @property
    def running(self) -> bool:
        return bool(self.fleets)

    def shutdown(self) -> None:
        for fleet in self.fleets:
            fleet.close()
        self.fleets = ()


@pytest.mark.parametrize("lag", [None, 0])
def test_three_methods_and_a_property_are_a_sampler(lag):
    with running("serial", random_agent(), **EVALUATION) as sampler:
        expected, result = collect(sampler, 3), sampler.evaluate_agent(1)
    own: Any = Elsewhere(CountingEnv, {}, batch_T=5, batch_B=3, max_decorrelation_steps=0, **EVALUATION)
    own = own if lag is None else own.in_background(lag)
    own.initialize(random_agent(), Run(batch_spec=own.batch_spec, seed=7, n_itr=3))
    try:
        assert_equal_batches(collect(own, 3), expected)
        assert in_order(own.evaluate_agent(1).traj_infos) == in_order(result.traj_infos)
        state = own.state_dict()
    finally:
        own.shutdown()
    assert state
    with pytest.raises(RuntimeError, match="not running; call initialize first"):
        own.obtain_samples(3)
