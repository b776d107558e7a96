"""Grids on a cluster: what a job does at a signal, what a launcher makes of its jobs, and what it submits.

SLURM says here what a test lets it say. What a real one says, and whole grids on it, are in tests/slurm.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlpyt.launching import ClusterSlots, cluster, run_experiments
from rlpyt.launching import job as of_job
from rlpyt.launching.back_end import RunRefused
from rlpyt.launching.grid import GridRun
from rlpyt.launching.job import RunOfJob
from rlpyt.launching.job_files import JobFiles
from rlpyt.slurm import JobState
from tests.launching.kit import ONE, QUICK, put_programs, script, starts, wait_until, when
from tests.pairs import crossed

submitit = pytest.importorskip("submitit")
TERM, INT, USR1, USR2 = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2
RUNS, WAITS, CANCELLED = JobState("RUNNING"), JobState("PENDING", "Priority"), JobState("CANCELLED")
ENDS = JobState("COMPLETING")

SAVES = """
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), finish("interrupted", 85)))
n_starts == 1 and wait()
"""
"""A run whose first start ends by a signal, once it has saved its work."""
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nn_starts == 1 and wait()\n"
SLOW = """
while not pathlib.Path(log_dir, "finish").exists():
    time.sleep(0.05)
finish("finished", 0)
"""


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class Disk:
    """Folder of a run, and the files by which its launcher and its jobs know of each other."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "data/study/x_1"
        self.folder.mkdir(parents=True)
        (self.folder / "variant_config.json").write_text('{"x": 1}')
        self.run = GridRun(self.folder, 0, "x_1/0")
        self.files = JobFiles(self.run)

    @property
    def n_starts(self) -> int:
        return len(starts(self.folder / "run_0"))

    @property
    def status(self) -> str:
        return str(json.loads((self.folder / "run_0/status.json").read_text())["status"])

    @property
    def printed(self) -> str:
        return self.run.output.read_text() if self.run.output.exists() else ""


# ---- in a job ----


class Job(Disk):
    """Job of a run in this process, as SLURM starts it one or more times."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.path = tmp_path
        self.files.begin("token", "1")
        self.says: JobState | None = RUNS
        self.refusal = ""
        self.saved_when_requeued: list[bool] = []

    def requeue(self, job_id: str) -> str:
        self.saved_when_requeued.append((self.folder / "run_0/status.json").exists())
        return self.refusal

    def __call__(self, rest: str, *actions: int | Callable[[], object]) -> int:
        """Start the job, send it signals or do something when its run has begun, and return its exit code."""
        path, before = script(self.path, rest), self.n_starts

        def send() -> None:
            for action in actions:
                action() if callable(action) else os.kill(os.getpid(), action)
                time.sleep(0.2)

        thread = when(lambda: self.n_starts > before, send) if actions else None
        try:
            return RunOfJob(str(path), self.run, self.files, "token")()
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            if thread is not None:
                thread.join()

    @property
    def told(self) -> int | None:
        """The exit code that the launcher sees."""
        return self.files.exit_code("token")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(tmp_path)
    for name, value in (("SUBMITIT_EXECUTOR", "slurm"), ("SLURM_JOB_ID", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(of_job, "states_of", lambda _: {"1": made.says} if made.says is not None else None)
    monkeypatch.setattr(of_job, "requeue", made.requeue)
    monkeypatch.setattr(of_job, "_LOOK_SECONDS", 0.05)
    handlers = {signum: signal.getsignal(signum) for signum in (TERM, USR1, USR2)}
    yield made
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize(
    ("signum", "says", "saved_when_requeued", "code", "told"),
    [
        (USR2, RUNS, [True], 85, None),
        pytest.param(USR1, RUNS, [True], 85, None, marks=pytest.mark.nightly),
        (TERM, RUNS, [True], 85, None),
        (USR2, None, [True], 85, None),
        pytest.param(TERM, JobState("COMPLETING", "TimeLimit"), [False], 85, None, marks=pytest.mark.nightly),
        (TERM, JobState("COMPLETING", restarts=1), [], 85, None),
        (TERM, ENDS, [], 128 + TERM, -TERM),
    ],
    ids=["warned", "warned by a user", "grace", "no answer", "time is over", "requeued", "cancelled"],
)
def test_a_job_saves_its_work_at_a_signal_and_goes_on_unless_it_was_cancelled(
    job, monkeypatch, signum, says, saved_when_requeued, code, told
):
    job.says = says
    saves = SAVES.replace("0.3", "2.0") if saved_when_requeued == [False] else SAVES
    assert (job(saves, signum), job.saved_when_requeued, job.told) == (code, saved_when_requeued, told)
    assert job.status == "interrupted"
    if told is None:
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        assert (job(SAVES + QUICK), job.told, job.n_starts) == (0, 0, 2)


@pytest.mark.parametrize(("rest", "code"), [("sys.exit(7)\n", 7), (QUICK, 0), ("os.kill(os.getpid(), 15)\n", 143)])
def test_the_exit_code_of_a_job_is_that_of_its_run(job, rest, code):
    """143 is that of a run that someone has killed, which is no cancelled job."""
    assert (job("signal.signal(signal.SIGTERM, signal.SIG_DFL)\n" + rest), job.told) == (code, code)
    assert job(rest) == code, "someone has requeued the job after its end"
    assert job.n_starts == 1


def test_a_job_whose_run_another_one_has_ends(job, capfd):
    job.files.claim("token", "2")
    assert (job(QUICK), job.n_starts, job.told) == (0, 0, None)
    assert "Another job has this run" in capfd.readouterr().out


@pytest.mark.parametrize("then", [RUNS, JobState("PENDING", "BeginTime")], ids=["refused", "lost answer"])
def test_where_slurm_does_not_requeue_the_launcher_is_told(job, monkeypatch, then):
    monkeypatch.setattr(of_job, "states_of", lambda _: {"1": then if job.saved_when_requeued else RUNS})
    job.refusal = "Requested operation is presently disabled"
    assert (job(SAVES, USR2), job.told) == (85, 85 if then is RUNS else None)
    assert (f"cannot be queued again ({job.refusal})" in job.printed) == (then is RUNS)


def test_a_run_that_finishes_when_its_job_waits_again_is_finished(job):
    job.says = JobState("COMPLETING", "TimeLimit")
    finishes = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(log_dir, "deaf").touch()
while "waits again" not in pathlib.Path(log_dir, f"run_{run_ID}.txt").read_text():
    time.sleep(0.05)
"""
    is_deaf = partial(wait_until, (job.folder / "deaf").exists)
    assert (job(finishes + QUICK, is_deaf, TERM), job.told) == (0, 0)
    assert (job(QUICK), job.n_starts) == (0, 1)


def test_a_run_that_saves_too_slowly_is_ended_in_time_and_goes_on(job):
    job.says = JobState("RUNNING", end=time.time() + 11.0)
    assert (job(DEAF, USR2), job.told, len(job.saved_when_requeued)) == (85, None, 1)
    assert "Let the signal come earlier, by slurm_signal_delay_s" in job.printed


@pytest.mark.parametrize("second", ["slurm", "launcher"])
def test_a_run_that_saves_its_work_is_not_asked_again_which_would_end_it(job, second):
    saves = """
asked = []
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1) if asked else asked.append(1))
while not pathlib.Path(log_dir, "twice").exists():
    time.sleep(0.02)
time.sleep(0.3)
finish("interrupted", 85)
"""
    asks = USR2 if second == "slurm" else lambda: job.files.ask("token", TERM)
    assert job(saves, USR2, asks, (job.folder / "twice").touch) == (85 if second == "slurm" else 0)
    assert (job.status, job.told) == ("interrupted", None if second == "slurm" else 85)


def test_a_run_that_gets_nowhere_is_not_requeued_for_ever(job):
    assert [job("finish('interrupted', 85)\n") for _ in range(5)] == [85, 85, 85, 85, 1]
    assert (len(job.saved_when_requeued), job.told) == (4, 1)
    assert "kept no more than before: nothing" in job.printed


def test_a_full_disk_keeps_no_job_from_the_queue_or_from_its_run(job, monkeypatch):
    monkeypatch.setattr(JobFiles, "keep_progress", full)
    assert (job(SAVES, USR2), len(job.saved_when_requeued)) == (85, 1)
    monkeypatch.setattr("rlpyt.launching.job_files.write_json", full)
    assert [job.files.claim("token", job_id) for job_id in ("1", "2")] == ["1", "1"], "it has the run already"


# ---- at the launcher ----


class System:
    """Job system that says what a test lets it say."""

    def __init__(self) -> None:
        self.says: dict[str, JobState] = {}
        self.cancelled: list[tuple[str, bool]] = []

    def state(self, job_id: str) -> JobState | None:
        return self.says.get(job_id)

    def ask_soon(self, job_id: str) -> None:
        pass

    def cancel(self, job_id: str, waiting_only: bool = False) -> None:
        self.cancelled.append((job_id, waiting_only))


class Launcher(Disk):
    """Launcher whose jobs are not started: a test does what they would do."""

    def __init__(self, tmp_path: Path, slots: ClusterSlots) -> None:
        super().__init__(tmp_path)
        self.slots, self.system = slots, System()
        slots.system = self.system  # type: ignore[assignment]
        self.began = slots.start(0, self.run, "run.py", 0)

    def submit(self) -> str:
        """Submit the job; return its token. Its state is RUNNING."""
        self.began.poll()
        self.system.says[self.began._job_id] = RUNS
        return self.files.read()[0]

    def poll(self, seconds: float = 20.0) -> int | None:
        """Return the exit code that comes within some time."""
        end = time.monotonic() + seconds
        while (code := self.began.poll()) is None and time.monotonic() < end:
            time.sleep(0.01)
        return code

    def is_refused(self, text: str) -> None:
        with pytest.raises(RunRefused, match=text):
            self.poll()


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Folder of SLURM's programs: sbatch keeps its scripts and its environment, and runs them if `runs` is there."""
    folder = tmp_path / "slurm"
    at = shlex.quote(str(folder))
    sbatch = f"""
if [ -e {at}/refuses ]; then cat {at}/refuses >&2; exit 1; fi
n=$(($(ls {at} | grep -c '[.]batch$') + 1))
cp "$1" {at}/$n.batch; env > {at}/$n.env; cp {at}/../data/study/x_1/run_0.job {at}/$n.job
[ ! -e {at}/runs ] || SLURM_JOB_ID=$n CUDA_VISIBLE_DEVICES=7 setsid sh {at}/$n.batch > {at}/$n.out 2>&1 &
echo Submitted batch job $n
"""
    srun = 'while [ "$1" != --error ]; do shift; done; shift 2; exec "$@"'
    put_programs(folder, sbatch=sbatch, srun=srun, squeue="exit 1", scancel="exit 0")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name, value in (("LOOK", 0.02), ("SETTLE", 0.3), ("PAUSE", 0.2), ("CANCEL", 0.3)):
        monkeypatch.setattr(cluster, f"_{name}_SECONDS", value)
    return folder


def executor(tmp_path: Path, kind: str = "slurm", **parameters: Any) -> Any:
    made = submitit.AutoExecutor(tmp_path / "jobs", cluster=kind)
    made.update_parameters(**({"timeout_min": 60} | parameters))
    return made


@pytest.fixture
def launcher(tmp_path, programs):
    return Launcher(tmp_path, ClusterSlots(executor(tmp_path), 1))


def test_a_job_waits_runs_and_ends(launcher, programs):
    assert launcher.began.waiting() == ""
    token = launcher.submit()
    record = {"token": token, "job_id": "", "cluster": "slurm"}
    assert json.loads((programs / "1.job").read_text()) == record, "what the next launcher finds if this one dies now"
    launcher.system.says["1"] = WAITS
    assert (launcher.poll(0.1), launcher.began.waiting()) == (None, "PENDING, Priority")
    launcher.files.claim(token, "1")
    launcher.system.says["1"] = RUNS
    assert (launcher.poll(0.1), launcher.began.waiting()) == (None, None)
    launcher.files.end(token, 7)
    assert launcher.poll() == 7


@pytest.mark.parametrize(
    ("code", "says", "expected"),
    [
        (85, RUNS, 85),
        (85, CANCELLED, "its job 1 was cancelled"),
        (-TERM, RUNS, "the run was ended by SIGTERM"),
        (None, JobState("NODE_FAIL"), 85),
        (None, JobState("TIMEOUT"), 85),
        (None, JobState("OUT_OF_MEMORY"), 1),
        (None, CANCELLED, r"its job 1 was cancelled \(CANCELLED\)"),
    ],
)
def test_a_run_whose_job_has_ended_goes_on_if_the_run_is_not_to_blame_and_nobody_has_cancelled_it(
    launcher, tmp_path, code, says, expected
):
    token = launcher.submit()
    (tmp_path / "jobs/1_0_log.err").write_text("words of submitit\n")
    launcher.system.says["1"] = says
    if code is not None:
        launcher.files.end(token, code)
    if isinstance(expected, str):
        launcher.is_refused(expected)
    else:
        assert launcher.poll() == expected
    if code is None:
        assert f"The job 1 has ended without an exit code ({says}).\nwords of submitit" in launcher.printed


def test_a_controller_that_is_away_or_wrong_for_a_while_fails_no_run(launcher, monkeypatch):
    monkeypatch.setattr(cluster, "_SETTLE_SECONDS", 30.0)
    token = launcher.submit()
    launcher.system.says.clear()
    assert launcher.poll(0.5) is None
    for state in (JobState("FAILED"), RUNS):
        launcher.system.says["1"] = state
        assert launcher.poll(0.2) is None
    monkeypatch.setattr(cluster, "_SETTLE_SECONDS", 0.5)
    time.sleep(0.6)
    launcher.system.says["1"] = JobState("FAILED")
    assert launcher.began.poll() is None, "the while begins anew"
    (launcher.folder / "run_0").mkdir()
    (launcher.folder / "run_0/status.json").write_text('{"status": "finished"}')
    assert launcher.poll() == 0, "the disk was too full for the exit code"
    assert launcher.files.exit_code(token) is None


@pytest.mark.parametrize(("is_known", "has_begun"), crossed([True, False], [True, False], strength=1))
def test_the_next_launcher_adopts_the_job_of_one_that_was_killed(launcher, programs, is_known, has_begun):
    """A job that waits and that nobody knows loses its run, and another one is submitted."""
    token = launcher.submit()
    if not is_known:
        launcher.files.begin(token)
    if has_begun:
        launcher.files.claim(token, "1")
    launcher.began = launcher.slots.start(0, launcher.run, "run.py", 0)
    is_adopted = is_known or has_begun
    assert is_adopted or launcher.files.claim(token, "1") == "", "the job that nobody knew may begin now"
    assert launcher.poll(0.1) is None
    assert (launcher.began._job_id, len([*programs.glob("*.batch")])) == (("1", 1) if is_adopted else ("2", 2))
    assert is_adopted or launcher.files.read()[0] != token, "so that the first job ends when it starts"
    launcher.files.end(launcher.files.read()[0], 0)
    assert launcher.poll() == 0


def test_a_job_that_was_lost_while_no_launcher_lived_is_submitted_again(launcher):
    launcher.submit()
    launcher.began = launcher.slots.start(0, launcher.run, "run.py", 0)
    launcher.system.says["1"] = JobState("NODE_FAIL")
    assert (launcher.poll(0.2), launcher.system.cancelled, launcher.began._job_id) == (None, [("1", False)], "2")


# ---- Ctrl-C ----


def test_a_first_signal_cancels_a_job_that_waits_and_asks_one_that_runs(launcher):
    token = launcher.submit()
    launcher.began.stop(TERM)
    assert (launcher.poll(), launcher.system.cancelled) == (-TERM, [("1", False)])
    launcher.began = launcher.slots.start(0, launcher.run, "run.py", 0)
    token = launcher.submit()
    launcher.files.claim(token, "2")
    launcher.began.stop(TERM)
    assert launcher.files.asked(token) == TERM
    assert launcher.system.cancelled[1:] == [("2", True)], "if it waits for its next start"
    launcher.system.says["2"] = WAITS  # it was on its way into the queue
    assert launcher.poll(0.1) is None
    assert launcher.system.cancelled[2] == ("2", True)
    launcher.system.says["2"] = CANCELLED
    assert launcher.poll() == -TERM


def test_a_second_signal_cancels_every_job_once(launcher):
    token = launcher.submit()
    launcher.files.claim(token, "1")
    for signum in (TERM, INT, signal.SIGKILL, signal.SIGKILL):  # as a queue does that waits for its end
        launcher.began.stop(signum)
    assert launcher.system.cancelled == [("1", True), ("1", False)]
    assert (launcher.files.asked(token), launcher.poll()) == (INT, -INT)


def test_a_full_disk_does_not_keep_ctrl_c_from_the_jobs(launcher, monkeypatch):
    launcher.submit()
    monkeypatch.setattr(JobFiles, "claim", full)
    launcher.began.stop(TERM)
    assert launcher.system.cancelled == [("1", False)]


# ---- submission ----


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: Batch job submission failed: Invalid partition name specified",
        "sbatch: error: Batch job submission failed: Invalid license specification",
        "sbatch: option '--requeue' doesn't allow an argument",
    ],
)
def test_a_submission_that_can_never_succeed_fails_its_run_at_once_and_tells_why(launcher, programs, capfd, text):
    (programs / "refuses").write_text(text)
    launcher.is_refused(f"the job was not submitted: .*{text}")
    assert text not in capfd.readouterr().err, "sbatch's own words are in the table"


def test_a_submission_that_is_refused_for_a_while_is_tried_again(launcher, programs):
    (programs / "refuses").write_text("sbatch: error: AssocMaxSubmitJobLimit")
    assert launcher.poll(0.3) is None
    assert launcher.began.waiting() == "not submitted, sbatch: error: AssocMaxSubmitJobLimit"
    assert launcher.printed.count("The job was not submitted") == 1
    (programs / "refuses").unlink()
    wait_until(lambda: launcher.began.poll() is None and launcher.began._job_id == "1")
    launcher.began._job_id = ""
    launcher.began.stop(TERM)
    assert launcher.poll() == -TERM, "a run without a job ends at once"


def test_jobs_have_the_names_of_study_and_run_and_may_be_requeued(tmp_path, programs):
    def submitted(made: Any, title: str) -> str:
        run = GridRun(tmp_path / "data" / title / "x_1", 0, "x_1/0")
        ClusterSlots(made, 1).start(0, run, str(tmp_path / "run.py"), 0).poll()
        return max(programs.glob("*.batch")).read_text()

    made = executor(tmp_path)
    for title in ("study", "other"):
        batch = submitted(made, title)
        assert f"--job-name={title}/x_1/0\n" in batch
        assert "--requeue\n" in batch
    parameters: dict[str, Any] = dict(name="mine", slurm_additional_parameters={"no_requeue": True, "licenses": "x"})
    batch = submitted(executor(tmp_path, **parameters), "study_b")
    assert all(f"--{option}\n" in batch for option in ("job-name=mine", "licenses=x"))
    assert "--requeue\n" not in batch


def test_a_run_goes_through_slurm(tmp_path, programs, monkeypatch):
    """A user's own variables of sbatch serve where the executor says nothing, and those of a job do not."""
    (programs / "runs").touch()
    for name, value in (("ACCOUNT", "me"), ("PARTITION", "cpu")):
        monkeypatch.setenv(f"SBATCH_{name}", value)
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SUBMITIT_PREEMPT_SIGNAL", "USR1")
    rest = "print('device', os.environ['CUDA_VISIBLE_DEVICES'])\n" + QUICK
    code, table = launch(tmp_path, rest, slurm_partition="gpu")
    assert code == 0, table
    printed = (tmp_path / "data/study/x_1/run_0.txt").read_text()
    assert "code 0slt_1aut_1gpu" in printed
    assert "device 7" in printed
    assert "x_1/0 queued" in table
    given = (programs / "1.env").read_text()
    assert all(f"{line}\n" in given for line in ("SBATCH_ACCOUNT=me", "SUBMITIT_PREEMPT_SIGNAL=USR1"))
    assert not any(name in given for name in ("SBATCH_PARTITION", "SLURM_NTASKS"))


# ---- submitit's local executor ----


def launch(tmp_path: Path, rest: str, kind: str = "slurm", **parameters: Any) -> tuple[int, str]:
    path, table = script(tmp_path, rest), io.StringIO()
    slots = ClusterSlots(executor(tmp_path, kind, **parameters), 2)
    return run_experiments(path, slots, "study", 1, *ONE, data_dir=tmp_path / "data", file=table), table.getvalue()


LAUNCHER = "from tests.launching.test_cluster import *\nlaunch(Path({path!r}), {rest!r}, 'local')\n"


@pytest.mark.nightly
def test_the_local_executor_adopts_too(tmp_path):
    disk = Disk(tmp_path)
    text = LAUNCHER.format(path=str(tmp_path), rest=SLOW)
    first = subprocess.Popen([sys.executable, "-c", text], start_new_session=True)
    wait_until(lambda: disk.n_starts == 1)
    first.kill()
    first.wait(20)
    when(lambda: True, (disk.folder / "finish").touch)
    code, table = launch(tmp_path, SLOW, "local")
    assert (code, disk.n_starts) == (0, 1), table


# ---- bad input ----


@pytest.mark.parametrize(
    ("folder", "parameters", "n_slots", "text"),
    [
        ("", {}, 0, "n_slots is 0"),
        ("", {"nodes": 2}, 1, "nodes=2"),
        ("", {"tasks_per_node": 4}, 1, "tasks_per_node=4"),
        ("", {"slurm_additional_parameters": {"ntasks": 2}}, 1, "ntasks=2"),
        ("", {"slurm_additional_parameters": {"array": "0-3"}}, 1, "array=0-3"),
        ("50%", {}, 1, "without the sign %"),
        ("", {"kind": "debug"}, 1, "is for 'debug'"),
    ],
)
def test_wrong_slots_are_refused(tmp_path, programs, folder, parameters, n_slots, text):
    with pytest.raises(ValueError, match=text):
        ClusterSlots(executor(tmp_path / folder, **parameters), n_slots)
    ClusterSlots(executor(tmp_path / "%j"), 1)


def test_what_is_no_executor_is_refused_and_a_missing_submitit_is_named(monkeypatch):
    with pytest.raises(TypeError, match=r"expected a submitit\.AutoExecutor"):
        ClusterSlots("slurm", 1)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[cluster\]"):
        ClusterSlots("slurm", 1)  # type: ignore[arg-type]
