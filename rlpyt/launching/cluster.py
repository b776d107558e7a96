"""Back end of a cluster with a job system: each run is a job of submitit, which knows SLURM."""

from __future__ import annotations

import io
import os
import re
import signal
import time
import uuid
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlpyt.launching.back_end import RunRefused, Started
from rlpyt.launching.grid import GridRun
from rlpyt.launching.job import RunOfJob
from rlpyt.launching.job_files import JobFiles
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.slurm import JobState, Slurm
from rlpyt.utils.checks import whole_number
from rlpyt.utils.packages import optional_package

if TYPE_CHECKING:
    import submitit

_LOOK_SECONDS = 1.0
_SETTLE_SECONDS = 90.0
"""Time until a job without an exit code is lost. NFS may show a file a minute late, and jobs are requeued."""
_CANCEL_SECONDS = 10.0
_PAUSE_SECONDS = 30.0
"""Time from the first refusal of a job to the next try; it doubles each time."""
_LONGEST_PAUSE_SECONDS = 600.0
_FOR_GOOD = re.compile(
    r"invalid (partition|account|qos|feature|generic resource|wckey|node name|trackable|job constraint|user id)"
    r"|invalid [^\n]*specifi(ed|cation)|specification invalid|is invalid|configuration is not available"
    r"|can not be satisfied|not permitted|permission denied|processors requested|unrecognized option|invalid option"
    r"|sbatch: error: invalid"
    r"|(allow|requires) an argument",
    re.IGNORECASE,
)
"""Refusals of sbatch that waiting does not mend. All others pass: limits of jobs, a controller that is away."""
_GOES_ON = frozenset(("TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"))
"""Ends of jobs that say nothing against their runs, which go on from their checkpoints in another job."""
_PASSED_ON = ("SLURM_CONF", "SUBMITIT_PREEMPT_SIGNAL")
"""Variables that a job needs: where SLURM is, and the signal that it gets before its end."""
_USUAL = ("account", "partition", "qos", "reservation")
"""Options of sbatch for which many users have a variable, such as SBATCH_ACCOUNT."""


class LocalJobs:
    """Job system of submitit's local executor, asked like `Slurm`: each job is a process here, and none waits."""

    def state(self, job_id: str) -> JobState:
        """Return whether the process has ended; its number may be another process's by then."""
        try:
            goes_on = b"submitit.local" in Path(f"/proc/{job_id}/cmdline").read_bytes()
        except OSError:
            goes_on = False
        return JobState("RUNNING" if goes_on else "FAILED")

    def ask_soon(self, job_id: str) -> None:
        """Do nothing: the kernel always answers."""

    def cancel(self, job_id: str, waiting_only: bool = False) -> None:
        """End the process."""
        if not waiting_only and not self.state(job_id).is_over:
            with suppress(ProcessLookupError):
                os.kill(int(job_id), signal.SIGINT)


class ClusterRun(Started):
    """Run on a cluster: its job, one that an earlier launcher has submitted with this token, or the tries to submit."""

    def __init__(self, slots: ClusterSlots, run: GridRun, script: str, token: str = "", job_id: str = "") -> None:
        self._slots, self._run, self._script = slots, run, script
        self._files, self._token, self._job_id = JobFiles(run), token, job_id
        self._look_at = 0.0
        self._pause = _PAUSE_SECONDS
        self._refusal = ""
        self._is_adopted = bool(job_id)
        self._has_begun = False
        self._over_since: float | None = None
        self._asked = 0
        self._stopped: int | None = None
        self._cancelled_at: float | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while the job waits or runs. A job that was lost has failed with code 1."""
        now = time.monotonic()
        if self._stopped is not None or now < self._look_at:
            return self._stopped
        self._look_at = now + _LOOK_SECONDS
        if not self._job_id:
            return self._submit(now)
        if not self._has_begun and self._files.owner(self._token):
            self._has_begun = True
            self._slots.system.ask_soon(self._job_id)
        code = self._files.exit_code(self._token)
        if code is None and self._cancelled_at is not None:
            return -signal.SIGINT if now > self._cancelled_at + _CANCEL_SECONDS else None
        if code is None:
            return self._end_without_code(now)
        if code == -signal.SIGTERM and not self._asked:
            raise RunRefused(
                f"its job {self._job_id} was cancelled, and the run was ended by SIGTERM. Launch again to go on."
            )
        return self._unless_cancelled(code, now) if code == PREEMPTED and not self._asked else code

    def waiting(self) -> str | None:
        """Return what the job system says of a job in its queue; None once the run goes on."""
        if not self._job_id:
            return self._refusal
        state = self._slots.system.state(self._job_id)
        if state is not None and state.waits:
            return str(state)
        return None if self._has_begun else ""

    def stop(self, signum: int) -> None:
        """Send a signal. A job that waits is cancelled, and every job is after the first signal."""
        if self._cancelled_at is not None:
            return
        self._asked, waiting_only = signum, False
        with suppress(OSError):  # a full disk takes no request: the job system's own signal is one too
            waiting_only = self._ask(signum)
        if self._job_id:  # a job that has been requeued waits too, and its run has saved its work
            self._slots.system.cancel(self._job_id, waiting_only)

    def _ask(self, signum: int) -> bool:
        """Ask the job to end; return whether it may go on until its run has saved its work."""
        if signum != signal.SIGTERM:
            self._cancelled_at, self._look_at = time.monotonic(), 0.0
        is_ours = not self._token or self._files.claim(self._token, "") == ""
        if is_ours and signum == signal.SIGTERM:
            self._stopped = -signum
        elif not is_ours:
            self._files.ask(self._token, signum)
        return signum == signal.SIGTERM and not is_ours

    # ---- the end of a job ----

    def _unless_cancelled(self, code: int, now: float) -> int | None:
        """Return the code of a run that goes on in another job, when the job system has said how this one ended.

        A job that could not ask, as without `squeue` in its container, does not know that it was cancelled.
        """
        has_settled, state = self._has_settled(now), self._slots.system.state(self._job_id)
        if not has_settled and (state is None or not (state.is_over or state.waits)):
            return None
        self._refuse_cancelled(state)
        return code

    def _has_settled(self, now: float) -> bool:
        """Return whether the job has seemed to be over for some time; the job system is asked when it first does."""
        if self._over_since is None:
            self._over_since = now
            self._slots.system.ask_soon(self._job_id)
        return now > self._over_since + _SETTLE_SECONDS

    def _refuse_cancelled(self, state: JobState | None) -> None:
        if state is not None and state.name == "CANCELLED":
            raise RunRefused(f"its job {self._job_id} was cancelled ({state}). Launch again to go on.")

    def _end_without_code(self, now: float) -> int | None:
        """Return the exit code of a run whose job has ended without one, and still has after some time."""
        state = self._slots.system.state(self._job_id)
        if state is None:
            return None
        if not state.is_over:
            self._over_since, self._is_adopted = None, False
            if self._asked and state.waits:  # it was on its way into the queue when it was asked
                self._slots.system.cancel(self._job_id, waiting_only=True)
            return None
        if self._asked and (self._is_adopted or state.name == "CANCELLED"):
            return -self._asked
        if self._is_adopted:  # it was lost while no launcher lived
            self._slots.system.cancel(self._job_id)  # the job system must not start it again
            self._job_id, self._is_adopted = "", False
            return None
        if not self._has_settled(now):
            return None
        if self._run.is_finished:  # and the disk was too full for the code
            return 0
        text = f"The job {self._job_id} has ended without an exit code ({state})."
        self._run.note("\n".join([text, *self._slots.printed(self._job_id).splitlines()[-15:]]))
        self._refuse_cancelled(state)
        return PREEMPTED if state.name in _GOES_ON else 1

    # ---- the submission ----

    def _submit(self, now: float) -> int | None:
        self._token = uuid.uuid4().hex
        try:
            # An earlier job that starts after this finds another token, and ends.
            self._files.begin(self._token, cluster=self._slots.cluster)
            self._files.remove()
            self._job_id = self._slots.submit(self._script, self._run, self._files, self._token)
            self._files.begin(self._token, self._job_id, self._slots.cluster)
        except Exception as error:  # of many kinds, those of sbatch among them; other runs go on
            self._refused(error, now)
        return None

    def _refused(self, error: Exception, now: float) -> None:
        from submitit.core.utils import FailedJobError

        with suppress(OSError):
            self._files.claim(self._token, "")
        if not isinstance(error, FailedJobError) or _FOR_GOOD.search(str(error)):  # what sbatch says
            raise RunRefused(f"the job was not submitted: {error}") from error
        if not self._refusal:
            self._run.note(f"The job was not submitted, and is tried again: {error}")
        self._refusal = f"not submitted, {' '.join(str(error).split())[:200]}"
        self._look_at, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_PAUSE_SECONDS)


class ClusterSlots:
    """Run slots of a cluster: so many jobs wait or run at once.

    A job that SLURM ends saves a checkpoint, and stands in the queue again; see the table in docs/howto/launching.md.
    Jobs outlive a launcher that is killed; the next one goes on watching them. Grid and library must be on a file
    system that all nodes share.

    Args:
        executor: `submitit.AutoExecutor`, with time, cores, GPUs and memory of a job. Jobs get the name of study and
            run, unless it names them, and SLURM may requeue them.
        n_slots: jobs at once.

    Raises:
        ImportError: if submitit is missing.
        TypeError: if the executor is something else.
        ValueError: if there is no slot, or a job has several tasks.
    """

    def __init__(self, executor: submitit.AutoExecutor, n_slots: int) -> None:
        submitit = optional_package("submitit", "ClusterSlots", "cluster")
        if not isinstance(executor, submitit.AutoExecutor):
            raise TypeError(
                f"ClusterSlots: executor is {executor!r:.200}; expected a submitit.AutoExecutor. Write "
                'submitit.AutoExecutor(folder, cluster="slurm").'
            )
        if executor.cluster not in ("slurm", "local"):
            raise ValueError(f"ClusterSlots: the executor is for {executor.cluster!r}; expected 'slurm' or 'local'.")
        if re.search("%(?!j)", str(Path(executor.folder).absolute())):
            raise ValueError(
                f"ClusterSlots: the folder of the executor is {executor.folder}; expected one without the sign %, but "
                "for %j, the job's number. SLURM puts other words in its place, and such a job ends without a word. "
                "Choose another folder."
            )
        further = dict(executor.parameters.get("additional_parameters") or {})
        given = {name.replace("-", "_"): value for name, value in {**executor.parameters, **further}.items()}
        for name in ("nodes", "ntasks", "tasks_per_node", "ntasks_per_node", "array"):
            if str(given.get(name, 1)) != "1":
                raise ValueError(
                    f"ClusterSlots: the executor has {name}={given[name]}; expected 1, as a run is one process with "
                    "its workers, and a job has one run. Ask for cpus_per_task and gpus_per_node."
                )
        self.n_slots = whole_number("ClusterSlots", "n_slots", n_slots, 1)
        self._executor, self.cluster = executor, executor.cluster
        self._is_named = not {"name", "job_name"}.isdisjoint(executor.parameters)
        self.system: Slurm | LocalJobs = LocalJobs() if executor.cluster == "local" else Slurm()
        if executor.cluster == "slurm" and "no_requeue" not in given:
            executor.update_parameters(slurm_additional_parameters={"requeue": True, **further})

    def start(self, slot: int, run: GridRun, script: str, inherited: int) -> ClusterRun:
        """Submit a run at its first poll, or go on watching the job that an earlier launcher has submitted for it."""
        run.log_dir.mkdir(parents=True, exist_ok=True)
        files = JobFiles(run)
        token, job_id = files.read()
        if token and files.exit_code(token) is None:
            owner = files.owner(token)
            if owner is None and not job_id:  # the launcher died before it knew the id
                owner = files.claim(token, "")
            job_id = job_id if owner is None else owner
            if job_id:
                return ClusterRun(self, run, script, token, job_id)
        return ClusterRun(self, run, script)

    def submit(self, script: str, run: GridRun, files: JobFiles, token: str) -> str:
        """Submit a job; return its number."""
        from submitit.helpers import clean_env

        if not self._is_named:
            self._executor.update_parameters(name=f"{_title(run)}/{run.name.removeprefix('./')}")
        given = {**self._executor.parameters, **(self._executor.parameters.get("additional_parameters") or {})}
        usual = [f"SBATCH_{name.upper()}" for name in _USUAL if name not in given]
        kept = {name: os.environ[name] for name in (*_PASSED_ON, *usual) if name in os.environ}
        try:
            with clean_env(), redirect_stderr(io.StringIO()):  # in a job, perhaps; sbatch's words are in the error
                os.environ.update(kept)  # which are a user's, and not of that job
                return self._executor.submit(RunOfJob(script, run, files, token)).job_id
        finally:
            if not self._is_named:  # by the user: the executor may serve another study
                for name in ("name", "job_name"):
                    self._executor.parameters.pop(name, None)

    def printed(self, job_id: str) -> str:
        """Return what a job has printed, its errors if there are any."""
        from submitit.core.utils import JobPaths

        paths = JobPaths(self._executor.folder, job_id, 0)
        for path in (paths.stderr, paths.stdout):
            with suppress(OSError):
                if text := path.read_text(encoding="utf-8", errors="replace").strip():
                    return text
        return ""


def _title(run: GridRun) -> str:
    """Return the title of the study: the folder below which the run's own begins."""
    depth = len(Path(run.name).parent.parts)
    return (run.log_dir.parents[depth - 1] if depth else run.log_dir).name
