"""Run in a job of a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from rlpyt.launching.affinity import job_affinity_code
from rlpyt.launching.grid import GridRun, Progress
from rlpyt.launching.job_files import JobFiles
from rlpyt.launching.local import end_with_parent, start_process
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.slurm import CANCELLED, WARNED, Ending, ending_of, requeue, states_of

_LOOK_SECONDS = 1.0
_QUEUE_SECONDS = 10.0
"""Time before the end of a job in which it asks for its place in the queue."""


class RunOfJob:
    """Run in a job: a process of its own, which saves its work when SLURM ends the job.

    The job ends with the exit code of the run, and with 85 if the run is to go on. Then it stands in the queue again
    under its own number, or, where SLURM refuses that, the launcher submits another job. It shares files with the
    launcher, and the token is that of its submission.
    """

    def __init__(self, script: str, run: GridRun, files: JobFiles, token: str) -> None:
        self._script, self._run, self._files, self._token = script, run, files, token
        self._job_id, self._is_slurm = "", False
        self._process: subprocess.Popen[bytes] | None = None
        self._n_told = 0
        self._is_asked_to_save = False
        self._end: float | None = None
        self._is_queued_again = False

    def __call__(self) -> int:
        """Run; return 0 if the run has finished, or was stopped by the launcher, and else exit with its code."""
        from submitit import JobEnvironment

        environment = JobEnvironment()
        self._job_id, self._is_slurm = str(environment.job_id), environment.cluster == "slurm"
        if self._files.read()[0] != self._token or self._files.claim(self._token, self._job_id) != self._job_id:
            print("Another job has this run: this one ends.", flush=True)
            return 0
        code = self._files.exit_code(self._token)
        if code is not None:  # someone has requeued the job after the end of its run
            print(f"The run of this job has ended with exit code {code}: this job ends.", flush=True)
        else:
            _handle_signals(self._tell)  # submitit's own handler counts time limits, and gives up after three
            code = 1
            try:
                code = self._exit_code()
            finally:
                self._kill()
                if not self._is_queued_again or code == 0:  # it may finish after all, once the job waits again
                    self._files.end(self._token, code)
        if code == 0 or self._files.asked(self._token):
            return 0
        raise SystemExit(code if code > 0 else 128 - code)

    def _exit_code(self) -> int:
        """Run; return the exit code, 85 if the run goes on, -SIGTERM if the job was cancelled."""
        if self._files.asked(self._token):
            return PREEMPTED
        code = self._run_to_its_end()
        is_cut_short = code == PREEMPTED or (self._n_told > 0 and code not in (0, 1))
        if code == -signal.SIGTERM and not is_cut_short:  # by someone's kill: the negative one says that SLURM did it
            return 128 + signal.SIGTERM
        if not is_cut_short or self._files.asked(self._token):
            return code
        ending = self._look()
        return -signal.SIGTERM if ending is CANCELLED else self._go_on(ending)

    def _run_to_its_end(self) -> int:
        self._process = start_process(self._run, self._script, job_affinity_code(), {}, _prepare)
        passed_on = n_looked = 0
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(_LOOK_SECONDS)
            asked = self._files.asked(self._token)
            if asked != passed_on:
                passed_on = asked
                if asked != signal.SIGTERM:
                    self._send(asked)
            if self._n_told or asked == signal.SIGTERM:  # a signal may have come before there was a process
                self._ask_to_save()
            if n_looked < self._n_told and not asked:
                n_looked = self._n_told
                ending = self._look()
                self._say(f"got a signal ({ending.cause}): its run saves its work")
                if ending.requeue == "at once":
                    self._go_on(ending)
            if self._end is not None and time.time() > self._end - _QUEUE_SECONDS:
                self._say(
                    f"ends in {_QUEUE_SECONDS:g} s, and its run has not saved its work: it goes on from an older "
                    "checkpoint, if there is one. Let the signal come earlier, by slurm_signal_delay_s"
                )
                self._end = None
                self._kill()

    # ---- what SLURM does ----

    def _tell(self, signum: int, frame: FrameType | None) -> None:
        self._n_told += 1
        self._ask_to_save()

    def _ask_to_save(self) -> None:
        """Ask the run to save its work, once: the warning of SLURM, its next one and the launcher may all come.

        A second SIGTERM would end the run at once. SLURM may have sent the first one too; a run counts both as one.
        """
        if self._process is not None and not self._is_asked_to_save:
            self._is_asked_to_save = True
            self._send(signal.SIGTERM)

    def _look(self) -> Ending:
        """Ask SLURM what it does to the job."""
        state = (states_of([self._job_id]) or {}).get(self._job_id) if self._is_slurm else None
        ending = ending_of(state, int(os.environ.get("SLURM_RESTART_COUNT", 0)))
        self._end = state.end if state is not None and ending is WARNED else None
        return ending

    def _go_on(self, ending: Ending) -> int:
        """Put the job into the queue again, unless SLURM has; return 85, or 1 if the run gets nowhere."""
        if ending.requeue == "by SLURM" or self._is_queued_again:
            self._is_queued_again = True
            return PREEMPTED
        progress = Progress(**self._files.progress(self._token))
        if not progress.goes_on(self._run.steps_kept()):
            self._say(progress.told())
            return 1
        with suppress(OSError):  # a full disk is no reason to leave the queue
            self._files.keep_progress(self._token, progress)
        _handle_signals(signal.SIG_IGN)  # SLURM ends a job that it puts into the queue again
        refusal = requeue(self._job_id) if self._is_slurm else "it is no job of SLURM"
        if refusal and self._look().requeue == "by SLURM":  # the answer was lost, or SLURM was faster
            refusal = ""
        self._is_queued_again = not refusal
        self._say(f"cannot be queued again ({refusal}): the launcher submits another one" if refusal else "waits again")
        return PREEMPTED

    def _say(self, text: str) -> None:
        self._run.note(f"Job {self._job_id} {text}.")

    # ---- the process ----

    def _send(self, signum: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signum)  # not send_signal: its lock may be held by what this interrupts

    def _kill(self) -> None:
        """Kill what is left of the processes of the run."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Handle SIGTERM, and the signal that SLURM sends before the end of the time: submitit's, or one of a user's."""
    for name in ("TERM", "USR1", "USR2", os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")):
        signal.signal(signal.Signals[f"SIG{name}"], handler)


def _prepare() -> None:
    """Ignore submitit's signal, which SLURM sends to all processes of a job and which would end the run."""
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    end_with_parent()
