"""Back end of a cluster with a job system: each run is a job of submitit, which knows SLURM."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlpyt.launching.grid import GridRun
from rlpyt.launching.job import JobFiles, RunOfJob
from rlpyt.logging.files import open_to_append

if TYPE_CHECKING:
    import submitit

CODE = "0slt_1aut"
"""Affinity of a job's run: all that the job system has given it."""
_LOOK_SECONDS = 1.0
_SETTLE_SECONDS = 30.0
"""Time until a job without an exit code is lost. Network file systems show files late, and jobs are requeued."""
_CANCEL_SECONDS = 10.0


class Job(Protocol):
    """Job of submitit."""

    @property
    def job_id(self) -> str:
        """Number in the job system."""

    def done(self) -> bool:
        """Return whether the job system knows that the job has ended."""

    def cancel(self, check: bool = True) -> None:
        """End the job."""

    def stdout(self) -> str | None:
        """Return what the job has printed."""

    def stderr(self) -> str | None:
        """Return the errors that the job has printed."""


class LocalController:
    """Job of submitit's local executor that another launcher has started.

    Args:
        folder: of the executor.
        job_id: process of the job.
    """

    def __init__(self, folder: Path, job_id: str) -> None:
        import submitit

        self.job_id = job_id
        self._job = submitit.LocalJob[int](folder, job_id)

    def done(self) -> bool:
        """Return whether the process has ended; its number may be another process's by then."""
        try:
            return b"submitit.local" not in Path(f"/proc/{self.job_id}/cmdline").read_bytes()
        except OSError:
            return True

    def cancel(self, check: bool = True) -> None:
        """End the process."""
        if not self.done():
            os.kill(int(self.job_id), signal.SIGINT)

    def stdout(self) -> str | None:
        """Return what the job has printed."""
        return self._job.stdout()

    def stderr(self) -> str | None:
        """Return the errors that the job has printed."""
        return self._job.stderr()


class SubmittedRun:
    """Run whose job was submitted.

    Args:
        job: of submitit.
        run: of the grid.
        files: shared with the job.
        token: of the submission.
    """

    def __init__(self, job: Job, run: GridRun, files: JobFiles, token: str) -> None:
        self._job, self._run, self._files, self._token = job, run, files, token
        self._look_at = 0.0
        self._over_since: float | None = None
        self._has_begun = False
        self._stopped: int | None = None
        self._cancelled_at: float | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while the job waits or runs. A job that was lost has failed with code 1."""
        now = time.monotonic()
        if self._stopped is not None:
            return self._stopped
        if now < self._look_at:
            return None
        self._look_at = now + _LOOK_SECONDS
        self._has_begun = self._has_begun or bool(self._files.owner(self._token))
        code = self._files.exit_code(self._token)
        if code is not None:
            return code
        if self._cancelled_at is not None:
            return -signal.SIGINT if now > self._cancelled_at + _CANCEL_SECONDS else None
        return self._lost(now)

    def _lost(self, now: float) -> int | None:
        """Return 1 if the job has ended without an exit code, and still has after some time."""
        if not self._job.done():
            self._over_since = None
            return None
        if self._over_since is None:
            self._over_since = now
            self._look_at = now + _SETTLE_SECONDS
            _ask_again()
            return None
        if now < self._over_since + _SETTLE_SECONDS:
            return None
        note(self._run, f"The job {self._job.job_id} has ended without an exit code.", self._job)
        return 1

    def has_begun(self) -> bool:
        """Return whether the job has left the queue."""
        return self._has_begun

    def stop(self, signum: int) -> None:
        """Send a signal. A job that waits is cancelled, and every job is after the first signal."""
        if signum == signal.SIGTERM and self._files.claim(self._token, "") != "":
            self._files.ask(self._token, signum)
            return
        if signum == signal.SIGTERM:
            self._stopped = -signum
        elif self._cancelled_at is None:
            self._files.ask(self._token, signum)
            self._cancelled_at, self._look_at = time.monotonic(), 0.0
        self._job.cancel(check=False)


class NotSubmitted:
    """Run whose job the job system has refused: it has failed after a while, so that it is not tried at once again."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _SETTLE_SECONDS

    def poll(self) -> int | None:
        """Return the exit code."""
        return 1 if time.monotonic() > self._end else None

    def has_begun(self) -> bool:
        """Return whether the job has left the queue."""
        return False

    def stop(self, signum: int) -> None:
        """End."""
        self._end = 0.0


class ClusterSlots:
    """Run slots of a cluster: so many jobs wait or run at once.

    A job that is preempted saves a checkpoint, and submitit puts it into the queue again. Jobs outlive a launcher that
    is killed; the next one goes on watching them. Grid and library must be on a file system that all nodes share.

    Args:
        executor: `submitit.AutoExecutor`, with time, cores, GPUs and memory of a job.
        n_slots: jobs at once.

    Raises:
        ImportError: if submitit is missing.
        TypeError: if the executor is something else.
        ValueError: if there is no slot, or a job has several tasks.
    """

    def __init__(self, executor: submitit.AutoExecutor, n_slots: int) -> None:
        try:
            import submitit
        except ImportError as error:
            raise ImportError("ClusterSlots: submitit is missing. Install it: pip install rlpyt[cluster]") from error
        if not isinstance(executor, submitit.AutoExecutor):
            raise TypeError(
                f"ClusterSlots: executor is {executor!r:.200}; expected a submitit.AutoExecutor. Write "
                'submitit.AutoExecutor(folder, cluster="slurm").'
            )
        if executor.cluster not in ("slurm", "local"):
            raise ValueError(f"ClusterSlots: the executor is for {executor.cluster!r}; expected 'slurm' or 'local'.")
        if type(n_slots) is not int or n_slots < 1:
            raise ValueError(f"ClusterSlots: n_slots is {n_slots!r}; expected a whole number from 1. Correct it.")
        for name in ("nodes", "tasks_per_node", "ntasks_per_node"):
            if executor.parameters.get(name, 1) != 1:
                raise ValueError(
                    f"ClusterSlots: the executor has {name}={executor.parameters[name]}; expected 1, as a run is one "
                    "process with its workers. Ask for cpus_per_task and gpus_per_node."
                )
        self._executor, self.n_slots = executor, n_slots

    def start(self, slot: int, run: GridRun, script: str, inherited: int) -> SubmittedRun | NotSubmitted:
        """Submit a run, or go on watching the job that an earlier launcher has submitted for it."""
        run.log_dir.mkdir(parents=True, exist_ok=True)
        files = JobFiles(run.log_dir / f"run_{run.run_ID}.job")
        return self._adopted(run, files) or self._submitted(run, files, script)

    def _adopted(self, run: GridRun, files: JobFiles) -> SubmittedRun | None:
        token, job_id = files.read()
        if not token or files.exit_code(token) is not None:
            return None
        owner = files.owner(token)
        if owner is None and not job_id:  # the launcher died before it knew the id
            owner = files.claim(token, "")
        job_id = job_id if owner is None else owner
        if not job_id:
            return None
        job = self._job(job_id)
        if not job.done():
            return SubmittedRun(job, run, files, token)
        job.cancel(check=False)  # the job system must not start it again
        return None

    def _submitted(self, run: GridRun, files: JobFiles, script: str) -> SubmittedRun | NotSubmitted:
        from submitit.helpers import clean_env

        token = uuid.uuid4().hex
        files.begin(token)  # an earlier job that starts after this finds another token, and ends
        files.remove()
        command = [sys.executable, script, CODE, str(run.log_dir), str(run.run_ID), *run.args]
        try:
            with clean_env():  # the launcher may itself be in a job
                job = self._executor.submit(RunOfJob(command, run.output, files, token))
        except Exception as error:  # of many kinds, those of sbatch among them; other runs go on
            files.claim(token, "")
            note(run, f"The job was not submitted: {error}")
            return NotSubmitted()
        files.begin(token, job.job_id)
        return SubmittedRun(job, run, files, token)

    def _job(self, job_id: str) -> Job:
        import submitit

        folder = self._executor.folder
        if self._executor.cluster == "local":
            return LocalController(folder, job_id)
        return submitit.SlurmJob[int](folder, job_id)


def note(run: GridRun, text: str, job: Job | None = None) -> None:
    """Write a line to the output of a run, with the end of what its job has printed."""
    printed = (job.stderr() or job.stdout() or "") if job is not None else ""
    lines = [text, *printed.splitlines()[-15:]]
    with open(open_to_append(run.output), "a", encoding="utf-8") as output:
        output.write("\n".join(lines) + "\n")


def _ask_again() -> None:
    """Forget what the job system has said: submitit does not ask again about a job that was over and is requeued."""
    import submitit

    submitit.SlurmJob.watcher.clear()
