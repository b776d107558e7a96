"""Grids on a cluster: submitit's own executors, with a SLURM of small scripts in place of the job system."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlpyt.launching import ClusterSlots, cluster, run_experiments
from rlpyt.launching.job import JobFiles
from tests.launching.test_run_experiments import QUICK, RUN, wait_until

submitit = pytest.importorskip("submitit")
ONE = ([{"x": 1}], ["x_1"])

# The job system: a folder with a file for each job's state, and one process for each job, which has a session of its
# own. `scontrol requeue` marks the job, and its process starts the batch file again.
SLURM = """
import os, pathlib, signal, subprocess, sys, time
slurm = pathlib.Path(__file__).resolve().parent
name, *args = sys.argv[1:]
if (slurm / ("down_" + name)).exists():
    sys.exit("slurm is down")
if name == "sbatch":
    job = str(sum(1 for _ in slurm.glob("*.batch")) + 1)
    (slurm / (job + ".batch")).write_text(pathlib.Path(args[0]).read_text().replace("%j", job).replace("%t", "0"))
    (slurm / (job + ".state")).write_text("PENDING")
    with open(os.devnull, "w") as null:
        subprocess.Popen([str(slurm / "node"), job], stdin=null, stdout=null, stderr=null, start_new_session=True)
    print("Submitted batch job", job)
elif name == "node":
    job = args[0]
    state, pid = slurm / (job + ".state"), slurm / (job + ".pid")
    while (slurm / "full").exists():
        time.sleep(0.05)
    while state.read_text() in ("PENDING", "REQUEUED"):
        state.write_text("RUNNING")
        env = dict(os.environ, SLURM_JOB_ID=job, CUDA_VISIBLE_DEVICES="7")
        process = subprocess.Popen(["bash", str(slurm / (job + ".batch"))], env=env, start_new_session=True)
        pid.write_text(str(process.pid))
        process.wait()
    if state.read_text() == "RUNNING":
        state.write_text("COMPLETED" if process.returncode == 0 else "FAILED")
elif name == "srun":
    out, err = args[args.index("--output") + 1], args[args.index("--error") + 1]
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    command = args[args.index("--error") + 2:]
    os.execvp(command[0], command)
elif name == "scontrol":
    (slurm / (args[1] + ".state")).write_text("REQUEUED")
elif name == "scancel":
    (slurm / (args[0] + ".state")).write_text("CANCELLED")
    with open(slurm / "cancelled", "a") as file:
        file.write(args[0] + " ")
    try:
        os.killpg(int((slurm / (args[0] + ".pid")).read_text()), signal.SIGKILL)
    except (OSError, ValueError):
        pass
elif name == "sacct":
    print("JobID|State|NodeList")
    for job in args[args.index("-j") + 1::2]:
        print(job + "|" + (slurm / (job + ".state")).read_text() + "|")
"""
SLOW = """
for _ in range(600):
    time.sleep(0.05)
    if pathlib.Path(log_dir, "finish").exists():
        finish("finished", 0)
"""


class Slurm:
    """Job system of small scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def state(self, job_id: int = 1) -> str:
        path = self.folder / f"{job_id}.state"
        return path.read_text() if path.exists() else ""

    @property
    def n_jobs(self) -> int:
        return len(list(self.folder.glob("*.batch")))

    def session(self, job_id: int = 1) -> list[int]:
        """Return the processes of a job, as SLURM signals them."""
        path = self.folder / f"{job_id}.pid"
        session = path.read_text() if path.exists() else "0"
        found = subprocess.run(["ps", "-o", "pid=", "-s", session or "0"], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def signal(self, signum: int, job_id: int = 1) -> None:
        """Send a signal to all processes of the job's step, as SLURM does; not to the batch shell."""
        for pid in self.session(job_id)[1:]:
            os.kill(pid, signum)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    folder = tmp_path / "slurm"
    folder.mkdir()
    (folder / "slurm.py").write_text(SLURM)
    python = shlex.join([sys.executable, "-S", str(folder / "slurm.py")])  # no `#!` line: it would end at a blank
    for name in ("sbatch", "node", "srun", "scontrol", "scancel", "sacct"):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {python} {name} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(cluster, "_SETTLE_SECONDS", 0.5)
    submitit.SlurmJob.watcher.clear()
    submitit.SlurmJob.watcher._registered.clear()
    monkeypatch.setattr(submitit.SlurmJob.watcher, "_delay_s", 0.2)
    slurm = Slurm(folder)
    yield slurm
    (folder / "full").unlink(missing_ok=True)
    for number in range(1, slurm.n_jobs + 1):
        (folder / f"{number}.state").write_text("CANCELLED")
        for pid in slurm.session(number):
            os.kill(pid, signal.SIGKILL)


def executor(tmp_path, kind="slurm", **parameters):
    made = submitit.AutoExecutor(tmp_path / "jobs", cluster=kind)
    made.update_parameters(**({"timeout_min": 60} | parameters))
    return made


def launch(tmp_path, rest, kind="slurm", retries=0, **parameters):
    path = tmp_path / "run.py"
    path.write_text(RUN + rest)
    table = io.StringIO()
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
    code, table = launch(tmp_path, "print('device', os.environ['CUDA_VISIBLE_DEVICES'])\n" + QUICK)
    assert code == 0, table
    output = (folder(tmp_path) / "run_0.txt").read_text()
    assert "code 0slt_1aut" in output
    assert "device 7" in output
    assert "x_1/0 queued" in table
    assert "1 finished" in table


def test_a_job_that_is_preempted_saves_its_work_and_is_requeued(tmp_path, slurm):
    """SLURM signals every process of the job: SIGTERM and submitit's signal."""

    def preempt():
        slurm.signal(signal.SIGTERM)
        slurm.signal(signal.SIGUSR2)

    saved = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), finish('interrupted', 85)))\n"
    thread = when(lambda: n_starts(tmp_path) == 1, preempt)
    code, table = launch(tmp_path, "if n_starts == 1:\n    " + saved + "    time.sleep(60)\n" + QUICK)
    thread.join()
    assert code == 0, table
    assert n_starts(tmp_path) == 2
    assert slurm.n_jobs == 1, "the same job went on"


def test_a_job_that_is_told_to_end_by_sigterm_alone_is_requeued_too(tmp_path, slurm):
    thread = when(lambda: n_starts(tmp_path) == 1, lambda: slurm.signal(signal.SIGTERM))
    code, table = launch(tmp_path, "n_starts == 1 and time.sleep(60)\n" + QUICK)
    thread.join()
    assert (code, slurm.n_jobs, n_starts(tmp_path)) == (0, 1, 2), table


# ---- the launcher is killed ----

LAUNCHER = """
import os, signal, sys
from tests.launching import test_cluster
from rlpyt.launching import cluster
from pathlib import Path
if {dies!r} == "between":
    class Dying(cluster.JobFiles):
        def begin(self, token, job_id=""):
            if job_id:
                os.kill(os.getpid(), signal.SIGKILL)
            super().begin(token)
    cluster.JobFiles = Dying
test_cluster.launch(Path({path!r}), {rest!r}, {kind!r})
"""


def launcher(tmp_path, rest, dies="", kind="slurm"):
    """Start a launcher in a process of its own."""
    text = LAUNCHER.format(path=str(tmp_path), rest=rest, dies=dies, kind=kind)
    return subprocess.Popen([sys.executable, "-c", text], start_new_session=True)


@pytest.mark.parametrize("dies", ["later", "between"])
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


def test_a_job_whose_node_is_lost_is_reported_with_what_it_has_printed_and_submitted_again(tmp_path, slurm):
    def lose():
        processes = slurm.session()
        (slurm.folder / "1.state").write_text("NODE_FAIL")
        for pid in processes:
            os.kill(pid, signal.SIGKILL)

    thread = when(lambda: n_starts(tmp_path) == 1, lose)
    code, table = launch(tmp_path, "n_starts == 1 and time.sleep(60)\n" + QUICK, retries=1)
    thread.join()
    assert (code, slurm.n_jobs) == (0, 2), table
    assert "The job 1 has ended without an exit code." in table
    assert "Starting with JobEnvironment" in table, "the end of the job's own log"


def test_accounting_that_is_down_or_wrong_for_a_while_fails_no_run(tmp_path, slurm):
    (slurm.folder / "down_sacct").touch()

    def wrong():
        (slurm.folder / "1.state").write_text("NODE_FAIL")  # as before the job system requeues a job by itself
        (slurm.folder / "down_sacct").unlink()
        time.sleep(1.2)
        (slurm.folder / "1.state").write_text("RUNNING")
        time.sleep(1.0)
        (folder(tmp_path) / "finish").touch()

    cluster._SETTLE_SECONDS = 3.0  # the fixture puts it back
    thread = when(lambda: n_starts(tmp_path) == 1, wrong)
    code, table = launch(tmp_path, SLOW)
    thread.join()
    assert (code, slurm.n_jobs, n_starts(tmp_path)) == (0, 1, 1), table
    assert "failed" not in table


def test_a_submission_that_is_refused_fails_its_run_and_tells_why(tmp_path, slurm):
    (slurm.folder / "down_sbatch").touch()
    code, table = launch(tmp_path, QUICK)
    assert code == 1
    assert "The job was not submitted: slurm is down" in table


def test_a_failed_run_is_reported_with_its_own_last_lines(tmp_path, slurm):
    code, table = launch(tmp_path, "1 / 0\n")
    assert code == 1
    assert "failed with exit code 1" in table
    assert "ZeroDivisionError" in table


# ---- Ctrl-C ----


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_is_passed_on_and_a_second_one_cancels(tmp_path, slurm, times):
    def stop():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.5)

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
    assert (code, slurm.state()) == (130, "CANCELLED"), table
    (slurm.folder / "full").unlink()
    assert launch(tmp_path, QUICK)[0] == 0, "the next launcher submits it again"
    assert (slurm.n_jobs, n_starts(tmp_path)) == (2, 1)


# ---- submitit's local executor ----


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
import gymnasium
from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.launching import launched_run
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler

run = launched_run()
sampler = SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=16, batch_B=2)
algo = PPO(minibatches=1, epochs=1)
runner = MinibatchRl(algo, CategoricalPgAgent(), sampler, n_steps=192, log_interval_steps=32, seed=3)
with logger_context(run.log_dir, run.run_ID, resume="auto"):
    runner.replace(checkpoint_interval_steps=32, affinity=run.affinity).train()
"""


def rows(tmp_path, run_ID):
    """Return the log without its columns of time."""
    lines = (folder(tmp_path) / f"run_{run_ID}/progress.csv").read_text().splitlines()
    table = [line.split(",") for line in lines]
    kept = [i for i, name in enumerate(table[0]) if not any(x in name for x in ("Time", "PerSecond", "Rate"))]
    return [[line[i] for i in kept] for line in table]


def test_a_run_that_was_preempted_has_the_numbers_of_one_that_was_not(tmp_path, slurm):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    log = folder(tmp_path) / "run_1/progress.csv"
    stop = when(lambda: log.exists() and len(log.read_text().splitlines()) > 1, lambda: slurm.signal(signal.SIGUSR2, 2))
    table = io.StringIO()
    slots = ClusterSlots(executor(tmp_path), 2)
    code = run_experiments(script, slots, "study", 2, *ONE, data_dir=tmp_path / "data", file=table)
    stop.join()
    assert code == 0, table.getvalue()
    assert slurm.n_jobs == 2
    assert "Requeued job 2" in (tmp_path / "jobs/2_0_log.err").read_text() + (tmp_path / "jobs/2_0_log.out").read_text()
    assert len(rows(tmp_path, 0)) == 7
    assert rows(tmp_path, 1) == rows(tmp_path, 0)


# ---- bad input ----


@pytest.mark.parametrize(
    ("parameters", "n_slots", "text"),
    [
        ({}, 0, "n_slots is 0"),
        ({"nodes": 2}, 1, "nodes=2"),
        ({"tasks_per_node": 4}, 1, "tasks_per_node=4"),
    ],
)
def test_wrong_slots_are_refused(tmp_path, slurm, parameters, n_slots, text):
    with pytest.raises(ValueError, match=text):
        ClusterSlots(executor(tmp_path, **parameters), n_slots)


def test_what_is_no_executor_is_refused_and_a_missing_submitit_is_named(tmp_path, monkeypatch):
    with pytest.raises(TypeError, match=r"expected a submitit\.AutoExecutor"):
        ClusterSlots("slurm", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is for 'debug'"):
        ClusterSlots(executor(tmp_path, "debug"), 1)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[cluster\]"):
        ClusterSlots("slurm", 1)  # type: ignore[arg-type]


def test_many_jobs_cost_the_launcher_little(tmp_path, slurm):
    """Two seconds over 500 running jobs, looked at five times a second, must not take 15 % of a core."""
    (slurm.folder / "down_sacct").touch()
    slots = ClusterSlots(executor(tmp_path), 500)
    folder(tmp_path).mkdir(parents=True)
    runs = []
    for i in range(500):
        files = JobFiles(folder(tmp_path) / f"run_{i}.job")
        files.claim("token", str(i))
        runs.append(
            cluster.SubmittedRun(slots._job(str(i)), cluster.GridRun(folder(tmp_path), i, f"x_1/{i}"), files, "token")
        )
    before, end = time.process_time(), time.monotonic() + 2.0
    while time.monotonic() < end:
        assert all(run.poll() is None for run in runs)
        time.sleep(0.2)
    assert time.process_time() - before < 0.3
