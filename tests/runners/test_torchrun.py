"""Replicas that torchrun starts: two launchers, as on two machines, meet on the loopback interface."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from rlpyt.logging import load_snapshot, logger_context
from rlpyt.runners import MinibatchRl, SyncRl
from tests.runners.runner_kit import make_algo, make_sampler, rows_of, status_of

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


@contextmanager
def launchers(directory: Path, n_nodes: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start torchrun once for each node, with one replica each; kill what is left at the end."""
    script = directory / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = (
        f"--nnodes={n_nodes} --nproc-per-node=1 --max-restarts=1 --rdzv-backend=c10d --rdzv-id=toy "
        f"--rdzv-endpoint=127.0.0.1:{port} --local-addr=127.0.0.1 --monitor-interval=0.1"
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


def test_a_runner_of_one_process_is_refused_where_a_launcher_has_started_several(monkeypatch):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=r"MinibatchRl: this is process 1 of 2 of a launcher .* Use SyncRl"):
        MinibatchRl(*make_algo("ppo"), make_sampler(), n_steps=100)
    with pytest.raises(ValueError, match="n_replicas is 3, and the launcher has started 2 processes"):
        SyncRl(*make_algo("ppo"), make_sampler(), n_steps=100, n_replicas=3)
    monkeypatch.setenv("WORLD_SIZE", "1")
    MinibatchRl(*make_algo("ppo"), make_sampler(), n_steps=100)


def test_other_ranks_of_a_launcher_keep_no_records(monkeypatch, tmp_path, capfd):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    with logger_context(tmp_path, 0) as logger:
        logger.log("text")
        logger.record_tabular("x", 1)
        logger.dump_tabular()
        assert logger.directory is None
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")
