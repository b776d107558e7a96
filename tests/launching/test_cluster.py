"""Grids on a cluster: submitit's own executors, with a SLURM of small scripts in place of the job system.

A job starts Python twice, with torch, and most of these tests need several starts: the suite has a short one of each
kind, and the others are nightly.
"""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlpyt import slurm as system
from rlpyt.launching import ClusterSlots, cluster, run_experiments
from rlpyt.launching.grid import GridRun
from rlpyt.launching.job import RunOfJob
from rlpyt.launching.job_files import JobFiles
from tests.launching.test_run_experiments import QUICK, RUN, wait_until

submitit = pytest.importorskip("submitit")
ONE = ([{"x": 1}], ["x_1"])
nightly = pytest.mark.nightly

# The job system: a folder with a file for each job, and one process for each job, which has a session of its own. It
# does what a real SLURM was seen to do (`make slurm` has one): at an end the job is COMPLETING, its step gets SIGTERM,
# and what is left is killed after KillWait. A job whose count of restarts has risen starts once more.
SLURM = """
import contextlib, fcntl, json, os, pathlib, signal, subprocess, sys, time
slurm = pathlib.Path(__file__).resolve().parent
name, *args = sys.argv[1:]
if (slurm / ("down_" + name)).exists():
    sys.exit((slurm / ("down_" + name)).read_text() or name + ": error: Unable to contact slurm controller")

def change(job, **values):
    file, new = slurm / (job + ".json"), slurm / (job + ".new")
    with open(slurm / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = json.loads(file.read_text()) if file.exists() else {}
        job.update(values)
        new.write_text(json.dumps(job))
        new.replace(file)
    return job

def processes(session):
    found = subprocess.run(["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True).stdout.split()
    return [int(pid) for pid in found]

def send(job, signum):
    for pid in processes(change(job).get("session", 0))[1:]:  # all processes of the step; not the batch shell
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

def start(*command):
    with open(os.devnull, "w") as null:
        streams = dict(stdin=null, stdout=null, stderr=null)
        subprocess.Popen([str(slurm / command[0]), *command[1:]], **streams, start_new_session=True)

def end(job, **values):
    change(job, state="COMPLETING", **values)
    send(job, signal.SIGTERM)
    start("killwait", str(change(job).get("session", 0)))

if name == "sbatch":
    job = str(sum(1 for _ in slurm.glob("*.batch")) + 1)
    (slurm / (job + ".batch")).write_text(pathlib.Path(args[0]).read_text().replace("%j", job).replace("%t", "0"))
    change(job, state="PENDING", reason="Resources", restarts=0, preempt="N/A", end="N/A", next="", exits=[])
    start("node", job)
    print("Submitted batch job", job)
elif name == "node":
    [job], begin = args, 0.0
    while change(job)["state"] == "PENDING":
        if (slurm / "full").exists() or time.time() < begin:
            time.sleep(0.05)
            continue
        restarts = change(job, state="RUNNING", reason="None", next="")["restarts"]
        gpus = slurm / "gpus"
        env = dict(os.environ, SLURM_JOB_ID=job, CUDA_VISIBLE_DEVICES=gpus.read_text() if gpus.exists() else "")
        if restarts:
            env["SLURM_RESTART_COUNT"] = str(restarts)
        process = subprocess.Popen(["bash", str(slurm / (job + ".batch"))], env=env, start_new_session=True)
        change(job, session=process.pid)
        code = process.wait()
        now = change(job)
        state = "PENDING" if now["restarts"] > restarts else now["next"] or ("FAILED" if code else "COMPLETED")
        reason, begin = ("BeginTime", time.time() + 1.5) if state == "PENDING" else ("None", 0.0)
        change(job, state=state, reason=reason, exits=now["exits"] + [code])
elif name == "srun":
    out, err = args[args.index("--output") + 1], args[args.index("--error") + 1]
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    command = args[args.index("--error") + 2:]
    os.execvp(command[0], command)
elif name == "killwait":
    time.sleep(2 if (slurm / "short").exists() else 10)
    for pid in processes(args[0]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
elif name == "scontrol":
    now = change(args[1])
    if now["state"] == "RUNNING":
        end(args[1], restarts=now["restarts"] + 1)
    elif now["state"] == "COMPLETING" and now["reason"] == "TimeLimit":
        change(args[1], restarts=now["restarts"] + 1)
    else:
        sys.exit("slurm_suspend error: Job is in the state " + now["state"])
elif name == "scancel":
    *options, job = args
    state = change(job)["state"]
    if options == ["--state=PENDING"] and state != "PENDING":
        sys.exit(0)
    with open(slurm / "cancelled", "a") as file:
        file.write(job + " ")
    if state == "PENDING":
        change(job, state="CANCELLED", reason="None")
    elif state == "RUNNING":
        end(job, next="CANCELLED")
elif name == "timelimit":  # no program of SLURM, as the next ones
    end(args[0], reason="TimeLimit", next="TIMEOUT")
elif name == "warning":
    soon = time.time() + float(args[1])
    change(args[0], end=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(soon)))
    send(args[0], getattr(signal, (args[2:] or ["SIGUSR2"])[0]))
elif name == "grace":
    change(args[0], preempt="2026-01-01T00:00:00")
    send(args[0], signal.SIGTERM)
elif name == "squeue":
    [jobs] = [x.partition("=")[2].split(",") for x in args if x.startswith("--jobs=")]
    for job in jobs:
        if (slurm / (job + ".json")).exists():
            now = change(job)
            print(job, now["state"], now["reason"], now["restarts"], now["preempt"], now["end"], "", sep="|")
elif name == "sacct":
    for job in args[-1].split(","):
        print(job, change(job).get("state", "UNKNOWN"), sep="|")
"""
SLOW = """
for _ in range(600):
    time.sleep(0.05)
    if pathlib.Path(log_dir, "finish").exists():
        finish("finished", 0)
"""


class Slurm:
    """Job system of small scripts."""

    programs = ("sbatch", "srun", "scontrol", "scancel", "squeue", "sacct")
    own = ("node", "killwait", "timelimit", "warning", "grace")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, program: str, *arguments: object) -> None:
        """Call a program."""
        subprocess.run([self.folder / program, *map(str, arguments)], check=True)

    def job(self, job_id: int = 1) -> dict[str, Any]:
        path = self.folder / f"{job_id}.json"
        return json.loads(path.read_text()) if path.exists() else {"state": "", "session": 0}

    def set(self, state: str, job_id: int = 1) -> None:
        (self.folder / f"{job_id}.json").write_text(json.dumps(self.job(job_id) | {"state": state}))

    def state(self, job_id: int = 1) -> str:
        return str(self.job(job_id)["state"])

    def exits(self, job_id: int = 1) -> list[int]:
        """Return the exit codes of all starts of a job that is over."""
        wait_until(lambda: self.state(job_id) in ("COMPLETED", "FAILED"), 20.0)
        return list(self.job(job_id)["exits"])

    @property
    def n_jobs(self) -> int:
        return len(list(self.folder.glob("*.batch")))

    def session(self, job_id: int = 1) -> list[int]:
        """Return the processes of a job."""
        session = str(self.job(job_id).get("session", 0))
        found = subprocess.run(["ps", "-o", "pid=", "-s", session], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    folder = tmp_path / "slurm"
    folder.mkdir()
    (folder / "slurm.py").write_text(SLURM)
    python = shlex.join([sys.executable, "-S", str(folder / "slurm.py")])  # no `#!` line: it would end at a blank
    for name in Slurm.programs + Slurm.own:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {python} {name} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(cluster, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(cluster, "_SETTLE_SECONDS", 0.5)
    monkeypatch.setattr(cluster, "_PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(system, "_ASK_SECONDS", 0.5)
    slurm = Slurm(folder)
    yield slurm
    (folder / "full").unlink(missing_ok=True)
    for number in range(1, slurm.n_jobs + 1):
        slurm.set("CANCELLED", number)
        for pid in slurm.session(number):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def executor(tmp_path, kind="slurm", **parameters):
    made = submitit.AutoExecutor(tmp_path / "jobs", cluster=kind)
    made.update_parameters(**({"timeout_min": 60} | parameters))
    return made


def launch(tmp_path, rest, kind="slurm", retries=0, table=None, **parameters):
    path = tmp_path / "run.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(RUN + rest)
    table = table or io.StringIO()
    slots = ClusterSlots(executor(tmp_path, kind, **parameters), 2)
    code = run_experiments(path, slots, "study", 1, *ONE, data_dir=tmp_path / "data", file=table, retries=retries)
    return code, table.getvalue()


def folder(tmp_path):
    return tmp_path / "data/study/x_1"


def n_starts(tmp_path):
    path = folder(tmp_path) / "run_0/starts"
    return int(path.read_text() or 0) if path.exists() else 0


def when(condition, action):
    """Do something in a thread when a condition holds; the test waits in its main thread."""

    def wait():
        wait_until(condition, 60.0)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_run_goes_through_slurm(tmp_path, slurm):
    (slurm.folder / "gpus").write_text("7")
    code, table = launch(tmp_path, "print('device', os.environ['CUDA_VISIBLE_DEVICES'])\n" + QUICK)
    assert code == 0, table
    output = (folder(tmp_path) / "run_0.txt").read_text()
    assert "code 0slt_1aut_1gpu" in output
    assert "device 7" in output
    assert "x_1/0 queued" in table
    assert "1 finished" in table


# ---- what SLURM does to a job ----

SAVES = """
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), finish("interrupted", 85)))
n_starts == 1 and time.sleep(60)
"""
"""A run whose first start ends by a signal, once it has saved its work."""


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(("warning", 1, 60), marks=nightly),
        pytest.param(("warning", 1, 60, "SIGUSR1"), marks=nightly),
        pytest.param(("grace", 1), marks=nightly),
        pytest.param(("scontrol", "requeue", 1), marks=nightly),
        ("timelimit", 1),
    ],
    ids=lambda what: "-".join(map(str, what)),
)
def test_a_job_that_slurm_ends_saves_its_work_and_goes_on_under_its_number(tmp_path, slurm, what):
    thread = when(lambda: n_starts(tmp_path) == 1, lambda: slurm(*what))
    code, table = launch(tmp_path, SAVES + QUICK)
    thread.join()
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (0, 2, 1), table
    assert slurm.exits() == [85, 0]
    assert "x_1/0 queued: PENDING, BeginTime" in table


@nightly
def test_a_job_that_slurm_ends_goes_on_without_a_launcher(tmp_path, slurm):
    first = launcher(tmp_path, SAVES + QUICK)
    wait_until(lambda: n_starts(tmp_path) == 1, 60.0)
    first.kill()
    first.wait(20)
    slurm("scontrol", "requeue", 1)
    wait_until(lambda: slurm.state() == "COMPLETED", 60.0)
    assert slurm.exits() == [85, 0]
    assert launch(tmp_path, SAVES + QUICK)[0] == 0
    assert (n_starts(tmp_path), slurm.n_jobs) == (2, 1)


@nightly
def test_a_job_that_is_cancelled_stays_so_and_its_run_is_not_started_again(tmp_path, slurm):
    thread = when(lambda: n_starts(tmp_path) == 1, lambda: slurm("scancel", 1))
    code, table = launch(tmp_path, SAVES + QUICK, retries=1)
    thread.join()
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (1, 1, 1), table
    assert "its job 1 was cancelled, and the run was ended by SIGTERM" in table
    wait_until(lambda: slurm.state() == "CANCELLED", 10.0)
    assert launch(tmp_path, SAVES + QUICK)[0] == 0, "the next launch goes on"


@nightly
def test_a_cancelled_job_that_could_not_ask_slurm_is_not_submitted_again(tmp_path, slurm):
    """As in a container without SLURM's programs."""

    def cancel():
        for name in ("squeue", "scontrol"):
            (slurm.folder / f"down_{name}").write_text("not found")
        slurm("scancel", 1)
        wait_until(lambda: list(folder(tmp_path).glob("run_0.job.*.exit")), 60.0)
        (slurm.folder / "down_squeue").unlink()

    cluster._SETTLE_SECONDS = 20.0  # the fixture puts it back
    thread = when(lambda: n_starts(tmp_path) == 1, cancel)
    code, table = launch(tmp_path, SAVES + QUICK, retries=1)
    thread.join()
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (1, 1, 1), table
    assert "its job 1 was cancelled (CANCELLED)" in table


@nightly
def test_a_run_that_finishes_when_its_job_waits_again_is_not_started_again(tmp_path, slurm):
    thread = when(lambda: n_starts(tmp_path) == 1, lambda: slurm("timelimit", 1))
    finishes = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while "waits again" not in pathlib.Path(log_dir, f"run_{run_ID}.txt").read_text():
    time.sleep(0.05)
"""
    code, table = launch(tmp_path, finishes + QUICK)
    thread.join()
    assert slurm.exits() == [0, 0]
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (0, 1, 1), table


def test_a_waiting_job_that_is_cancelled_is_not_submitted_again(tmp_path, slurm):
    (slurm.folder / "full").touch()
    thread = when(lambda: slurm.state() == "PENDING", lambda: slurm("scancel", 1))
    code, table = launch(tmp_path, QUICK, retries=1)
    thread.join()
    assert (code, slurm.n_jobs) == (1, 1), table
    assert "its job 1 was cancelled (CANCELLED)" in table


@nightly
def test_a_run_that_saves_too_slowly_is_ended_in_time_and_goes_on(tmp_path, slurm):
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nn_starts == 1 and time.sleep(60)\n"
    thread = when(lambda: n_starts(tmp_path) == 1, lambda: slurm("warning", 1, 12))
    code, table = launch(tmp_path, deaf + QUICK)
    thread.join()
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (0, 2, 1), table
    assert "Let the signal come earlier, by slurm_signal_delay_s" in (folder(tmp_path) / "run_0.txt").read_text()


@nightly
@pytest.mark.parametrize("second", ["slurm", "launcher"])
def test_a_run_that_saves_its_work_is_not_asked_again_which_would_end_it(tmp_path, slurm, second):
    def twice():
        slurm("warning", 1, 60)
        wait_until((folder(tmp_path) / "saves").exists)
        slurm("warning", 1, 60) if second == "slurm" else os.kill(os.getpid(), signal.SIGINT)

    saves = """
asked = []
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1) if asked else asked.append(1))
while n_starts == 1 and not asked:
    time.sleep(0.05)
if n_starts == 1:
    pathlib.Path(log_dir, "saves").touch()
    time.sleep(3.0)
    finish("interrupted", 85)
"""
    thread = when(lambda: n_starts(tmp_path) == 1, twice)
    code, table = launch(tmp_path, saves + QUICK)
    thread.join()
    assert code == (0 if second == "slurm" else 130), table
    assert slurm.exits()[0] == (85 if second == "slurm" else 0)
    status = json.loads((folder(tmp_path) / "run_0/status.json").read_text())["status"]
    assert status == ("finished" if second == "slurm" else "interrupted")


@nightly
def test_where_slurm_does_not_requeue_the_launcher_submits_another_job(tmp_path, slurm):
    (slurm.folder / "down_scontrol").write_text("Requested operation is presently disabled")
    thread = when(lambda: n_starts(tmp_path) == 1, lambda: slurm("warning", 1, 60))
    code, table = launch(tmp_path, SAVES + QUICK)
    thread.join()
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (0, 2, 2), table
    assert "cannot be queued again (Requested operation is presently disabled)" in (
        (folder(tmp_path) / "run_0.txt").read_text()
    )


@nightly
def test_a_job_that_is_queued_again_though_the_answer_is_lost_goes_on_under_its_number(tmp_path, slurm):
    scontrol = slurm.folder / "scontrol"
    scontrol.write_text(
        f"{scontrol.read_text().replace('exec ', '')}echo 'Socket timed out on send/recv' >&2; exit 1\n"
    )
    thread = when(lambda: n_starts(tmp_path) == 1, lambda: slurm("warning", 1, 60))
    code, table = launch(tmp_path, SAVES + QUICK)
    thread.join()
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (0, 2, 1), table
    assert slurm.exits() == [85, 0]


@nightly
def test_a_run_that_gets_nowhere_is_not_requeued_for_ever(tmp_path, slurm):
    code, table = launch(tmp_path, "finish('interrupted', 85)\n")
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (1, 5, 1), table
    assert slurm.exits() == [85, 85, 85, 85, 1]
    assert "kept no more than before: nothing" in table


@nightly
def test_a_run_that_someone_has_killed_was_not_cancelled_and_is_started_again(tmp_path, slurm):
    killed = "signal.signal(signal.SIGTERM, signal.SIG_DFL)\nn_starts == 1 and os.kill(os.getpid(), signal.SIGTERM)\n"
    code, table = launch(tmp_path, killed + QUICK, retries=1)
    assert (code, n_starts(tmp_path), slurm.n_jobs) == (0, 2, 2), table
    assert "failed with exit code 143" in table


def test_a_full_disk_does_not_keep_a_job_from_the_queue(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    run = GridRun(tmp_path, 0, "x_1/0")
    job = RunOfJob("run.py", run, JobFiles.of(run), "token")
    monkeypatch.setattr(JobFiles, "keep_progress", full)
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    try:
        assert job._go_on(system.WARNED) == 85
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


def test_a_job_that_has_its_run_starts_again_on_a_full_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    files = JobFiles(tmp_path / "run_0.job")
    assert files.claim("token", "7") == "7"
    monkeypatch.setattr("rlpyt.launching.job_files.write_json", full)
    assert files.claim("token", "7") == "7"
    assert files.claim("token", "8") == "7"


@nightly
def test_a_run_that_has_finished_needs_no_exit_code(tmp_path, slurm, monkeypatch):
    monkeypatch.setattr(JobFiles, "exit_code", lambda *_: None)
    code, table = launch(tmp_path, QUICK)
    assert (code, slurm.n_jobs) == (0, 1), table


def test_a_job_that_was_submitted_by_an_older_version_runs(tmp_path):
    run = GridRun(tmp_path, 0, "x_1/0")
    old = RunOfJob("run.py", run, JobFiles.of(run), "token")
    n = len(vars(old))
    del old._end  # as if it were new
    assert len(vars(pickle.loads(pickle.dumps(old)))) == n


def test_the_exit_code_of_a_job_is_that_of_its_run(tmp_path, slurm):
    code, table = launch(tmp_path, "sys.exit(7)\n")
    assert code == 1
    assert "failed with exit code 7" in table
    assert slurm.exits() == [7]


# ---- the launcher is killed ----

LAUNCHER = """
import os, signal, sys
from tests.launching import test_cluster
from rlpyt.launching import cluster
from pathlib import Path
if {dies!r} == "between":
    class Dying(cluster.JobFiles):
        def begin(self, token, job_id="", cluster=""):
            if job_id:
                os.kill(os.getpid(), signal.SIGKILL)
            super().begin(token, cluster=cluster)
    cluster.JobFiles = Dying
test_cluster.launch(Path({path!r}), {rest!r}, {kind!r})
"""


def launcher(tmp_path, rest, dies="", kind="slurm"):
    """Start a launcher in a process of its own."""
    text = LAUNCHER.format(path=str(tmp_path), rest=rest, dies=dies, kind=kind)
    return subprocess.Popen([sys.executable, "-c", text], start_new_session=True)


@pytest.mark.parametrize("dies", ["later", pytest.param("between", marks=nightly)])
def test_the_next_launcher_adopts_the_job_of_one_that_was_killed(tmp_path, slurm, dies):
    """`between` is the time after the submission and before the job's id is known."""
    first = launcher(tmp_path, SLOW, dies)
    wait_until(lambda: n_starts(tmp_path) == 1, 60.0)
    first.kill()
    first.wait(20)
    assert bool(json.loads((folder(tmp_path) / "run_0.job").read_text())["job_id"]) == (dies == "later")
    (folder(tmp_path) / "finish").touch()
    code, table = launch(tmp_path, SLOW)
    assert (code, slurm.n_jobs, n_starts(tmp_path)) == (0, 1, 1), table
    assert "failed" not in table


@nightly
def test_a_job_that_waits_is_adopted(tmp_path, slurm):
    (slurm.folder / "full").touch()
    first = launcher(tmp_path, QUICK)
    record = folder(tmp_path) / "run_0.job"
    wait_until(lambda: record.exists() and json.loads(record.read_text())["job_id"], 60.0)
    first.kill()
    first.wait(20)
    thread = when(lambda: slurm.state() == "PENDING", (slurm.folder / "full").unlink)
    code, table = launch(tmp_path, QUICK)
    thread.join()
    assert (code, slurm.n_jobs, n_starts(tmp_path)) == (0, 1, 1), table


@nightly
def test_a_waiting_job_that_nobody_knows_does_not_run_beside_the_next_one(tmp_path, slurm):
    (slurm.folder / "full").touch()
    first = launcher(tmp_path, SLOW, "between")
    assert first.wait(60) == -signal.SIGKILL
    assert slurm.n_jobs == 1
    thread = when(lambda: slurm.n_jobs == 2, (slurm.folder / "full").unlink)
    finish = when(lambda: slurm.state(1) == "COMPLETED", (folder(tmp_path) / "finish").touch)
    code, table = launch(tmp_path, SLOW)
    thread.join()
    finish.join()
    assert (code, n_starts(tmp_path)) == (0, 1), table
    assert "Another job has this run" in (tmp_path / "jobs/1_0_log.out").read_text()


# ---- the job system fails ----


@pytest.mark.parametrize(
    ("state", "code"),
    [pytest.param("NODE_FAIL", 0, marks=nightly), pytest.param("TIMEOUT", 0, marks=nightly), ("OUT_OF_MEMORY", 1)],
)
def test_a_job_that_is_lost_goes_on_in_another_one_if_its_run_is_not_to_blame(tmp_path, slurm, state, code):
    def lose():
        processes = slurm.session()
        for pid in [slurm.job()["session"], *processes]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: slurm.state() == "FAILED")
        slurm.set(state)

    thread = when(lambda: n_starts(tmp_path) == 1, lose)
    found, table = launch(tmp_path, "n_starts == 1 and time.sleep(60)\n" + QUICK)
    thread.join()
    assert (found, slurm.n_jobs) == (code, 1 if code else 2), table
    output = (folder(tmp_path) / "run_0.txt").read_text()
    assert f"The job 1 has ended without an exit code ({state})." in output
    assert "Starting with JobEnvironment" in output, "the end of the job's own log"


@nightly
def test_a_controller_that_is_away_or_wrong_for_a_while_fails_no_run(tmp_path, slurm):
    (slurm.folder / "down_squeue").touch()

    def wrong():
        slurm.set("FAILED")
        (slurm.folder / "down_squeue").unlink()
        time.sleep(2.0)
        slurm.set("RUNNING")
        time.sleep(2.0)
        (folder(tmp_path) / "finish").touch()

    cluster._SETTLE_SECONDS = 5.0  # the fixture puts it back
    thread = when(lambda: n_starts(tmp_path) == 1, wrong)
    code, table = launch(tmp_path, SLOW)
    thread.join()
    assert (code, slurm.n_jobs, n_starts(tmp_path)) == (0, 1, 1), table
    assert "failed" not in table


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: Batch job submission failed: Invalid partition name specified",
        "sbatch: error: Batch job submission failed: Invalid license specification",
        "sbatch: option '--requeue' doesn't allow an argument",
    ],
)
def test_a_submission_that_can_never_succeed_fails_its_run_at_once_and_tells_why(tmp_path, slurm, capfd, text):
    (slurm.folder / "down_sbatch").write_text(text)
    code, table = launch(tmp_path, QUICK, retries=1)
    assert code == 1
    assert table.count(f"the job was not submitted: {text}") == 1, "no retry"
    assert text not in capfd.readouterr().err, "sbatch's own words are in the table"


def test_a_submission_that_is_refused_for_a_while_is_tried_again_and_costs_no_retry(tmp_path, slurm):
    refused = slurm.folder / "down_sbatch"
    refused.write_text("sbatch: error: AssocMaxSubmitJobLimit")
    seen = "not submitted, sbatch: error: AssocMaxSubmitJobLimit"
    table = io.StringIO()
    thread = when(lambda: seen in table.getvalue(), refused.unlink)
    code, _ = launch(tmp_path, QUICK, table=table)
    thread.join()
    assert (code, slurm.n_jobs) == (0, 1), table.getvalue()
    assert table.getvalue().count(seen) == 1
    assert (folder(tmp_path) / "run_0.txt").read_text().count("The job was not submitted") == 1


def test_ctrl_c_ends_a_run_whose_job_was_not_submitted(tmp_path, slurm):
    (slurm.folder / "down_sbatch").touch()
    output = folder(tmp_path) / "run_0.txt"
    thread = when(output.exists, lambda: os.kill(os.getpid(), signal.SIGINT))
    code, table = launch(tmp_path, QUICK)
    thread.join()
    assert code == 130
    assert "1 stopped" in table


@nightly
def test_a_failed_run_is_reported_with_its_own_last_lines(tmp_path, slurm):
    code, table = launch(tmp_path, "1 / 0\n")
    assert code == 1
    assert "failed with exit code 1" in table
    assert "ZeroDivisionError" in table


# ---- Ctrl-C ----


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=nightly)])
def test_a_signal_is_passed_on_and_a_second_one_cancels(tmp_path, slurm, times):
    def stop():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.5)

    (slurm.folder / "short").touch()
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    thread = when(lambda: n_starts(tmp_path) == 1 and slurm.state() == "RUNNING", stop)
    code, table = launch(tmp_path, (deaf if times == 2 else "") + SLOW)
    thread.join()
    assert code == 130
    assert "1 stopped" in table
    assert (slurm.folder / "cancelled").exists() == (times == 2)
    wait_until(lambda: slurm.state() == ("CANCELLED" if times == 2 else "COMPLETED"))
    assert slurm.n_jobs == 1


def test_ctrl_c_cancels_a_job_that_waits(tmp_path, slurm):
    (slurm.folder / "full").touch()
    thread = when(lambda: (folder(tmp_path) / "run_0.job").exists(), lambda: os.kill(os.getpid(), signal.SIGINT))
    code, table = launch(tmp_path, QUICK)
    thread.join()
    assert code == 130, table
    wait_until(lambda: slurm.state() == "CANCELLED")
    (slurm.folder / "full").unlink()
    assert launch(tmp_path, QUICK)[0] == 0, "the next launcher submits it again"
    assert (slurm.n_jobs, n_starts(tmp_path)) == (2, 1)


@nightly
def test_ctrl_c_cancels_a_job_that_waits_for_its_next_start(tmp_path, slurm):
    def stop():
        (slurm.folder / "full").touch()
        slurm("scontrol", "requeue", 1)
        wait_until(lambda: slurm.state() == "PENDING")
        os.kill(os.getpid(), signal.SIGINT)

    thread = when(lambda: n_starts(tmp_path) == 1, stop)
    start = time.monotonic()
    code, table = launch(tmp_path, SAVES + QUICK)
    thread.join()
    assert code == 130, table
    wait_until(lambda: slurm.state() == "CANCELLED")
    assert "1 stopped" in table
    assert time.monotonic() < start + 30
    (slurm.folder / "full").unlink()
    assert launch(tmp_path, SAVES + QUICK)[0] == 0, "the next launch goes on"
    assert (slurm.n_jobs, n_starts(tmp_path)) == (2, 2)


@nightly
def test_ctrl_c_cancels_a_job_that_is_on_its_way_into_the_queue(tmp_path, slurm):
    def stop():
        slurm("timelimit", 1)
        wait_until(lambda: slurm.job()["restarts"] == 1)
        os.kill(os.getpid(), signal.SIGINT)

    (slurm.folder / "full").touch()
    begin = when(lambda: slurm.state() == "PENDING", (slurm.folder / "full").unlink)
    again = when(lambda: n_starts(tmp_path) == 1, (slurm.folder / "full").touch)
    thread = when(lambda: n_starts(tmp_path) == 1, stop)
    saves = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(3), finish('interrupted', 85)))\n"
    start = time.monotonic()
    code, table = launch(tmp_path, saves + "time.sleep(60)\n")
    for x in (begin, again, thread):
        x.join()
    assert (code, n_starts(tmp_path)) == (130, 1), table
    wait_until(lambda: slurm.state() == "CANCELLED")
    assert time.monotonic() < start + 30


@nightly
def test_a_full_disk_does_not_keep_ctrl_c_from_the_jobs(tmp_path, slurm, monkeypatch):
    def stop():
        monkeypatch.setattr(cluster.JobFiles, "claim", full)
        os.kill(os.getpid(), signal.SIGINT)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    thread = when(lambda: n_starts(tmp_path) == 1 and slurm.state() == "RUNNING", stop)
    code, table = launch(tmp_path, SAVES + QUICK)
    thread.join()
    assert (code, n_starts(tmp_path)) == (130, 1), table
    wait_until(lambda: slurm.state() == "CANCELLED")
    assert json.loads((folder(tmp_path) / "run_0/status.json").read_text())["status"] == "interrupted"


def test_a_job_is_cancelled_once(tmp_path, slurm):
    folder(tmp_path).mkdir(parents=True)
    run = cluster.ClusterRun(
        ClusterSlots(executor(tmp_path), 1), GridRun(folder(tmp_path), 0, "x_1/0"), "run.py", "token", "1"
    )
    (slurm.folder / "1.json").write_text('{"state": "COMPLETED"}')
    for _ in range(3):  # as a queue does that waits for its end
        run.stop(signal.SIGKILL)
    wait_until((slurm.folder / "cancelled").exists)
    time.sleep(0.5)
    assert (slurm.folder / "cancelled").read_text().split() == ["1"]


# ---- submitit's local executor ----


@nightly
def test_the_local_executor_adopts_too(tmp_path):
    first = launcher(tmp_path, SLOW, kind="local")
    wait_until(lambda: n_starts(tmp_path) == 1, 60.0)
    first.kill()
    first.wait(20)
    thread = when(lambda: (tmp_path / "study.txt").exists(), (folder(tmp_path) / "finish").touch)
    (tmp_path / "study.txt").touch()
    code, table = launch(tmp_path, SLOW, "local")
    thread.join()
    assert (code, n_starts(tmp_path)) == (0, 1), table


TRAINING = """
import sys
import time
import gymnasium
from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.launching import launched_run
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler

class SlowCartPole(gymnasium.Wrapper):
    def step(self, action):
        time.sleep(0.01)  # so that the signal comes before the end
        return super().step(action)

run = launched_run()
sampler = SerialSampler(lambda: SlowCartPole(gymnasium.make("CartPole-v1")), {}, batch_T=16, batch_B=2)
algo = PPO(minibatches=1, epochs=1)
runner = MinibatchRl(algo, CategoricalPgAgent(), sampler, n_steps=640, log_interval_steps=32, seed=3)
with logger_context(run.log_dir, run.run_ID, resume="auto"):
    runner.replace(checkpoint_interval_steps=32, affinity=run.affinity).train()
"""


def rows(tmp_path, run_ID):
    """Return the log without its columns of time."""
    lines = (folder(tmp_path) / f"run_{run_ID}/progress.csv").read_text().splitlines()
    table = [line.split(",") for line in lines]
    kept = [i for i, name in enumerate(table[0]) if not any(x in name for x in ("Time", "PerSecond", "Rate"))]
    return [[line[i] for i in kept] for line in table]


@nightly
def test_a_run_that_was_preempted_has_the_numbers_of_one_that_was_not(tmp_path, slurm):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    log = folder(tmp_path) / "run_1/progress.csv"
    stop = when(lambda: log.exists() and len(log.read_text().splitlines()) > 1, lambda: slurm("warning", 2, 60))
    table = io.StringIO()
    slots = ClusterSlots(executor(tmp_path), 2)
    code = run_experiments(script, slots, "study", 2, *ONE, data_dir=tmp_path / "data", file=table)
    stop.join()
    assert code == 0, table.getvalue()
    assert slurm.n_jobs == 2
    assert slurm.exits(2) == [85, 0]
    assert len(rows(tmp_path, 0)) == 21
    assert rows(tmp_path, 1) == rows(tmp_path, 0)


# ---- bad input ----


@pytest.mark.parametrize(
    ("parameters", "n_slots", "text"),
    [
        ({}, 0, "n_slots is 0"),
        ({"nodes": 2}, 1, "nodes=2"),
        ({"tasks_per_node": 4}, 1, "tasks_per_node=4"),
        ({"slurm_additional_parameters": {"ntasks": 2}}, 1, "ntasks=2"),
        ({"slurm_additional_parameters": {"array": "0-3"}}, 1, "array=0-3"),
    ],
)
def test_wrong_slots_are_refused(tmp_path, slurm, parameters, n_slots, text):
    with pytest.raises(ValueError, match=text):
        ClusterSlots(executor(tmp_path, **parameters), n_slots)


def test_a_folder_in_whose_name_slurm_would_put_numbers_is_refused(tmp_path, slurm):
    with pytest.raises(ValueError, match="without the sign %"):
        ClusterSlots(executor(tmp_path / "50%"), 1)
    ClusterSlots(executor(tmp_path / "%j"), 1)


def test_what_is_no_executor_is_refused_and_a_missing_submitit_is_named(tmp_path, monkeypatch):
    with pytest.raises(TypeError, match=r"expected a submitit\.AutoExecutor"):
        ClusterSlots("slurm", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is for 'debug'"):
        ClusterSlots(executor(tmp_path, "debug"), 1)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[cluster\]"):
        ClusterSlots("slurm", 1)  # type: ignore[arg-type]


@nightly
def test_many_jobs_cost_the_launcher_little(tmp_path, slurm):
    """Two seconds over 500 running jobs, looked at five times a second, must not take 15 % of a core."""
    cluster._LOOK_SECONDS = 1.0  # the fixture puts it back
    slots = ClusterSlots(executor(tmp_path), 500)
    folder(tmp_path).mkdir(parents=True)
    runs = []
    for i in range(500):
        run = GridRun(folder(tmp_path), i, f"x_1/{i}")
        JobFiles.of(run).claim("token", str(i))
        runs.append(cluster.ClusterRun(slots, run, "run.py", "token", str(i)))
    before, end = time.process_time(), time.monotonic() + 2.0
    while time.monotonic() < end:
        assert all(run.poll() is None for run in runs)
        time.sleep(0.2)
    assert time.process_time() - before < 0.3


def test_jobs_have_the_names_of_study_and_run_and_may_be_requeued(tmp_path, slurm):
    def submitted(made, title):
        run = GridRun(tmp_path / "data" / title / "x_1", 0, "x_1/0")
        ClusterSlots(made, 1).start(0, run, str(tmp_path / "run.py"), 0).poll()
        return (slurm.folder / f"{slurm.n_jobs}.batch").read_text()

    (slurm.folder / "full").touch()
    made = executor(tmp_path)
    for title in ("study", "other"):
        batch = submitted(made, title)
        assert f"--job-name={title}/x_1/0\n" in batch
        assert "--requeue\n" in batch
    parameters = dict(name="mine", slurm_additional_parameters={"no_requeue": True, "licenses": "x"})
    batch = submitted(executor(tmp_path, **parameters), "study_b")
    assert "--job-name=mine\n" in batch
    assert "--licenses=x\n" in batch
    assert "--requeue\n" not in batch


@nightly
def test_a_job_is_submitted_with_a_users_own_variables_and_not_with_those_of_a_job(tmp_path, slurm, monkeypatch):
    monkeypatch.setenv("SBATCH_ACCOUNT", "me")
    monkeypatch.setenv("SBATCH_PARTITION", "cpu")  # would win over the script's
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SUBMITIT_PREEMPT_SIGNAL", "USR1")
    code, table = launch(tmp_path, "print('ENV', dict(os.environ))\n" + QUICK, slurm_partition="gpu")
    assert code == 0, table
    output = (folder(tmp_path) / "run_0.txt").read_text()
    assert "'SBATCH_ACCOUNT': 'me'" in output
    assert "'SUBMITIT_PREEMPT_SIGNAL': 'USR1'" in output
    assert "SBATCH_PARTITION" not in output
    assert "SLURM_NTASKS" not in output


@nightly
def test_a_launch_on_this_machine_refuses_a_run_that_a_job_has(tmp_path, slurm):
    first = launcher(tmp_path, SLOW)
    wait_until(lambda: n_starts(tmp_path) == 1, 60.0)
    first.kill()
    first.wait(20)
    table = io.StringIO()
    arguments = (tmp_path / "run.py", "1aut", "study", 1, *ONE)
    assert run_experiments(*arguments, data_dir=tmp_path / "data", file=table) == 1
    assert "SLURM's job 1 has this run (RUNNING)" in table.getvalue()
    (folder(tmp_path) / "finish").touch()
    wait_until(lambda: slurm.state() == "COMPLETED", 60.0)
    assert run_experiments(*arguments, data_dir=tmp_path / "data", file=table) == 0
    assert n_starts(tmp_path) == 1
