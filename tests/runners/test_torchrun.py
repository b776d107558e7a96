"""Replicas that a launcher starts: torchrun on two machines, which meet on the loopback interface, and srun."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from rlpyt.logging import load_snapshot, logger_context
from rlpyt.runners import MinibatchRl, SyncRl
from rlpyt.utils import launched
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.launched import launcher_store
from tests.runners.runner_kit import make_algo, make_sampler, nightly, rows_of, run, status_of, without_times

ROOT = Path(__file__).parents[2]
LAUNCHED = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}

SCRIPT = """
    import os, sys
    from pathlib import Path
    from rlpyt.logging import logger_context
    from rlpyt.runners import SyncRl
    from rlpyt.utils.compute import ComputeSettings
    from rlpyt.utils.seeds import Role, stream_seed
    from tests.runners.runner_kit import make_algo, make_sampler
    from tests.toy_envs import FaultyEnv

    def make_env():
        first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        return FaultyEnv(fault="kill" if first else "none", at=17, bad_seed=stream_seed(3, Role.ENV, 6))

    if __name__ == "__main__":
        directory = Path(sys.argv[1])
        algo, agent = make_algo("ppo")
        runner = SyncRl(algo, agent, make_sampler("serial", make_env), n_steps=320, seed=3, log_interval_steps=40,
                        checkpoint_interval_steps=40, settings=ComputeSettings(), replica_timeout=60)
        with logger_context(directory, 0, resume="auto") as logger:
            assert (logger.directory is None) == (os.environ["RANK"] != "0")
            runner.train()
        print("parameters", sum(p.double().sum().item() for p in agent.parameters()), flush=True)
"""


# Two runs, one after the other. The process of the replica that `stopped` names is sent SIGTERM in the first run.
TWO_RUNS = """
    import os, signal, sys
    from rlpyt.logging import logger_context
    from rlpyt.runners import SyncRl
    from rlpyt.utils.compute import ComputeSettings
    from tests.runners.runner_kit import make_algo, make_sampler
    from tests.toy_envs import CountingEnv

    directory, n_steps, stopped = sys.argv[1:]

    class StoppedEnv(CountingEnv):
        n_steps = 0

        def step(self, action):
            self.n_steps += 1
            if self.n_steps == 17 and os.environ["RANK"] == stopped:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().step(action)

    if __name__ == "__main__":
        for run_ID in (0, 1):
            runner = SyncRl(*make_algo("ppo"), make_sampler("serial", StoppedEnv), n_steps=float(n_steps), seed=3,
                            log_interval_steps=40, checkpoint_interval_steps=40, settings=ComputeSettings())
            with logger_context(directory, run_ID, resume="auto"):
                runner.train()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def launchers(directory: Path, n_nodes: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start torchrun once for each node, with one replica each; kill what is left at the end."""
    script = directory / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    options = (
        f"--nnodes={n_nodes} --nproc-per-node=1 --max-restarts=1 --rdzv-backend=c10d --rdzv-id=toy "
        f"--rdzv-endpoint=127.0.0.1:{free_port()} --local-addr=127.0.0.1 --monitor-interval=0.1"
    ).split()
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script), str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        nodes = []
        for number in range(n_nodes):
            output = stack.enter_context(open(directory / f"node_{number}", "w"))
            nodes.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output, text=True))
        family: list[psutil.Process] = []
        try:
            yield nodes
        finally:
            for node in nodes:
                if node.poll() is None:
                    family += [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]
            for process in family:
                process.kill()
            for node in nodes:
                node.wait()


@pytest.mark.nightly
def test_two_nodes_are_one_run_that_goes_on_where_it_stood_when_a_rank_is_killed(tmp_path):
    with launchers(tmp_path, 2) as nodes:
        deadline = time.monotonic() + 150
        for node in nodes:
            code = node.wait(deadline - time.monotonic())
            texts = [(tmp_path / f"node_{n}").read_text() for n in range(2)]
            assert code == 0, "\n".join(texts)
    text = "\n".join(texts)
    # The other rank named the one that was killed, and where.
    assert "ReplicaError: Replica 1 of 2 (pid " in text
    assert "was killed" in text
    assert text.count("Resumed after ") == 1  # said by rank 0
    # One log of both attempts, by rank 0.
    assert [int(row["Diagnostics/CumSteps"]) for row in rows_of(tmp_path)] == [*range(40, 321, 40)]
    assert [path.name for path in tmp_path.glob("run_*")] == ["run_0"]
    assert status_of(tmp_path)["status"] == "finished"
    assert load_snapshot(tmp_path / "run_0" / "params.pkl")["cum_steps"] == 320
    ends = [line for line in text.splitlines() if line.startswith("parameters")]
    assert len(ends) == 2
    assert len(set(ends)) == 1


def as_tasks_of_srun(directory: Path, stopped: str, n_steps: int = 320) -> list[int]:
    """Start the script once for each replica, with the variables of docs/howto/replicas.md; return the exit codes."""
    script = directory / "script.py"
    script.write_text(textwrap.dedent(TWO_RUNS))
    common = {"PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    tasks = []
    try:
        for rank in ("0", "1"):
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **common, "RANK": rank, "LOCAL_RANK": rank}
            tasks.append(
                subprocess.Popen([sys.executable, str(script), str(directory), str(n_steps), stopped], env=environment)
            )
        return [task.wait(90) for task in tasks]
    finally:
        for task in tasks:
            task.kill()


@pytest.mark.nightly
@pytest.mark.parametrize(("n_steps", "stops"), [(80, False), (320, True)])
def test_tasks_of_srun_are_the_replicas_of_a_run_stop_together_with_code_85_and_go_on(n_steps, stops, tmp_path):
    if stops:
        assert as_tasks_of_srun(tmp_path, stopped="1", n_steps=n_steps) == [85, 85]
        assert status_of(tmp_path)["status"] == "interrupted"
    assert as_tasks_of_srun(tmp_path, stopped="none", n_steps=n_steps) == [0, 0]
    run(tmp_path / "here", "ppo", Runner=SyncRl, n_replicas=2, n_steps=n_steps)
    assert without_times(tmp_path) == without_times(tmp_path / "here")
    first, second, here = (
        load_snapshot(path / "params.pkl") for path in (*sorted(tmp_path.glob("run_?")), tmp_path / "here/run_0")
    )
    for one in (first, second):
        torch.testing.assert_close(one["agent_state_dict"], here["agent_state_dict"], rtol=0, atol=0)


@pytest.mark.nightly
def test_two_torchruns_on_a_machine_whose_replicas_save_their_work_when_one_is_stopped_and_one_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TWO_RUNS))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    code_of = {signal.SIGTERM: 1, signal.SIGKILL: -signal.SIGKILL}
    folders = {number: tmp_path / number.name for number in code_of}
    torchruns = {
        n: subprocess.Popen([*launcher, str(path), "1e9", "none"], env=environment) for n, path in folders.items()
    }
    replicas: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + 90
        while not all(list(path.glob("run_0/checkpoints/*/manifest.json")) for path in folders.values()):
            assert time.monotonic() < deadline, "no checkpoint"
            time.sleep(0.05)
        for number, torchrun in torchruns.items():
            replicas += psutil.Process(torchrun.pid).children()
            torchrun.send_signal(number)
        assert len(replicas) == 4
        assert {number: torchrun.wait(30) for number, torchrun in torchruns.items()} == code_of
        assert not psutil.wait_procs(replicas, timeout=20)[1], "none is left"
    finally:
        for torchrun in torchruns.values():
            torchrun.kill()
        for replica in replicas:
            with suppress(psutil.NoSuchProcess):
                replica.kill()
    assert [status_of(path)["status"] for path in folders.values()] == ["interrupted"] * 2


def test_the_store_of_replica_0_outlives_a_run_as_the_others_may_be_at_the_next_one_already(monkeypatch):
    for name, value in {**LAUNCHED, "RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": str(free_port())}.items():
        monkeypatch.setenv(name, value)
    try:
        launcher_store().set("note", "of the first run")
        second = launcher_store()
        assert not second.check(["note"])
        assert isinstance(second, dist.PrefixStore)
        assert dist.PrefixStore("rlpyt 1", second.underlying_store).check(["note"])
    finally:
        launched._store_of_all_runs.cache_clear()


@pytest.mark.parametrize(("rank", "message"), [nightly("0", "1/2 clients joined"), ("1", "timed out after 1000ms")])
def test_the_wait_for_processes_that_never_come_has_an_end(monkeypatch, rank, message):
    for name, value in {**LAUNCHED, "RANK": rank, "MASTER_PORT": str(free_port())}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launched, "_MEET_SECONDS", 1.0)
    with pytest.raises(dist.DistError, match=message):
        launcher_store()


def test_a_run_that_a_launcher_would_repeat_is_refused_where_it_trains(monkeypatch):
    """Not where it is built: a module that the script imports may build one."""
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    alone = MinibatchRl(*make_algo("ppo"), make_sampler(), n_steps=100)
    with pytest.raises(ValueError, match=r"MinibatchRl: this is process 1 of 2 of a launcher .* Use SyncRl"):
        alone.train()
    three = SyncRl(*make_algo("ppo"), make_sampler(), n_steps=100, n_replicas=3)
    with pytest.raises(ValueError, match="n_replicas is 3, and the launcher has started 2 processes"):
        three.train()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    timed = MinibatchRl(*make_algo("ppo"), make_sampler(), n_steps=100, max_time=60)
    with pytest.raises(ValueError, match="max_time is 60, and torchrun has --max-restarts=3; expected one of them"):
        timed.train()


@pytest.mark.parametrize("Runner", [MinibatchRl, SyncRl])
def test_one_process_of_a_launcher_is_a_run_of_one_replica(monkeypatch, Runner):
    for name, value in {**LAUNCHED, "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    runner = Runner(*make_algo("ppo"), make_sampler(T=5, B=4), n_steps=40, settings=ComputeSettings())
    runner.train()
    assert runner.n_itr == 2, "not one of two replicas"


@pytest.mark.parametrize(
    ("rank", "world_size"), [("1", "1"), ("2", "2"), ("", "2"), ("0", ""), ("0", "0"), ("-1", "2")]
)
def test_a_process_that_is_none_of_a_launchers_processes_is_refused(monkeypatch, tmp_path, rank, world_size):
    """Else it would train alone without a record, or wait for others that do not come."""
    for name, value in {**LAUNCHED, "RANK": rank, "WORLD_SIZE": world_size}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"RANK is '{rank}' and WORLD_SIZE is '{world_size}'; expected the number of"):
        SyncRl(*make_algo("ppo"), make_sampler(), n_steps=100)
    with pytest.raises(ValueError, match="WORLD_SIZE"), logger_context(tmp_path, 0):
        pass
