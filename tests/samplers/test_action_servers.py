"""Several action servers, each with workers of its own: together they fill the rows that one process fills."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.samplers import AlternatingSampler, GpuSampler
from rlpyt.types import Run
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.processes import WorkerError, available_cpus
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners.runner_kit import nightly
from tests.samplers.sampler_kit import (
    assert_equal_batches,
    collect,
    counting_agent,
    in_order,
    random_agent,
    running,
)
from tests.samplers.test_worker_restarts import (
    Checker,
    Loss,
    env_seed,
    restarting,
)
from tests.toy_envs import CountingEnv, CountingModel
from tests.vector_toy_envs import CountingVectorEnv

SEED, DISCOUNT = 7, 0.5
OPTIONS: dict[str, Any] = dict(bootstrap_value=True, traj_info_kwargs={"discount": DISCOUNT})
PROCESSES: dict[str, Any] = {"servers": 2, "start_method": "forkserver"}


pytestmark = pytest.mark.usefixtures("nothing_is_left", "workers_end_soon")


# ---- rows ----


@pytest.mark.parametrize(("kind", "EnvCls"), [("gpu2", CountingEnv), ("alternating4", CountingVectorEnv)])
def test_rows_trajectories_and_evaluations_are_those_of_one_process(kind, EnvCls, tmp_path):
    options: dict[str, Any] = {**OPTIONS, "max_decorrelation_steps": 4, "eval_n_envs": 3, "eval_max_trajectories": 7}
    results = []
    for servers in (1, 2):
        agent = random_agent(True)
        with running(kind, agent, EnvCls, T=4, B=5, servers=servers, **options) as sampler:
            batches = collect(sampler, 3)
            with torch.no_grad():
                for parameter in agent.parameters():  # as an algorithm does
                    parameter.mul_(1.5)
            evaluations = [sampler.evaluate_agent(3)]
            batches += collect(sampler, 3, first=3)
            evaluations.append(sampler.evaluate_agent(6, deterministic=True))
        results.append((batches, [(in_order(e.traj_infos), e.steps, e.unfinished) for e in evaluations]))
    assert results[0][1] == results[1][1]
    for (one, _), (other, _) in zip(results[0][0], results[1][0], strict=True):
        assert torch.equal(one.agent.action, other.agent.action)
    # A forward pass over another number of rows is rounded otherwise.
    assert_equal_batches(results[0][0], results[1][0], rtol=1e-4)


class SeedModel(CountingModel):
    """Gives the seed of the global generator as the value."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        logits, value = super().forward(*args, **kwargs)
        return logits, torch.full_like(value, torch.initial_seed() % 2**20)


def test_servers_have_global_generators_of_their_own():
    agent = CategoricalPgAgent(ModelCls=SeedModel)
    with running("gpu2", agent, B=2, **PROCESSES) as sampler:
        seeds = set(sampler.obtain_samples(0)[0].agent.agent_info.value.flatten().tolist())
    workers = {torch_seed(Role.WORKER, rank, 0) for rank in range(2)}
    assert seeds == {torch_seed(Role.SAMPLER, rank, 1) for rank in range(2)}
    assert len(seeds | workers) == 4


def torch_seed(role: Role, index: int, itr: int) -> int:
    return stream_seed(stream_seed(SEED, role, index, itr), Role.MODEL) % 2**20


# ---- settings ----


def test_affinities_of_rlpyt_0_1_start_a_server_each():
    cpu = available_cpus()[0]
    one = {"all_cpus": [cpu], "master_cpus": [cpu], "workers_cpus": [cpu, [cpu]], "master_torch_threads": 2}
    one |= {"worker_torch_threads": 1, "alternating": False, "set_affinity": True, "cuda_idx": None}
    two = {**one, "workers_cpus": [cpu]}
    affinity = {"sampler": [one, two]}
    assert list(Affinity.from_mapping(affinity).sampler) == [one, two]
    sampler = GpuSampler(CountingEnv, {}, batch_T=3, batch_B=4, max_decorrelation_steps=0)
    with started(sampler, affinity=affinity):
        samples, _ = sampler.obtain_samples(0)
        assert sampler.plan() == {"sampler": "GpuSampler", "servers": 2, "workers": 3}
        assert sampler._workers is not None
        servers = [psutil.Process(worker.pid) for worker in sampler._workers.pool.workers]
        assert [len(server.children()) for server in servers] == [2, 1]
        assert all(p.cpu_affinity() == [cpu] for server in servers for p in (server, *server.children()))
        expected = samples.env.observation.clone()
    sampler = GpuSampler(CountingEnv, {}, batch_T=3, batch_B=4, max_decorrelation_steps=0, servers=[one, two])
    with started(sampler):
        assert torch.equal(sampler.obtain_samples(0)[0].env.observation, expected)


def test_a_number_of_servers_shares_the_cores_of_the_workers():
    cpus = [available_cpus()[i % len(available_cpus())] for i in range(3)]
    sampler = GpuSampler(CountingEnv, {}, batch_T=3, batch_B=4, servers=2)
    with started(sampler, affinity={"workers_cpus": cpus}):
        assert sampler._workers is not None
        workers = [psutil.Process(worker.pid).children() for worker in sampler._workers.pool.workers]
        assert [[p.cpu_affinity() for p in some] for some in workers] == [[[cpus[0]], [cpus[1]]], [[cpus[2]]]]


@contextmanager
def started(sampler: Any, **facts: Any) -> Iterator[None]:
    try:
        sampler.initialize(counting_agent(), Run(batch_spec=sampler.batch_spec, seed=SEED, **facts))
        yield
    finally:
        sampler.shutdown()


@pytest.mark.parametrize(
    ("SamplerCls", "settings", "error", "message"),
    [
        (GpuSampler, {"servers": 0}, ValueError, "servers is 0; expected a whole number from 1"),
        (GpuSampler, {"servers": 5}, ValueError, "5 action servers, and 4 environments .* expected at least 5"),
        (AlternatingSampler, {"servers": 3}, ValueError, "3 action servers, and 4 environments .* at least 6"),
        (GpuSampler, {"servers": [{"gpu": 1}, {}]}, ValueError, "affinity: got gpu; expected some of cuda_idx"),
        (GpuSampler, {"servers": [{"cuda_idx": "0"}]}, TypeError, "cuda_idx is '0'; expected the number of a CUDA"),
        (GpuSampler, {"servers": []}, TypeError, r"servers is \[\]; expected a whole number from 1, or a dictionary"),
        (GpuSampler, {"servers": 3, "n_workers": 2}, ValueError, "3 action servers, and 2 environments or workers"),
    ],
)
def test_what_cannot_be_meant_is_refused(SamplerCls, settings, error, message):
    with pytest.raises(error, match=message):
        SamplerCls(CountingEnv, {}, batch_T=3, batch_B=4, **settings)


# ---- faults ----


def server_and_worker(sampler: Any, rank: int) -> tuple[int, int]:
    pid = sampler._workers.pool.workers[rank].pid
    return pid, psutil.Process(pid).children()[0].pid


@pytest.mark.parametrize(
    ("kind", "whom", "how"),
    [("gpu2", "server", signal.SIGSTOP), ("gpu2", "worker", signal.SIGKILL)]
    + [nightly("gpu2", "server", signal.SIGKILL), nightly("gpu2", "worker", signal.SIGSTOP)]
    + [nightly("alternating4", whom, signal.SIGKILL) for whom in ("server", "worker")],
)
def test_a_server_or_worker_that_is_killed_or_stopped_ends_the_run_with_its_name(kind, whom, how):
    with running(kind, counting_agent(), T=16, B=4, worker_timeout=1.0, **PROCESSES) as sampler:
        collect(sampler, 1)
        server, worker = server_and_worker(sampler, 1)
        threading.Timer(0.01, os.kill, (server if whom == "server" else worker, how)).start()
        start = time.monotonic()
        end = "was killed by SIGKILL" if how is signal.SIGKILL else "has made no progress for 1 s"
        message = rf"Action server 1 \(pid {server}\), last seen at environment 2, step \d+, "
        message += end if whom == "server" else rf"raised WorkerError: Worker 0 \(pid {worker}\), .* {end}"
        with pytest.raises(WorkerError, match=message):
            collect(sampler, 100_000, first=1)
        assert time.monotonic() - start < 5


class Slow(CountingEnv):
    """Takes 0.25 s for a step, but not in the check at the start."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seconds = 0.25 if seed in [env_seed(rank) for rank in range(18)] else 0.0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().step(action)


def test_a_server_that_waits_for_workers_that_go_on_is_not_taken_for_lost():
    """All environments of a worker together take longer for a row than one step may."""
    with running("gpu2", counting_agent(), Slow, T=1, B=18, worker_timeout=1.5, **PROCESSES) as sampler:
        assert sampler.obtain_samples(0)[0].env.valid.all()


def test_a_server_lost_in_an_evaluation_runs_its_share_again():
    with restarting("gpu2 x2", counting_agent(), CountingEnv, eval_n_envs=2, eval_max_trajectories=400) as sampler:
        batches = collect(sampler, 2)
        threading.Timer(0.02, os.kill, (sampler._workers.pool.workers[1].pid, signal.SIGKILL)).start()
        while sampler.diagnostics()["WorkerRestarts"] == 0:
            assert len(sampler.evaluate_agent(2).traj_infos) == 400
        batches += collect(sampler, 2, first=2)
    losses = Checker("gpu2 x2", [(samples, None) for samples, _ in batches]).losses
    assert losses == [Loss(8, 1, 2), Loss(8, 1, 3)]
