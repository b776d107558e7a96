"""Several action servers, each with workers of its own: together they fill the rows that one process fills."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import EnvError
from rlpyt.runners import AsyncRl
from rlpyt.samplers import AlternatingSampler, GpuSampler
from rlpyt.samplers.gpu import ActionServer
from rlpyt.types import Run
from rlpyt.utils import processes
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.processes import Worker, WorkerError, available_cpus, receive_all, stop_workers
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners.runner_kit import children, make_algo, make_sampler, nightly, rows_of, run, start_forkserver
from tests.samplers.row_reference import Stream, assert_batches
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
    faulty,
    mortal_agent,
    observation_at,
    place,
    restarting,
)
from tests.toy_envs import CountingEnv, CountingModel
from tests.vector_toy_envs import CountingVectorEnv

SEED, DISCOUNT = 7, 0.5
OPTIONS: dict[str, Any] = dict(bootstrap_value=True, traj_info_kwargs={"discount": DISCOUNT})
TWO = {"servers": 2}
PROCESSES: dict[str, Any] = {"servers": 2, "start_method": "forkserver"}
ACTS_IN_SERVERS = "cpu"
"""What `Checker` takes a sampler with action servers for: the process that acts is lost with the environments."""


@pytest.fixture(scope="module", autouse=True)
def _forkserver_is_running():
    start_forkserver()


@pytest.fixture(autouse=True)
def _no_process_is_left(monkeypatch):
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.5)
    before = children()
    yield
    assert children() <= before


# ---- rows ----


@pytest.mark.parametrize(
    ("kind", "wait"),
    [("gpu2", False), ("gpu3", True), ("alternating4", False), ("no_overlap5", True)]
    + [nightly("gpu2", True), nightly("gpu3", False), nightly("alternating4", True), nightly("no_overlap5", False)],
)
def test_rows_are_the_reference(kind, wait):
    """With a ring of three batches, and more environments in one server than in the other."""
    streams = [Stream(env := CountingEnv(), env.reset(seed=env_seed(b))[0], True) for b in range(5)]
    for stream in streams:
        stream.rests = "still" if wait else "never"
    options: dict[str, Any] = {**OPTIONS, **TWO, "mid_batch_reset": not wait, "n_batches": 3}
    with running(kind, counting_agent(True), T=4, B=5, env_info_keys=["t", "vector"], **options) as sampler:
        assert_batches(sampler, streams, 6, discount=DISCOUNT)


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


@pytest.mark.parametrize("kind", ["gpu2", "alternating4"])
def test_a_loaded_sampler_goes_on_to_the_same_rows(kind):
    options: dict[str, Any] = {**OPTIONS, **TWO, "T": 4, "B": 4}
    with running(kind, random_agent(True), **options) as sampler:
        collect(sampler, 2)
        state = sampler.state_dict()
        expected = collect(sampler, 3, first=2)
    with running(kind, random_agent(True), **options) as sampler:
        sampler.load_state_dict(state)
        assert_equal_batches(collect(sampler, 3, first=2), expected)
    options["servers"] = [{}]
    with running(kind, random_agent(True), **options) as sampler:
        sampler.load_state_dict(state)
        assert_equal_batches(collect(sampler, 3, first=2), expected, rtol=1e-6)


def test_an_evaluation_may_leave_a_server_without_environments():
    with running("gpu2", counting_agent(), eval_n_envs=1, eval_max_trajectories=2, **TWO) as sampler:
        assert len(sampler.evaluate_agent(1).traj_infos) == 2


def test_a_run_learns_from_the_rows_of_servers_and_says_where_the_time_went(tmp_path):
    rows = []
    for servers in (1, 2):
        sampler = make_sampler("gpu2", servers=servers, time_breakdown=True)
        run(tmp_path / str(servers), make_algo("ppo"), sampler, n_steps=200, seed=SEED)
        rows.append(rows_of(tmp_path / str(servers)))
    for one, other in zip(*rows, strict=True):
        assert float(one["lossAverage"]) == pytest.approx(float(other["lossAverage"]), rel=1e-3)
        assert one["ReturnAverage"] == other["ReturnAverage"]
        assert all(float(other[f"Diagnostics/{name}Time"]) >= 0 for name in ("Environments", "Network", "Waiting"))
    assert float(rows[1][-1]["Diagnostics/NetworkTime"]) > 0


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


def test_affinities_with_optimizer_and_sampler_start_servers_of_an_asynchronous_run(tmp_path):
    cpu = available_cpus()[0]
    affinity = {"optimizer": [{"cpus": [cpu]}], "sampler": [{"workers_cpus": [cpu]}, {"workers_cpus": [cpu]}]}
    sampler = GpuSampler(CountingEnv, {}, batch_T=5, batch_B=4)
    run(tmp_path, make_algo("ppo"), sampler, AsyncRl, n_steps=80, seed=SEED, affinity=affinity)
    assert rows_of(tmp_path)[-1]["Diagnostics/CumSteps"] == "80"
    plan = json.loads((tmp_path / "run_0" / "params.json").read_text())["plan"]
    assert (plan["servers"], plan["workers"], plan["lag"]) == (2, 2, 1)


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
    [("gpu2", whom, how) for whom in ("server", "worker") for how in (signal.SIGKILL, signal.SIGSTOP)]
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


def test_an_environment_that_raises_ends_the_run_with_its_traceback():
    EnvCls = faulty({env_seed(2): ("raise", 9)})
    with running("gpu2", counting_agent(), EnvCls, T=4, B=4, **PROCESSES) as sampler:
        message = r"(?s)Action server 1 .*raised WorkerError: Worker 0 .*EnvError: Planned .*ZeroDivisionError: the toy"
        with pytest.raises(WorkerError, match=message):
            collect(sampler, 5)


def test_environments_of_other_spaces_are_refused_by_the_first_one():
    class Uneven(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            parent = multiprocessing.parent_process()
            if parent is not None and parent.name == "rlpyt-worker-1":  # the second server
                self.observation_space: Any = spaces.Box(0, 1, (2,), np.float32)

    message = r"Uneven \(environment of rank 2, 3\): its spaces are .*expected those of the run's first environment"
    with pytest.raises(EnvError, match=message), running("gpu2", counting_agent(), Uneven, B=4, **PROCESSES):
        pass


@pytest.mark.parametrize(
    ("kind", "rank"),
    [("gpu2", 2), ("alternating4", 3), ("no_overlap4", 2), nightly("alternating4", 2), nightly("no_overlap4", 3)],
)
def test_a_lost_server_is_replaced_and_its_environments_begin_anew(kind, rank):
    """Killed in the middle of a batch, by an environment of its first or its second half, and between two."""
    T = 4
    row, at = place(env_seed(rank), 0, T, 2, "inside")
    options: dict[str, Any] = {**TWO, "n_batches": 2, "env_info_keys": ["t", "vector"]}
    with restarting(kind, counting_agent(True), faulty({env_seed(rank): ("kill", at)}), T, **options) as sampler:
        batches = collect(sampler, row // T + 2)
        pid = sampler._workers.pool.workers[0].pid
        os.kill(pid, signal.SIGKILL)
        sampler._workers.pool.workers[0]._process.join(10)
        batches += collect(sampler, 2, first=len(batches))
        assert sampler.diagnostics()["WorkerRestarts"] == 2
    second = (row // T + 2) * T
    losses = Checker(ACTS_IN_SERVERS, batches, recurrent=True, with_info=True).losses
    if kind == "gpu2":
        assert losses == sorted([Loss(row, 1, 2), Loss(row, 1, 3), Loss(second, 2, 0), Loss(second, 2, 1)])
    # Two halves of a server may stand at different rows; both go on from the row that both have reached.
    assert {(loss.restart, loss.b) for loss in losses} == {(1, 2), (1, 3), (2, 0), (2, 1)}
    assert {loss.row for loss in losses if loss.restart == 1} <= {row - 1, row}
    assert len({loss.row for loss in losses if loss.restart == 1}) == 1


@pytest.mark.parametrize(("valued", "loss"), [(True, -1), (False, 0)])
def test_a_server_that_dies_while_it_acts_goes_on_from_the_row_before(valued, loss, tmp_path):
    row, _ = place(env_seed(2), 0, 4, 0, "inside", first_batch=2)
    (flag := tmp_path / "flag").touch()
    agent = mortal_agent(observation_at(row), [flag])
    with restarting("gpu2", agent, CountingEnv, bootstrap_value=valued, n_batches=2, **TWO) as sampler:
        batches = collect(sampler, row // 4 + 3)
        assert sampler.diagnostics()["WorkerRestarts"] == 1
    assert Checker(ACTS_IN_SERVERS, batches).losses == [Loss(row + loss, 1, b) for b in (2, 3)]


def test_a_share_that_is_run_again_is_seeded_anew():
    server: Any = ActionServer.__new__(ActionServer)
    server._agent, server._weights = None, SimpleNamespace(take=lambda agent: 0)
    server._work = SimpleNamespace(evaluate=lambda itr, note, *options: (itr, *options))
    assert server.evaluate(3, True, after_loss=False) == (3, True, False)
    assert server.evaluate(3, False, after_loss=True) == (3, False, True), "after a loss, maybe by the seeds"


def test_a_server_lost_in_an_evaluation_runs_its_share_again():
    with restarting("gpu2", counting_agent(), CountingEnv, eval_n_envs=2, eval_max_trajectories=400, **TWO) as sampler:
        batches = collect(sampler, 2)
        threading.Timer(0.02, os.kill, (sampler._workers.pool.workers[1].pid, signal.SIGKILL)).start()
        while sampler.diagnostics()["WorkerRestarts"] == 0:
            assert len(sampler.evaluate_agent(2).traj_infos) == 400
        batches += collect(sampler, 2, first=2)
    losses = Checker(ACTS_IN_SERVERS, [(samples, None) for samples, _ in batches]).losses
    assert losses == [Loss(8, 1, 2), Loss(8, 1, 3)]


def test_servers_killed_at_any_moment_leave_consistent_rows():
    options: dict[str, Any] = dict(T=16, env_info_keys=["t", "vector"], restart_workers=20, n_batches=2, **TWO)
    delays = [0.001, 0.004, 0.007]
    with restarting("alternating4", counting_agent(True), CountingEnv, **options) as sampler:
        batches: list[Any] = []
        for n, delay in enumerate(delays):
            timer = threading.Timer(delay, os.kill, (sampler._workers.pool.workers[n % 2].pid, signal.SIGKILL))
            timer.start()
            while sampler._workers.pool.n_restarts <= n:
                batches += collect(sampler, 1, first=len(batches))
            batches += collect(sampler, 2, first=len(batches))
        losses = Checker(ACTS_IN_SERVERS, batches, recurrent=True, with_info=True).losses
    for n in range(len(delays)):
        mine = [loss for loss in losses if loss.restart == n + 1]
        assert [loss.b for loss in mine] == ([0, 1], [2, 3])[n % 2]
        assert len({loss.row for loss in mine}) == 1


class Master:
    """Server of a process that runs a sampler with action servers; it replies with the processes."""

    def __init__(self, rank: int, progress: Any) -> None:
        options: dict[str, Any] = {"batch_T": 3, "batch_B": 2, "servers": 2, "n_workers": 2, "start_method": "fork"}
        self.sampler = GpuSampler(CountingEnv, {}, **options)

    def __call__(self, request: Any) -> list[int]:
        self.sampler.initialize(counting_agent())
        self.sampler.obtain_samples(0)
        return [process.pid for process in psutil.Process().children(recursive=True)]

    def close(self) -> None:
        self.sampler.shutdown()


def test_servers_and_their_workers_die_with_the_master():
    master = Worker(0, Master, (), "forkserver", has_workers=True)
    try:
        master.send("start")
        [pids] = receive_all([master], timeout=60)
        assert len(pids) == 4
        assert all(alive(pid) for pid in pids)
        assert master.pid is not None
        os.kill(master.pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not [pid for pid in pids if alive(pid)]
    finally:
        stop_workers([master])


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
