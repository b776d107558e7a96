"""Back end of a cluster with a job system: each run is a job of submitit, which knows SLURM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rlpyt.launching.grid import GridRun
from rlpyt.logging.files import write_json

try:
    from submitit.helpers import DelayedSubmission
except ImportError:  # optional: this class is made by submitit alone, which is there then
    DelayedSubmission = None  # type: ignore[assignment,misc]

_POLL_SECONDS = 0.2
SAVE_SECONDS = 90.0
"""Longest time in which a run saves its work when its job is preempted."""
CODE = "0slt_1aut"
"""Affinity of a job's run: all that the job system has given it."""
Result = TypeVar("Result", covariant=True)


class Job(Protocol, Generic[Result]):
    """Job of submitit."""

    job_id: str

    def done(self, force_check: bool = False) -> bool:
        """Return whether the job has ended."""

    def result(self) -> Result:
        """Return what its function has returned, or raise what has ended it."""


class Executor(Protocol):
    """Executor of submitit, such as `submitit.AutoExecutor`."""

    def submit(self, fn: RunOfJob) -> Job[int]:
        """Submit a function."""


class RunOfJob:
    """Run in a job: a process of its own, which saves its work when the job is preempted.

    Args:
        command: program and arguments.
        output: file of all that the run prints.
        stop_file: file that the launcher writes a signal's number into.
    """

    def __init__(self, command: Sequence[str], output: Path, stop_file: Path) -> None:
        self._command, self._output, self._stop_file = list(command), output, stop_file
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """Run; return the exit code."""
        passed_on = ""
        with open(self._output, "ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
            )
        while (code := self._process.poll()) is None:
            with suppress(OSError):
                asked = self._stop_file.read_text()
                if asked.isdigit() and asked != passed_on:
                    passed_on = asked
                    self._process.send_signal(int(asked))
            time.sleep(_POLL_SECONDS)
        return code

    def checkpoint(self) -> object:
        """Let the run save its work, and return the same run for the requeued job; submitit calls it on preemption."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(SAVE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
        return DelayedSubmission(RunOfJob(self._command, self._output, self._stop_file))


class SubmittedRun:
    """Run whose job was submitted.

    Args:
        job: of submitit.
        stop_file: which the job looks at.
    """

    def __init__(self, job: Job[int], stop_file: Path) -> None:
        self._job, self._stop_file = job, stop_file

    def poll(self) -> int | None:
        """Return the exit code; None while the job waits or runs. A job that was lost has failed with code 1."""
        if not self._job.done():
            return None
        try:
            return self._job.result()
        except Exception as error:  # of many kinds: the job was cancelled, its node was lost, or its files are gone
            print(f"The job {self._job.job_id} has no result: {error}", file=sys.stderr)
            return 1

    def stop(self, signum: int) -> None:
        """Send a signal."""
        self._stop_file.write_text(str(int(signum)))


class ClusterSlots:
    """Run slots of a cluster: so many jobs wait or run at once.

    A job that is preempted saves a checkpoint, and submitit puts it into the queue again. Jobs outlive a launcher that
    is killed; the next one goes on watching them. Grid and library must be on a file system that all nodes share.

    Args:
        executor: of submitit, with time, cores, GPUs and memory of a job.
        n_slots: jobs at once.

    Raises:
        ValueError: if there is no slot.
    """

    def __init__(self, executor: Executor, n_slots: int) -> None:
        if n_slots < 1:
            raise ValueError(f"ClusterSlots: n_slots is {n_slots}; expected 1 or more. Correct it.")
        self._executor, self.n_slots = executor, n_slots

    def start(self, slot: int, run: GridRun, script: str, inherited: int) -> SubmittedRun:
        """Submit a run."""
        run.log_dir.mkdir(parents=True, exist_ok=True)
        stop_file = run.log_dir / f"run_{run.run_ID}.stop"
        stop_file.unlink(missing_ok=True)
        command = [sys.executable, script, CODE, str(run.log_dir), str(run.run_ID), *run.args]
        job = self._executor.submit(RunOfJob(command, run.output, stop_file))
        write_json(run.log_dir / f"run_{run.run_ID}.job", {"job_id": job.job_id})
        return SubmittedRun(job, stop_file)
