"""Grids on a cluster: submitit's own executors, with a SLURM of small scripts in place of the job system."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlpyt.launching import ClusterSlots, cluster, job, run_experiments
from rlpyt.launching.job import JobFiles, RunOfJob
from tests.launching.test_run_experiments import QUICK, RUN, wait_until

submitit = pytest.importorskip("submitit")
ONE = ([{"x": 1}], ["x_1"])

# The job system: a folder with a file for each job's state, and one process for each job, which has a session of its
# own. `scontrol requeue` marks the job, and its process starts the batch file again.
SLURM = f"""#!{sys.executable} -S
import os, pathlib, signal, subprocess, sys, time
slurm = pathlib.Path(__file__).resolve().parent
name, args = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
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
    program = folder / "slurm.py"
    for name in ("sbatch", "node", "srun", "scontrol", "scancel", "sacct"):
        path = folder / name
        path.write_text(SLURM)
        path.chmod(0o755)
    assert not program.exists()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(cluster, "_SETTLE_SECONDS", 0.5)
    submitit.SlurmJob.watcher.clear()
    submitit.SlurmJob.watcher._registered.clear()
    monkeypatch.setattr(submitit.SlurmJob.watcher, "_delay_s", 0.2)
    slurm = Slurm(folder)
    yield slurm
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
