"""Workers in this process, and workers of one's own, as the threads of the docs, give what processes give."""

from __future__ import annotations

import random
import re
import threading
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from rlpyt.envs import EnvError
from rlpyt.samplers import BaseSampler, CpuSampler, RaySampler
from rlpyt.utils.seeds import Role, global_streams, stream_seed
from rlpyt.utils.watched import WorkerError
from rlpyt.utils.workers_here import WorkersHere
from tests.markdown import ROOT
from tests.samplers.sampler_kit import assert_equal_batches, collect, in_order, random_agent, running
from tests.toy_envs import CountingEnv
from tests.vector_toy_envs import CountingVectorEnv

HERE: dict[str, Any] = {"start_method": "here"}


def kind_of_the_page() -> tuple[str, Any]:
    """Return the code of the page that defines the kind, and the kind."""
    [block] = [
        b
        for b in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "howto" / "samplers.md").read_text(), re.DOTALL)
        if "class ThreadWorkers" in b
    ]
    code, names = block[: block.index("\n\n\nkwargs = ")], {"__name__": __name__}
    exec(code, names)
    return code, names["ThreadWorkers"]


CODE, ThreadWorkers = kind_of_the_page()
THREADS: dict[str, Any] = {"worker_kind": ThreadWorkers}


def worker_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    for thread in worker_threads():
        thread.join(10)
    assert worker_threads() == []


class DrawingEnv(CountingEnv):
    """Draws from the global generators of its process for the reward."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return (obs, random.random() + np.random.rand() + torch.rand(()).item(), *rest)


def work_of(kind: str, EnvCls: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Return batches, an evaluation, and the batches of a sampler that goes on from a state between them."""
    options |= dict(eval_n_envs=2, eval_max_trajectories=5, saves_state=True, T=4, B=5, time_breakdown=True)

    def new() -> Any:
        return running(kind, random_agent(recurrent=True), EnvCls, **options)

    with new() as sampler:
        batches = collect(sampler, 2)
        state = sampler.state_dict()
        evaluation = in_order(sampler.evaluate_agent(2).traj_infos)
        assert all(seconds >= 0 for seconds in sampler.diagnostics().values())
    with new() as sampler:
        sampler.load_state_dict(state)
        return batches, evaluation, collect(sampler, 2, first=2)


def test_the_kind_of_the_page_is_short():
    assert len([line for line in CODE.splitlines() if line.strip()]) < 60


@pytest.mark.parametrize(
    ("kind", "EnvCls", "where", "options"),
    [
        *((kind, DrawingEnv, HERE, {}) for kind in ("cpu2", "gpu3", "alternating2", "no_overlap2")),
        ("cpu2", CountingVectorEnv, HERE, {}),
        ("cpu3", CountingEnv, HERE, {"mid_batch_reset": False, "n_batches": 2}),
        ("gpu2", CountingEnv, HERE, {"servers": 2}),
        ("cpu2", CountingEnv, THREADS, {}),
        pytest.param("gpu3", CountingEnv, THREADS, {}, marks=pytest.mark.nightly),
        pytest.param("alternating2", CountingEnv, THREADS, {"mid_batch_reset": False}, marks=pytest.mark.nightly),
        ("no_overlap3", CountingVectorEnv, THREADS, {}),
    ],
)
def test_rows_evaluations_and_resumed_rows_are_those_of_processes(kind, EnvCls, where, options):
    before = global_streams()
    ours, theirs = (
        work_of(kind, EnvCls, **where, **options),
        work_of(kind, EnvCls, start_method="forkserver", **options),
    )
    assert_equal_batches(ours[0], theirs[0])
    assert ours[1] == theirs[1]
    assert_equal_batches(ours[2], theirs[2])
    after = global_streams()
    assert after["random"] == before["random"], "the generators of this process are its own"
    np.testing.assert_array_equal(after["numpy"][1], before["numpy"][1])


def test_action_servers_have_workers_of_the_kind():
    expected, *_ = work_of("gpu2", CountingEnv, start_method="here")
    batches, *_ = work_of("gpu2", CountingEnv, worker_kind=WorkersHere, start_method="fork", servers=2)
    assert_equal_batches(batches, expected, rtol=1e-5)  # forward passes have other numbers of rows


class RaisingEnv(CountingEnv):
    """Raises in its third episode where it has the seed of the environment of rank 1."""

    fails = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.fails = self.fails if seed is None else seed == stream_seed(7, Role.ENV, 1)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.fails and self.episode == 2:
            raise ZeroDivisionError("the simulator fell over")
        return super().step(action)


@pytest.mark.parametrize(
    ("kind", "where", "name"),
    [("cpu2", HERE, "in this process"), ("gpu2", HERE, "in this process"), ("cpu2", THREADS, r"Thread \d")],
)
def test_an_error_of_an_environment_ends_the_run_with_its_cause(kind, where, name):
    with (
        running(kind, random_agent(), RaisingEnv, T=4, B=4, **where) as sampler,
        pytest.raises(WorkerError, match=rf"{name}.* raised EnvError: .*the simulator fell over") as info,
    ):
        collect(sampler, 9)
    assert isinstance(info.value.__cause__, EnvError)
    assert isinstance(info.value.__cause__.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_a_lost_thread_is_replaced_as_a_lost_process_is(kind):
    def batches_of(**options: Any) -> list[Any]:
        with running(kind, random_agent(), RaisingEnv, T=4, B=4, restart_workers=1, **options) as sampler:
            batches = collect(sampler, 5)
            assert sampler.diagnostics()["WorkerRestarts"] == 1
            assert any(samples.env.truncated[:, 1].any() for samples, _ in batches)
            return batches

    assert_equal_batches(batches_of(worker_kind=ThreadWorkers), batches_of(start_method="here"))


class StoppingEnv(CountingEnv):
    """Is interrupted by Ctrl-C in one step, when it is armed."""

    armed = False

    def step(self, action: Any) -> Any:
        if StoppingEnv.armed and self.t == 2:
            StoppingEnv.armed = False
            raise KeyboardInterrupt
        return super().step(action)


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_ctrl_c_is_raised_as_it_is_and_the_worker_is_lost(kind, monkeypatch):
    with running(kind, random_agent(), StoppingEnv, start_method="here", T=4, B=4) as sampler:
        monkeypatch.setattr(StoppingEnv, "armed", True)
        with pytest.raises(KeyboardInterrupt):
            collect(sampler, 9)
        with pytest.raises(WorkerError, match=r"in this process\) raised KeyboardInterrupt"):
            collect(sampler, 1)


def test_action_servers_do_not_pin_this_process():
    cores = psutil.Process().cpu_affinity()
    servers = [dict(master_cpus=cores[:1], workers_cpus=cores[:1])] * 2
    with running("gpu2", random_agent(), start_method="here", servers=servers):
        assert psutil.Process().cpu_affinity() == cores


@pytest.mark.parametrize(
    ("SamplerCls", "options", "message"),
    [
        (CpuSampler, {"worker_kind": ThreadWorkers, "start_method": "here"}, "expected one of them"),
        (RaySampler, {"worker_kind": ThreadWorkers}, r"worker_kind is .* on the nodes of the cluster"),
        (RaySampler, {"start_method": "here"}, "start_method is 'here'.* on the nodes of the cluster"),
    ],
)
def test_two_places_for_workers_are_refused(SamplerCls: type[BaseSampler], options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplerCls(CountingEnv, {}, batch_T=4, batch_B=3, **options)


def test_what_is_no_kind_is_refused():
    with pytest.raises(TypeError, match="worker_kind is 'threads'; expected a class of workers"):
        CpuSampler(CountingEnv, {}, batch_T=4, batch_B=3, worker_kind="threads")  # type: ignore[arg-type]
