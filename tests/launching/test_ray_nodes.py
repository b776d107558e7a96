"""Grids on the nodes of a Ray cluster: two nodes on this machine, lost nodes, stopped and killed launchers."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlpyt.launching import RayNodes, run_experiments
from rlpyt.launching.grid import GridRun
from rlpyt.launching.ray_nodes import NodeSlots
from rlpyt.launching.variants import save_variant
from tests.launching.kit import QUICK, TWO, script, starts, wait_until, when
from tests.ray_kit import TwoNodes, below

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]

# A step is one row, which is its checkpoint, too; at the fourth the run waits for the file `go`.
STEPS = """
def save(*_):
    print("saves", flush=True)
    time.sleep(0.7)
    (folder / "saved").touch()
    sys.exit(85)

signal.signal(signal.SIGTERM, save)
print("threads", os.environ.get("OMP_NUM_THREADS"), os.getcwd(), flush=True)
go(4, lambda i: [i, variant["x"], seed])
while not (folder.parent.parent / "go").exists():
    time.sleep(0.02)
go(8, lambda i: [i, variant["x"], seed])
"""


class Grid:
    """Grid of runs in a temporary folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path / "data/study"
        self.script = script(path, STEPS + QUICK)
        self.text = ""

    def launch(self, place: Any, n: int = 2, **options: Any) -> int:
        table = io.StringIO()
        try:
            return run_experiments(
                self.script, place, "study", n, *TWO, data_dir=self.path / "data", file=table, **options
            )
        finally:
            self.text = table.getvalue()

    def rows(self) -> list[str]:
        return [path.read_text() for path in sorted(self.folder.glob("*/run_*/progress.csv"))]

    def n_rows(self) -> list[int]:
        return [text.count("\n") - 1 for text in self.rows()]

    def processes(self) -> dict[str, psutil.Process]:
        """Return the processes that runs have now, by their folder."""
        pids = {str(path.relative_to(self.folder)): starts(path)[-1:] for path in self.folder.glob("*/run_?")}
        return {name: psutil.Process(pid) for name, some in pids.items() for pid in some if psutil.pid_exists(pid)}

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    return Grid(tmp_path)


def half_done(grid: Grid) -> bool:
    return grid.n_rows().count(4) == 2


@pytest.mark.nightly
def test_a_grid_loses_a_node_and_has_the_numbers_of_this_machine(ray_cluster: TwoNodes, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    grids = []
    for name in ("local", "ray"):
        (tmp_path / name).mkdir()
        grids.append(Grid(tmp_path / name))
    local, grid = grids
    local.folder.mkdir(parents=True)
    local.go()
    assert local.launch("1aut") == 0
    place = RayNodes("1aut")
    assert place.n_slots == 2
    lost: list[str] = []

    def remove() -> None:
        before = grid.processes()
        ray_cluster.remove_other()
        wait_until(lambda: sum(p.is_running() for p in before.values()) == 1)
        lost.extend(name for name, process in before.items() if not process.is_running())
        grid.go()

    thread = when(lambda: half_done(grid), remove)
    assert grid.launch(place, retries=0) == 0, "a lost node is no failure of the run"
    thread.join()
    assert grid.rows() == local.rows()
    assert len(grid.rows()) == 4
    [run] = lost
    name = run.replace("/run_", "/")
    assert f"{name}: node " in grid.text
    assert "was lost, and its run slots with it" in grid.text
    assert "4 finished" in grid.text
    output = (grid.folder / f"{run}.txt").read_text()
    assert output.count("threads") == 2
    assert "saves" in output, "the run on the lost node got SIGTERM"
    assert (grid.folder / run / "saved").exists(), "and the next one waited for it"
    assert f"threads 3 {os.getcwd()}" in output, "threads and directory of the launcher"
    assert output.index("saves") < output.rindex("threads")


@pytest.mark.nightly
def test_a_grid_that_has_lost_every_node_ends_with_an_error(ray_cluster: TwoNodes, grid: Grid):
    place = RayNodes("1aut")

    def remove() -> None:
        for process in below("rlpyt.launching.ray_nodes", "SlotsActor"):
            process.kill()

    thread = when(lambda: half_done(grid), remove)
    with pytest.raises(RuntimeError, match=r"every run slot was lost; 4 runs have not finished\. Bring the nodes back"):
        grid.launch(place)
    thread.join()
    assert "process of its run slots has ended with code -9" in grid.text
    assert "4 waits" in grid.text


LAUNCHER = """
import sys
from rlpyt.launching import RayNodes, run_experiments
if __name__ == "__main__":
    grid = ([{"x": 1}, {"x": 2}], ["x_1", "x_2"])
    sys.exit(run_experiments(sys.argv[1], RayNodes("1aut"), "study", 1, *grid, data_dir=sys.argv[2]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_runs_save_their_work_when_the_launcher_is_stopped_or_killed(ray_cluster: TwoNodes, grid: Grid, number, code):
    path = grid.path / "launcher.py"
    path.write_text(LAUNCHER)
    env = {**os.environ, "RAY_ADDRESS": ray_cluster.address}
    command = [sys.executable, str(path), str(grid.script), str(grid.path / "data")]
    launcher = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: half_done(grid), 40)
        runs = list(grid.processes().values())
        launcher.send_signal(number)
        text = launcher.communicate(timeout=30)[0]
        assert launcher.returncode == code, text
    finally:
        launcher.kill()
    if number == signal.SIGKILL:
        thread = when(lambda: not any(run.is_running() for run in runs), grid.go)
        assert grid.launch(RayNodes("1aut"), n=1) == 0
        thread.join()
    assert not psutil.wait_procs(runs, timeout=10)[1]
    for path in grid.folder.glob("*/run_0"):
        assert (path / "saved").exists()
        output = path.with_suffix(".txt").read_text()
        assert output.count("saves") == 1
        assert number == signal.SIGINT or output.index("saves") < output.rindex("threads")
    assert number == signal.SIGINT or grid.n_rows() == [8, 8]


@pytest.mark.nightly
def test_what_does_not_fit_a_node_is_refused_with_its_name(ray_cluster: TwoNodes):
    with pytest.raises(ValueError, match=r"node [\d.]+ \(\w{8}\): .*'4096aut' has 4096 runs side by side"):
        RayNodes("4096aut")
    with pytest.raises(ValueError, match="node_timeout is 1; expected a number of seconds above 1"):
        RayNodes(node_timeout=1)


ON_TWO_NODES = """
import runpy, sys
from tests.ray_kit import two_nodes

sys.argv = [{example!r}, "--ray", "--smoke"]
with two_nodes():
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.nightly
def test_the_example_runs_on_two_nodes(tmp_path: Path):
    """A process and a cluster of its own: after many other tests in its process Ray has ended that process."""
    code = ON_TWO_NODES.format(example=str(ROOT / "examples/grid.py"))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]


# ---- without a cluster ----


def test_without_a_cluster_or_ray_the_message_tells_what_to_do(monkeypatch):
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

    def init(**options: object) -> None:
        raise ConnectionError("none there")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(RuntimeError, match=r"RayNodes: connecting to a Ray cluster at 'auto': none there\. Start one"):
        RayNodes()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"RayNodes: the package ray was not found.*pip install rlpyt\[ray\]"):
        RayNodes()


def test_a_run_that_another_process_holds_waits_and_then_is_refused(grid: Grid):
    log_dir = grid.folder / "x_1"
    save_variant({"x": 1}, log_dir)
    first, second = NodeSlots(), NodeSlots(wait_seconds=0.3)
    assert [slots.open("1aut", False, 1) for slots in (first, second)] == [1, 1]
    run = GridRun(log_dir, 0, "x_1/0")
    first.start(0, 0, str(grid.script), run)
    wait_until(lambda: starts(run.directory))
    second.start(0, 0, str(grid.script), run)
    assert second.poll() == {}
    wait_until(second.poll)
    assert second.poll() == {0: "another process has held the run for 0.3 s; end it"}
    second.start(1, 0, str(grid.script), run)
    second.stop(1, signal.SIGTERM)
    assert second.poll()[1] == 85, "it has never started"
    grid.go()
    wait_until(first.poll)
    assert first.poll() == {0: 0}
    second.start(2, 0, str(grid.path / "none.py"), run)
    assert re.search("there is no .* on a file system of all nodes", str(second.poll()[2]))
