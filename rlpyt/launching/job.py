"""Run in a job of a cluster, and the files by which job and launcher know of each other."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from rlpyt.launching.local import end_with_parent
from rlpyt.logging.files import open_to_append, remove_file, write_json
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.run_records import read_json

SAVE_SECONDS = 80.0
"""Longest time in which a run saves its work when its job is preempted; submitit's signal comes 90 s before the end."""
_LOOK_SECONDS = 1.0


class JobFiles:
    """Files of a run's job beside the run: `run_<ID>.job` and those that begin with its name.

    Each submission has a token. Whoever makes the file of the token first has it: the job, or a launcher that does not
    know whether the job was submitted. So at most one of several submissions runs.

    Args:
        record: `run_<ID>.job`, written by the launcher alone.
    """

    def __init__(self, record: Path) -> None:
        self._record = record

    def begin(self, token: str, job_id: str = "") -> None:
        """Write the record: before the submission without the job's id, and after it again."""
        write_json(self._record, {"token": token, "job_id": job_id})

    def read(self) -> tuple[str, str]:
        """Return token and job id of the record; empty where there is none."""
        content = _read_json(self._record)
        return str(content.get("token", "")), str(content.get("job_id", ""))

    def claim(self, token: str, job_id: str) -> str:
        """Take a submission unless it is taken; return the job id of its owner, "" for a launcher."""
        mine, owner = self._file(token, f"claim-{os.getpid()}"), self._file(token, "claim")
        write_json(mine, {"job_id": job_id})
        try:
            os.link(mine, owner)  # one step, with the content, on network file systems too
        except FileExistsError:
            return self.owner(token) or ""
        finally:
            remove_file(mine)
        return job_id

    def owner(self, token: str) -> str | None:
        """Return the job id of a submission's owner, "" for a launcher; None if nobody has taken it."""
        owner = _read_json(self._file(token, "claim")).get("job_id")
        return None if owner is None else str(owner)

    def ask(self, token: str, signum: int) -> None:
        """Ask a job to send a signal to its run."""
        write_json(self._file(token, "stop"), {"signal": int(signum)})

    def asked(self, token: str) -> int:
        """Return the signal that was asked for; 0 for none."""
        signum = _read_json(self._file(token, "stop")).get("signal", 0)
        return signum if type(signum) is int else 0

    def end(self, token: str, code: int) -> None:
        """Write the exit code of the run."""
        write_json(self._file(token, "exit"), {"exit_code": code})

    def exit_code(self, token: str) -> int | None:
        """Return the exit code of the run; None before its end."""
        code = _read_json(self._file(token, "exit")).get("exit_code")
        return code if type(code) is int else None

    def remove(self) -> None:
        """Remove what earlier submissions have left, but for the record."""
        for file in self._record.parent.glob(f"{self._record.name}.*"):
            remove_file(file)

    def _file(self, token: str, name: str) -> Path:
        return self._record.with_name(f"{self._record.name}.{token}.{name}")


def _read_json(path: Path) -> dict[str, object]:
    return read_json(path)[0]


class RunOfJob:
    """Run in a job: a process of its own, which saves its work when the job is preempted.

    Args:
        command: program and arguments.
        output: file of all that the run prints.
        files: shared with the launcher.
        token: of this submission.
    """

    def __init__(self, command: Sequence[str], output: Path, files: JobFiles, token: str) -> None:
        self._command, self._output, self._files, self._token = list(command), output, files, token
        self._process: subprocess.Popen[bytes] | None = None
        self._was_told = False

    def __call__(self) -> int:
        """Run; return the exit code."""
        from submitit import JobEnvironment

        job_id = str(JobEnvironment().job_id)
        if self._files.read()[0] != self._token or self._files.claim(self._token, job_id) != job_id:
            print("Another job has this run: this one ends.", flush=True)
            return 0
        code = self._files.exit_code(self._token)
        if code is not None:  # the job was requeued after the end of the run
            return code
        signal.signal(signal.SIGTERM, self._tell)
        try:
            code = PREEMPTED if self._files.asked(self._token) else self._run()
            if self._was_told and code == PREEMPTED and not self._files.asked(self._token):
                signal.raise_signal(_requeue_signal())  # submitit puts the job into the queue and ends this process
        except Exception:  # the job cannot be requeued: the launcher submits another one
            self._files.end(self._token, PREEMPTED if self._was_told else 1)
            raise
        finally:
            self._kill()
        self._files.end(self._token, code)
        return code

    def _run(self) -> int:
        with open(open_to_append(self._output), "ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                process_group=0,
                preexec_fn=_prepare,
            )
        passed_on = 0
        while not self._has_ended(_LOOK_SECONDS):
            asked = self._files.asked(self._token)
            if asked != passed_on:
                passed_on = asked
                self._send(asked)
        code = self._process.wait()
        return PREEMPTED if self._was_told and code not in (0, 1) else code

    def checkpoint(self) -> object:
        """Let the run save its work, and return the same run for the requeued job; submitit calls it on preemption."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            if not self._was_told:
                self._tell(signal.SIGTERM, None)
            self._has_ended(SAVE_SECONDS)
            self._kill()
        return DelayedSubmission(RunOfJob(self._command, self._output, self._files, self._token))

    def _tell(self, signum: int, frame: FrameType | None) -> None:
        """Ask the run to save its work. SLURM may have sent it SIGTERM too; a run counts both as one request."""
        self._was_told = True
        self._send(signum)

    def _send(self, signum: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signum)  # not send_signal: its lock may be held by what this interrupts

    def _has_ended(self, seconds: float) -> bool:
        """Wait for the end of the run; this serves in a handler too, unlike `Popen.wait`, which holds a lock."""
        assert self._process is not None
        if self._process.returncode is not None:
            return True
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)

    def _kill(self) -> None:
        """Kill what is left of the processes of the run."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _requeue_signal() -> int:
    return signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]


def _prepare() -> None:
    """Ignore submitit's signal, which SLURM sends to all processes of a job and which would end the run."""
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    end_with_parent()
