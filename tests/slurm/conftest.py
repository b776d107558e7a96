"""What a case on a cluster has: a node, a folder, the numbers that its run should have, and questions to SLURM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

from rlpyt.logging import load_snapshot, read_progress
from rlpyt.run_records import read_json
from tests.markdown import ROOT

HERE = Path(__file__).parent
TIMED = ("Time", "PerSecond", "Seconds", "Fraction")


class Case:
    """One case: a node of its own, with partitions `debug<n>`, `low<n>` and so on, and an empty folder.

    Args:
        folder: of the case.
        number: of the node.
        reference: makes a run of study.py that nobody has disturbed, by seed and options, and returns its directory.
    """

    def __init__(self, folder: Path, number: int, reference: Callable[..., Path]) -> None:
        self.folder, self.number, self._reference = folder, number, reference
        self.env = {
            **os.environ,
            "GO": str(folder / "go"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.env["PYTHONPATH"] = f"{ROOT}:{HERE}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def go(self) -> None:
        """Let the runs of the case end as fast as they can."""
        (self.folder / "go").touch()

    def ask(self, *command: str, check: bool = True) -> str:
        """Return what a client of SLURM says."""
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not check, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def submit(self, script: str, *options: str, kind: str = "debug") -> str:
        """Submit a script; return the number of its job."""
        path = self.folder / "script.sh"
        path.write_text(script)
        partition = f"--partition={kind}{self.number}"
        return self.ask("sbatch", "--parsable", partition, "--output=job.txt", *options, str(path)).split(";")[0]

    def preempt(self) -> str:
        """Take the whole node for a job of three seconds, as someone with more rights would."""
        cpus = f"--cpus-per-task={os.cpu_count()}"
        options = (cpus, "--time=1", "--output=/dev/null", "--wrap=sleep 3")
        return self.ask("sbatch", "--parsable", f"--partition=high{self.number}", *options)

    def disturb(self, cause: str, job: str) -> None:
        """Do something to a job that runs."""
        match cause:
            case "requeue":
                self.ask("scontrol", "requeue", job)
            case "node down":
                self.ask("scontrol", "update", f"nodename=n{self.number}", "state=down", "reason=test")
                time.sleep(3)
                # Refused where SLURM has heard of the node again.
                self.ask("scontrol", "update", f"nodename=n{self.number}", "state=resume", check=False)
            case "scancel":
                self.ask("scancel", job)
            case _:
                self.preempt()

    def state(self, job: str) -> str:
        """Return state and reason of a job, such as "PENDING BeginTime"."""
        return self.ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T %r", check=False)

    def accounts(self, job: str) -> list[str]:
        """Return state and exit code of each start of a job, as accounting has them."""
        options = ("--duplicates", "--allocations", "--noheader", "--parsable2", "--format=state,exitcode")
        return [line.replace("|", " ") for line in self.ask("sacct", f"--jobs={job}", *options).splitlines()]

    def until(self, is_so: Callable[[], object], seconds: float, what: str = "it") -> None:
        """Wait for something."""
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, f"{what}: not after {seconds:.0f} s.\n{self.all_that_is_known()}"
            time.sleep(0.3)

    def until_rows(self, run_dir: Path, n: int = 2) -> None:
        """Wait until a run has so many rows."""
        self.until(lambda: n_rows(run_dir) >= n, 300, f"{n} rows")

    def until_ended(self, job: str, seconds: float = 400) -> None:
        """Wait until SLURM does not have a job start, run or end any more."""
        going = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING")
        self.until(lambda: not self.state(job).startswith(going), seconds, f"the end of job {job}")

    def assert_accounts(self, job: str, *expected: str) -> None:
        """Fail unless accounting, which lags behind, comes to have these states and exit codes of a job's starts."""
        self.until(lambda: self.accounts(job) == list(expected), 60, f"{', '.join(expected)} in accounting")

    def assert_undisturbed(self, run_dir: Path, *options: str) -> None:
        """Fail unless the run has finished with the rows and the weights of one that nobody has disturbed."""
        run_ID = int(run_dir.name.removeprefix("run_"))
        reference = self._reference(run_ID, *options)
        assert status(run_dir) == "finished", self.all_that_is_known()
        rows, expected = read_progress(run_dir), read_progress(reference)
        assert rows.keys() == expected.keys()
        for name in expected:
            if not any(word in name for word in TIMED):
                np.testing.assert_array_equal(rows[name], expected[name], name)
        mine, its = (load_snapshot(d / "params.pkl")["agent_state_dict"] for d in (run_dir, reference))
        assert_equal(mine, its)

    def end_all(self) -> None:
        """End the processes and the jobs of the case."""
        for process in self.processes:
            process.kill()
            process.wait()
        listed = self.ask("squeue", "--noheader", "--format=%i %P", check=False).splitlines()
        for job in (line.split()[0] for line in listed if line.endswith(str(self.number))):
            self.ask("scancel", "--full", "--signal=KILL", job, check=False)
            self.ask("scancel", job, check=False)
        self.until(lambda: not self.ask("squeue", "--noheader", f"--nodelist=n{self.number}"), 60, "an empty node")

    def all_that_is_known(self) -> str:
        """Return the ends of all texts of the case, for a message."""
        jobs = self.ask("squeue", "--states=all", "--format=%i %P %j %T %r", check=False)
        texts = [p for p in sorted(self.folder.rglob("*")) if p.suffix in (".txt", ".out", ".err", ".job", ".exit")]
        return "\n".join([jobs, *(f"--- {p}\n{p.read_text(errors='replace')[-1500:]}" for p in texts)])


def printed_scripts(page: str) -> list[str]:
    """Return the batch scripts that a page of the docs prints."""
    found = re.findall(r"( {4}#!/bin/bash\n(?: {4}.*\n)+)", (ROOT / "docs" / page).read_text())
    return [textwrap.dedent(script) for script in found]


def assert_equal(mine: object, its: object) -> None:
    """Fail unless two nests of tensors are the same ones."""
    if isinstance(its, dict):
        assert isinstance(mine, dict)
        assert mine.keys() == its.keys()
        for key in its:
            assert_equal(mine[key], its[key])
    elif isinstance(its, torch.Tensor):
        assert isinstance(mine, torch.Tensor)
        assert torch.equal(mine, its)
    else:
        assert mine == its


def n_rows(run_dir: Path) -> int:
    """Return how many rows a run has written."""
    progress = run_dir / "progress.csv"
    return len(progress.read_text().splitlines()) - 1 if progress.exists() else 0


def status(run_dir: Path) -> object:
    """Return how a run says that it has ended."""
    return read_json(run_dir / "status.json")[0].get("status")


@pytest.fixture(scope="session")
def reference() -> Callable[..., Path]:
    """Return a function that makes a run without SLURM, once for all tests, and returns its directory."""

    def run_dir_of(run_ID: int, *options: str) -> Path:
        place = Path(os.environ["RLPYT_SLURM"], "_".join(["reference", *options]))
        run_dir = place / f"run_{run_ID}"
        with FileLock(f"{place}_{run_ID}.lock"):
            if status(run_dir) != "finished":
                env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{HERE}"}
                subprocess.run([sys.executable, HERE / "study.py", place, str(run_ID), *options], env=env, check=True)
        return run_dir

    return run_dir_of


@pytest.fixture
def case(tmp_path: Path, reference: Callable[..., Path]) -> Iterator[Case]:
    """Yield a case, and end its jobs and its processes."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    number = int(worker.removeprefix("gw")) + 1
    case = Case(tmp_path, number, reference)
    yield case
    case.end_all()


def pytest_sessionstart() -> None:
    """Refuse to run beside a SLURM that is not ours."""
    if "RLPYT_SLURM" not in os.environ:
        pytest.exit("tests/slurm needs a SLURM of its own: make slurm", returncode=2)
