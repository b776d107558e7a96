"""`RaySampler` on a cluster of two nodes on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from rlpyt.samplers import CpuSampler, RaySampler, ray_sampler
from rlpyt.types import Run
from rlpyt.utils.processes import WorkerError, cores_limited_to
from rlpyt.utils.ray_cluster import RayConnection, import_ray, own_cluster
from rlpyt.utils.seeds import Role, stream_seed
from tests.ray_kit import below
from tests.samplers.sampler_kit import assert_equal_batches, collect, random_agent
from tests.samplers.troubled_env import NeedyEnv, TroubledEnv
from tests.toy_envs import CountingEnv

pytestmark = pytest.mark.ray

T, B = 6, 3


@contextmanager
def running(Cls: Any = RaySampler, agent: Any = None, EnvCls: Any = CountingEnv, **options: Any) -> Iterator[Any]:
    of_run = {k: options.pop(k) for k in ("bootstrap_value", "bootstrap_inputs", "n_batches") if k in options}
    sampler = Cls(EnvCls, options.pop("env_kwargs", {}), batch_T=T, batch_B=B, n_workers=2, **options)
    try:
        sampler.initialize(agent or random_agent(), Run(batch_spec=sampler.batch_spec, seed=7, **of_run))
        yield sampler
    finally:
        sampler.shutdown()


def learn(agent: Any, batch: int) -> None:
    """Change the weights, so that a worker with those of another batch acts otherwise."""
    generator = torch.Generator().manual_seed(batch)
    with torch.no_grad():
        for weights in agent.model.parameters():
            weights += 0.5 * torch.randn(weights.shape, generator=generator)


def batches_with_learning(sampler: Any, agent: Any, itrs: range) -> list[Any]:
    batches = []
    for itr in itrs:
        batches += collect(sampler, 1, itr)
        learn(agent, itr)
    return batches


def test_rows_evaluations_and_resumed_rows_are_those_of_cpu_workers(ray_cluster):
    options: dict[str, Any] = dict(EnvCls=NeedyEnv, eval_env_overrides={"draws": False}, env_info_keys=["t"])
    options |= {"eval_n_envs": 2, "eval_max_trajectories": 4, "mid_batch_reset": False}
    results = []
    state: dict[str, Any] = {}
    for Cls in (CpuSampler, RaySampler):
        agent = random_agent(recurrent=True)
        with running(Cls, agent, bootstrap_value=True, bootstrap_inputs=True, n_batches=2, **options) as sampler:
            batches = batches_with_learning(sampler, agent, range(3))
            state = state or sampler.state_dict()
            result = sampler.evaluate_agent(3)
            batches += collect(sampler, 2, 3)
            results.append((batches, [info.statistics() for info in result.traj_infos]))
            if Cls is RaySampler:
                nodes = {worker.node.node_id for worker in sampler._workers.pool.workers}
                assert len(nodes) == 2, "a worker on each node"
                own = sampler.state_dict()
                more = collect(sampler, 2, 5)
                for saved, first, expected in ((state, 3, batches[3:]), (own, 5, more)):
                    sampler.load_state_dict(saved)
                    assert sampler.n_cut_episodes == 0
                    assert_equal_batches(collect(sampler, 2, first), expected)
                processes = below("RayServer") | below("RayWatch")
                assert len(processes) == 2 * 2, "a worker and a watch on each node"
    (local, local_eval), (remote, remote_eval) = results
    assert_equal_batches(remote, local)
    assert remote_eval == local_eval
    assert not psutil.wait_procs(processes, timeout=30)[1], "none is left"


def process_of(actor: Any) -> psutil.Process:
    return psutil.Process(import_ray("RaySampler").get(actor.__ray_call__.remote(lambda self: os.getpid())))


def env_seed(rank: int) -> int:
    return stream_seed(7, Role.ENV, rank, 0)


@pytest.mark.nightly
def test_workers_that_raise_stand_still_or_die_and_nodes_that_hang_are_replaced(ray_cluster, capsys):
    # Environment 2 is worker 1's; after restart k it has the seed of rank 2 + 3 k.
    trouble_of = {env_seed(2): "raise", env_seed(5): "stand", env_seed(8): "die", env_seed(14): "raise"}
    options: dict[str, Any] = dict(EnvCls=TroubledEnv, env_kwargs={"trouble_of": trouble_of})
    with running(**options, max_decorrelation_steps=0, worker_timeout=1.0, restart_workers=4) as sampler:
        start = time.monotonic()
        collect(sampler, 2)
        assert sampler._workers.pool.n_restarts == 1
        sampler.obtain_samples(2)
        assert (sampler._workers.pool.n_restarts, sampler.n_cut_episodes) == (2, 2)
        node = sampler._workers.pool.workers[1].node
        sampler.obtain_samples(3)
        assert (sampler._workers.pool.n_restarts, sampler.n_cut_episodes) == (3, 3)
        worker = sampler._workers.pool.workers[1]
        assert worker.node is node
        assert not node.lost, "it is well"
        sampler._kind.node_timeout, sampler._workers.pool.timeout = 1.5, 60.0
        processes = [process_of(actor) for actor in (worker.remote, worker.node.remote)]
        for process in processes:
            process.suspend()
        try:
            sampler.obtain_samples(4)
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):  # the sampler has killed it
                    process.kill()
        sampler._kind.node_timeout = 30.0
        assert worker.node.lost
        assert sampler._workers.pool.workers[1].node is sampler._workers.pool.workers[0].node
        with pytest.raises(WorkerError, match=PLACE + "OSError: no display") as info:
            collect(sampler, 2, 5)
        assert "in step" in str(info.value), "with its traceback"
        assert time.monotonic() - start < 120
    out = "".join(capsys.readouterr())
    assert re.search(PLACE + "OSError", out)
    assert re.search(
        r"Worker 1 on node [\d.]+ \(\w{8}\), .* environment 2, step \d+, has made no progress for 1 s", out
    )
    assert re.search(
        r"Worker 1 on node [\d.]+ \(\w{8}\), .* environment 2, step \d+, was lost with its process or", out
    )
    assert re.search(r"Worker 1 on node [\d.]+ \(\w{8}\), .* its node has not answered for 1.5 s", out)


PLACE = r"Worker 1 on node [\d.]+ \(\w{8}\), .* environment 2, step \d+, raised EnvError: .*"


@pytest.mark.nightly
def test_two_samplers_share_the_cluster_and_a_third_one_is_told_that_it_has_no_core(ray_cluster, monkeypatch):
    def sampler() -> Any:
        return RaySampler(CountingEnv, {}, batch_T=T, batch_B=1, n_workers=1)

    samplers = [sampler() for _ in range(3)]
    try:
        for first in samplers[:2]:
            first.initialize(random_agent(), Run(batch_spec=first.batch_spec, seed=7))
        assert_equal_batches(collect(samplers[0], 2), collect(samplers[1], 2))
        monkeypatch.setattr(ray_sampler, "START_SECONDS", 1.0)
        with pytest.raises(WorkerError, match=r"Worker 0 on node .* has not started it for 1 s\. Its cores may"):
            samplers[2].initialize(random_agent(), Run(batch_spec=samplers[2].batch_spec))
    finally:
        for one in samplers:
            one.shutdown()


# ---- settings ----


def test_settings_that_cannot_be_meant_are_refused(ray_cluster):
    with pytest.raises(ValueError, match=r"node_timeout is 0.5; expected a number of seconds above 1"):
        RaySampler(CountingEnv, {}, batch_T=2, batch_B=2, node_timeout=0.5)
    with pytest.raises(ValueError, match="restart_seconds is 0; expected a number of seconds above 0"):
        RaySampler(CountingEnv, {}, batch_T=2, batch_B=2, restart_seconds=0)
    sampler = RaySampler(CountingEnv, {}, batch_T=2, batch_B=4, n_workers=3)
    with pytest.raises(ValueError, match="n_workers is 3; expected at most 2, the cores of the Ray cluster"):
        sampler.initialize(random_agent(), Run(batch_spec=sampler.batch_spec))


def test_without_ray_the_message_has_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[ray\]"):
        import_ray("RaySampler")


# ---- the end of the master ----

MASTER = """
import os, signal, sys
from rlpyt.samplers import RaySampler
from rlpyt.types import Run
from tests.samplers.sampler_kit import random_agent
from tests.toy_envs import CountingEnv

if __name__ == "__main__":
    sampler = RaySampler(CountingEnv, {}, batch_T=6, batch_B=3, n_workers=1)
    before = signal.getsignal(signal.SIGTERM)
    sampler.initialize(random_agent(), Run(batch_spec=sampler.batch_spec))
    assert signal.getsignal(signal.SIGTERM) is before, "Ray has set its own handler"
    try:
        for itr in range(10**9):
            sampler.obtain_samples(itr)
            if itr == 2:
                print("collects", flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        sampler.shutdown()
    assert not sampler.running
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 0)])
def test_nothing_of_a_run_is_left_when_its_master_ends(ray_cluster, tmp_path, number, code):
    script = tmp_path / "master.py"
    script.write_text(MASTER)
    env = {**os.environ, "RAY_ADDRESS": ray_cluster.address, "PYTHONPATH": str(Path(__file__).parents[2])}
    master = subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True)
    alarm = threading.Timer(40, master.kill)
    alarm.start()
    try:
        assert master.stdout is not None
        while "collects" not in (line := master.stdout.readline()):
            assert line, "the master has ended"
        made = below("RayServer") | below("RayWatch")
        assert made, "the worker and the watch"
        master.send_signal(number)
        assert master.wait(20) == code
        assert not psutil.wait_procs(made, timeout=10)[1]
    finally:
        alarm.cancel()
        master.kill()


# ---- the loss of a node ----


@pytest.mark.nightly
def test_a_lost_node_is_named_and_its_environments_go_on_elsewhere(ray_cluster, capfd):
    options: dict[str, Any] = {"env_kwargs": {"lengths": (10**6,)}}
    with running(CpuSampler, **options) as sampler:
        local = collect(sampler, 2)
    with running(restart_workers=2, restart_seconds=600, **options) as sampler:
        batches = collect(sampler, 2)
        assert_equal_batches(batches, local)
        lost = ray_cluster.other_id
        [worker] = [worker for worker in sampler._workers.pool.workers if worker.node.node_id == lost]
        ranks = sampler._workers.specs[worker.rank]
        [ranks] = [spec.env_ranks for spec in ranks.values()]
        ray_cluster.remove_other()
        start, itr = time.monotonic(), 2
        while sampler._workers.pool.n_restarts == 0:  # the processes of a node outlive it for a second
            batches += collect(sampler, 1, itr)
            itr += 1
            assert time.monotonic() - start < 20
        after = collect(sampler, 1, itr)
        assert sampler.diagnostics()["WorkerRestarts"] == 1
        assert sampler.n_cut_episodes == len(ranks)
    out = "".join(capfd.readouterr())
    assert f"Worker {worker.rank} on node" in out
    assert f"({lost[:8]})" in out
    env = batches[-1][0].env
    others = [b for b in range(B) if b not in ranks]
    assert not env.valid[0, ranks].any()
    assert env.valid[1:, ranks].all()
    last = batches[-2][0].env.observation[-1, ranks]
    torch.testing.assert_close(env.observation[0, ranks, 1], last[:, 1] + 1)  # the step after the last whole batch
    assert (env.observation[1, ranks, 1] == 0).all(), "a new episode"
    assert env.valid[:, others].all()
    assert after[0][0].env.valid.all()


@pytest.mark.parametrize(("letters", "options"), [(30, {}), (130, {"_temp_dir": f"/tmp/ray_{os.getuid()}"})])
def test_a_cluster_of_this_machine_has_the_cores_of_this_process_and_starts_where_tmpdir_is_long(
    letters, options, monkeypatch
):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/" + letters * "a")
    options |= {"num_cpus": 1, "include_dashboard": False}
    with cores_limited_to(1):  # as in a job of one core, on a machine with more
        assert own_cluster() == options


@pytest.mark.nightly
def test_a_cluster_of_this_machine_listens_on_no_other_interface():
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    before = listening()
    connection = RayConnection("RaySampler", "local")
    try:
        addresses = {address for _, address in listening() - before}
    finally:
        connection.close()
    assert addresses
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}


def listening() -> set[tuple[int, str]]:
    """Return the ports on which this process and those below it listen, with their addresses."""
    found = set()
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):  # it has ended meanwhile
            connections = process.net_connections("tcp")
            found |= {(one.laddr.port, one.laddr.ip) for one in connections if one.status == psutil.CONN_LISTEN}
    return found
