"""Answers of SLURM about jobs: about one at the moment of a signal, and about all those that a launcher watches."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

_ANSWER_SECONDS = 60.0
_ASK_SECONDS = 30.0
"""Time from one question to the next: one for all jobs, as a controller serves a whole site."""
_FIELDS = ("JobID", "State", "Reason", "RestartCnt", "PreemptTime", "EndTime")
_OVER = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
_UNKNOWN = "UNKNOWN"
_AT_WORK = frozenset(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"))


@dataclass(frozen=True)
class JobState:
    """State of a job, as SLURM tells it."""

    name: str
    """Such as PENDING, RUNNING or TIMEOUT; UNKNOWN for a job that SLURM has forgotten."""
    reason: str = ""
    """Why the job waits or has ended, such as Priority or TimeLimit."""
    restarts: int = 0
    """How often the job was requeued."""
    is_preempted: bool = False
    """Whether a job of higher priority takes the place of this one."""
    end: float | None = None
    """Time at which SLURM ends the job, in seconds since 1970."""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, and does not wait for another start."""
        return self.name in _OVER or self.name == _UNKNOWN

    @property
    def waits(self) -> bool:
        """Whether the job is in the queue."""
        return not self.is_over and self.name not in _AT_WORK

    def __str__(self) -> str:
        """Return state and reason, as "PENDING, Priority"."""
        return ", ".join(filter(None, (self.name, self.reason)))


# ---- at the moment of a signal ----


class Ending(NamedTuple):
    """Cause of a signal that SLURM sends to a job. What becomes of the run is a table in docs/howto/launching.md."""

    cause: str
    """Who sends the signal, and why."""
    requeue: Literal["never", "by SLURM", "at once", "when saved"]
    """Who puts the job into the queue again: SLURM has done it, or the job asks for it at once or at its end."""


CANCELLED = Ending("scancel ID, by you or an administrator", "never")
REQUEUED = Ending("scontrol requeue, preemption without grace, a node that is taken down", "by SLURM")
TIME_IS_OVER = Ending(
    "the time of the job is over, or it is preempted without grace where PreemptMode is CANCEL", "at once"
)
WARNED = Ending(
    "the signal before the end of the time, preemption with a grace time, scancel --signal=TERM", "when saved"
)


def ending_of(state: JobState | None, restarts: int) -> Ending:
    """Return what SLURM does to a job that has got a signal, by its state now and its restarts when it started."""
    if state is None or state.name in ("RUNNING", "SIGNALING"):
        return WARNED
    if state.restarts > restarts or state.waits:
        return REQUEUED
    return TIME_IS_OVER if state.is_preempted or state.reason else CANCELLED


def requeue(job_id: str) -> str:
    """Put this job into the queue again; return why SLURM refuses, "" if it does not."""
    code, _, errors = _called("scontrol", "requeue", job_id)
    return "" if code == 0 else errors or "scontrol gave no reason"


# ---- all jobs of a launcher ----


class Slurm:
    """SLURM as the job system of a launcher, which asks it at times, in one call for all jobs."""

    def __init__(self) -> None:
        self._states: dict[str, JobState] = {}
        self._wanted: set[str] = set()
        self._ask_at = 0.0
        self._question: threading.Thread | None = None
        self._cancelling: list[subprocess.Popen[bytes]] = []

    def state(self, job_id: str) -> JobState | None:
        """Return what SLURM has last said of a job; None before it has.

        It never waits: a controller that is away takes a minute to say nothing.
        """
        self._wanted.add(job_id)
        is_asking = self._question is not None and self._question.is_alive()
        if not is_asking and time.monotonic() > self._ask_at:
            self._ask_at = time.monotonic() + _ASK_SECONDS
            self._question = threading.Thread(target=self._ask, args=(self._wanted,), daemon=True)
            self._wanted = set()  # those that are asked for until the next question
            self._question.start()
        return self._states.get(job_id)

    def _ask(self, job_ids: set[str]) -> None:
        self._states.update(states_of(job_ids) or {})

    def ask_soon(self, job_id: str) -> None:
        """Forget what is known of a job, and ask in a second."""
        self._states.pop(job_id, None)
        self._ask_at = min(self._ask_at, time.monotonic() + 1.0)

    def cancel(self, job_id: str, waiting_only: bool = False) -> None:
        """End a job, or take it out of the queue only if it waits there; this does not wait either."""
        command = ["scancel", *(["--state=PENDING"] if waiting_only else []), job_id]
        null = subprocess.DEVNULL
        with suppress(OSError):
            process = subprocess.Popen(
                command, stdin=null, stdout=null, stderr=null, start_new_session=True, env=_environment()
            )
            self._cancelling.append(process)
        self.ask_soon(job_id)


def states_of(job_ids: Iterable[str]) -> dict[str, JobState] | None:
    """Return what SLURM says of jobs; None if it does not answer.

    The controller knows a job until some minutes after its end, and accounting, where a site has it, for ever.
    """
    wanted = list(job_ids)
    code, text, errors = _called(
        "squeue", "--noheader", "--states=all", f"--jobs={','.join(wanted)}", "--Format", ":|,".join(_FIELDS) + ":|"
    )
    if code and "Invalid job id" not in errors:
        return None
    rows = [dict(zip(_FIELDS, map(str.strip, line.split("|")), strict=False)) for line in text.splitlines()]
    found = {row["JobID"]: _state(row) for row in rows if len(row) == len(_FIELDS)}
    forgotten = [job_id for job_id in wanted if job_id not in found]
    return found | (_of_accounting(forgotten) if forgotten else {})


def _of_accounting(job_ids: list[str]) -> dict[str, JobState]:
    _, text, _ = _called("sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", ",".join(job_ids))
    found = dict.fromkeys(job_ids, JobState(_UNKNOWN, "SLURM knows this job no more"))
    for line in text.splitlines():
        job_id, _, state = line.partition("|")
        name, _, reason = state.partition(" ")  # such as "CANCELLED by 1000"
        if job_id in found and name in _OVER:
            found[job_id] = JobState(name, reason)
    return found


def _state(row: Mapping[str, str]) -> JobState:
    restarts, end = row["RestartCnt"], row["EndTime"]
    return JobState(
        row["State"],
        "" if row["Reason"] == "None" else row["Reason"],
        int(restarts) if restarts.isdigit() else 0,
        row["PreemptTime"][:1].isdigit(),
        datetime.fromisoformat(f"{end}+00:00").timestamp() if end[:1].isdigit() else None,
    )


def _called(*command: str) -> tuple[int, str, str]:
    """Return exit code, output and errors of a program of SLURM; 127 if it is missing or does not answer."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
            env=_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr.strip()


def _environment() -> dict[str, str]:
    """Return the environment without a user's own filters and formats, such as SQUEUE_PARTITION, in UTC."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SQUEUE_", "SACCT_", "SCANCEL_"))}
    return {**kept, "SLURM_TIME_FORMAT": "standard", "TZ": "UTC0"}  # local times have an hour twice a year
