"""Ray clusters whose head dies: Ray then ends the process that is connected to it, within a minute.

Each test has a cluster of its own. They take a minute each, most of which is Ray's patience.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlpyt.logging import logger_context, read_progress
from rlpyt.runners import MinibatchRl
from rlpyt.utils.compute import ComputeSettings
from tests.launching.test_ray_nodes import LAUNCHER, Grid, half_done
from tests.ray_kit import TwoNodes, below
from tests.runners.runner_kit import make_algo, make_sampler, status_of

ROOT = Path(__file__).parents[2]
PATIENCE = 100.0  # of Ray: 60 s for a head that may come back, and some for the nodes

RUN = """
import sys
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import RaySampler
from rlpyt.utils.compute import ComputeSettings
from tests.runners.runner_kit import make_algo
from tests.toy_envs import CountingEnv

if __name__ == "__main__":
    sampler = RaySampler(CountingEnv, {}, batch_T=5, batch_B=4, n_workers=2, max_decorrelation_steps=0)
    runner = MinibatchRl(*make_algo("ppo"), sampler, n_steps=1e9, seed=3, log_interval_steps=100,
                         checkpoint_interval_steps=100, settings=ComputeSettings())
    with logger_context(sys.argv[1], 0, resume="auto"):
        runner.train()
"""


@pytest.fixture
def cluster() -> Iterator[TwoNodes]:
    """Cluster of two nodes that a test may destroy; this process is not connected, as Ray would end it, too."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    nodes = TwoNodes()
    nodes.disconnect()
    yield nodes
    nodes.close()


def kill_head(cluster: TwoNodes) -> None:
    head: Any = cluster._cluster.head_node
    cluster._cluster.remove_node(head, allow_graceful=False)


def kill_its_memory_of_the_cluster(cluster: TwoNodes) -> None:
    head: Any = cluster._cluster.head_node
    head.kill_gcs_server()


ways_to_die = pytest.mark.parametrize("die", [kill_head, kill_its_memory_of_the_cluster])


def start(script: Path, text: str, *args: Path, address: str) -> subprocess.Popen[bytes]:
    script.write_text(text)
    env = {**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(script), *map(str, args)], env=env)


def wait_until(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


@ways_to_die
def test_a_run_ends_without_hanging_and_goes_on_from_its_newest_checkpoint(cluster, tmp_path, die):
    run = start(tmp_path / "run.py", RUN, tmp_path, address=cluster.address)
    try:
        wait_until(lambda: list(tmp_path.glob("run_0/checkpoints/*/manifest.json")), run)
        hosts = below("RayServer") | below("RayWatch")
        assert len(hosts) >= 2
        # Children of this process, which must wait for them: an actor takes a zombie for a node that lives.
        raylets = {child for child in psutil.Process().children() if "raylet" in child.name()}
        die(cluster)
        assert run.wait(PATIENCE) == 1
    finally:
        run.kill()
    assert not psutil.wait_procs(hosts | raylets, timeout=PATIENCE)[1], "none is left"
    done = max(int(path.parent.name) for path in tmp_path.glob("run_0/checkpoints/*/manifest.json"))
    algo, agent = make_algo("ppo")
    options: dict[str, Any] = dict(log_interval_steps=100, checkpoint_interval_steps=100, settings=ComputeSettings())
    with logger_context(tmp_path, 0, resume="auto"):
        MinibatchRl(algo, agent, make_sampler("cpu2"), n_steps=done + 200, seed=3, **options).train()
    assert status_of(tmp_path)["status"] == "finished"
    steps = read_progress(tmp_path / "run_0")["Diagnostics/CumSteps"]
    assert [*steps] == [*range(100, done + 201, 100)], "each row once"


@ways_to_die
def test_runs_of_a_grid_save_their_work_and_the_next_launch_goes_on(cluster, tmp_path, die):
    grid = Grid(tmp_path)
    launcher = start(tmp_path / "launcher.py", LAUNCHER, grid.script, tmp_path / "data", address=cluster.address)
    try:
        wait_until(lambda: half_done(grid), launcher)
        processes = [*grid.processes().values(), *below("rlpyt.launching.ray_nodes")]
        die(cluster)
        assert launcher.wait(PATIENCE) == 1
    finally:
        launcher.kill()
    assert not psutil.wait_procs(processes, timeout=PATIENCE)[1], "none is left"
    assert all((path / "saved").exists() for path in grid.folder.glob("*/run_0"))
    grid.go()
    assert grid.launch("1aut", n=1) == 0
    assert grid.n_rows() == [8, 8]
