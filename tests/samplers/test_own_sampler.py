"""A sampler of one's own: the one of docs/howto/samplers.md, and settings of a subclass."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from rlpyt.samplers import AlternatingSampler, BaseSampler, Collector, CpuSampler, GpuSampler, SerialSampler
from rlpyt.samplers.fleet import Check, Fleet, check_one
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parts import CompletedTraj
from rlpyt.samplers.work import WorkHere
from rlpyt.settings import all_settings, setting_docs
from rlpyt.types import Run
from tests.markdown import ROOT
from tests.samplers.sampler_kit import assert_equal_batches, collect, in_order, random_agent, running
from tests.toy_envs import CountingEnv

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
def test_a_sampler_shows_all_its_settings_with_their_docstrings(SamplerCls):
    parameters = inspect.signature(SamplerCls).parameters
    assert list(parameters)[:7] == POSITIONS
    assert set(parameters) <= set(setting_docs(SamplerCls))
    own = set(parameters) - set(inspect.signature(BaseSampler.__init__).parameters)
    assert own
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in own)
    assert all(f"\n    {name}: " in SamplerCls.__doc__ for name in parameters), "help() lacks one"


def test_fields_keep_what_was_given():
    sampler = CpuSampler(CountingEnv, None, 4, 3, None, eval_n_envs=5, eval_max_trajectories=2)
    assert (sampler.env_kwargs, sampler.CollectorCls, sampler.eval_n_envs) == (None, None, 5)
    assert (sampler.eval_env_kwargs, sampler.n_workers, sampler.acting_threads) == (None, None, None)
    again = sampler.replace(eval_n_envs=1)
    assert all_settings(again) == {**all_settings(sampler), "eval_n_envs": 1}
    assert SerialSampler(CountingEnv, {}, 4, 3, n_parts=2).acting_threads is None


def test_a_subclass_may_have_settings_of_its_own_in_both_ways():
    @dataclass(kw_only=True, eq=False)
    class Declared(SerialSampler):
        frames: int = 4

    class ByHand(SerialSampler):
        def __init__(self, *args: Any, frames: int = 4, **kwargs: Any) -> None:
            self.frames = frames
            super().__init__(*args, **{"batch_B": 2, **kwargs})

    for SamplerCls in (Declared, ByHand):
        sampler = SamplerCls(CountingEnv, {}, batch_T=4, batch_B=3, frames=2)
        assert (sampler.frames, sampler.batch_spec) == (2, (4, 3))
        assert "frames" in all_settings(sampler)
        with pytest.raises(TypeError, match=r"has no argument 'frame'\. Did you mean frames"):
            SamplerCls(CountingEnv, {}, batch_T=4, batch_B=3, frame=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", ["serial", "cpu2", "gpu2"])
def test_a_sampler_that_is_initialised_again_closes_what_it_had(kind):
    with running(kind, random_agent()) as sampler:
        before = sampler._workers
        sampler.initialize(random_agent(), Run(batch_spec=sampler.batch_spec))
        assert before is None or not before.pool.workers
        assert collect(sampler, 1)


class TwiceTheReward(Collector):
    """Loop of a user's, which knows of no row to go on from."""

    def collect_batch(self, itr: int) -> list[CompletedTraj]:  # type: ignore[override]
        completed = super().collect_batch(itr)
        for part in self.parts:
            part.envs.rows.reward[:] *= 2
        return completed


@pytest.mark.parametrize("kind", ["serial", "cpu2", "gpu2"])
def test_a_loop_of_the_users_may_lack_the_row_to_go_on_from(kind):
    with running(kind, random_agent()) as sampler:
        [(expected, _)] = collect(sampler, 1)
    with running(kind, random_agent(), CollectorCls=TwiceTheReward) as sampler:
        [(samples, _)] = collect(sampler, 1)
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
