"""Grids by the script that docs/howto/launching.md prints, and what SLURM and users do to their jobs and launchers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from rlpyt.launching.local import end_with_parent
from rlpyt.run_records import read_json
from tests.markdown import ROOT
from tests.slurm.conftest import HERE, Case, status

ASKED = re.compile(r"timeout_min=240, .*\n.*,\n")


class Grid:
    """Grid of so many runs of the page's script, in the folder of a case."""

    def __init__(
        self, case: Case, n_runs: int = 1, n_slots: int = 1, kind: str = "debug", **parameters: object
    ) -> None:
        self.case, self.n_runs = case, n_runs
        page = (ROOT / "docs/howto/launching.md").read_text()
        [script] = re.findall(r"( {4}import sys\n {4}import submitit\n(?: {4}.*\n|\n)+)", page)
        asked = {"timeout_min": 10, "cpus_per_task": 1, "slurm_partition": f"{kind}{case.number}", **parameters}
        script = ASKED.sub(f"**{asked!r}\n", textwrap.dedent(script)).replace("/shared/me", str(case.folder))
        script = script.replace("n_slots=20", f"n_slots={n_slots}").replace('"study", 2', f'"study", {n_runs}')
        (case.folder / "grid.py").write_text(script)
        shutil.copy(HERE / "study.py", case.folder)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the launcher."""
        with open(self.case.folder / "launcher.txt", "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "grid.py"],
                cwd=self.case.folder,
                env=self.case.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=end_with_parent,
            )
        self.case.processes.append(process)
        return process

    def ends_with(self, launcher: subprocess.Popen[bytes], code: int, seconds: float = 600) -> None:
        """Wait for the end of a launcher."""
        self.case.until(lambda: launcher.poll() is not None, seconds, "the end of the launcher")
        assert launcher.returncode == code, self.case.all_that_is_known()

    @property
    def told(self) -> str:
        """What the launchers have printed."""
        return (self.case.folder / "launcher.txt").read_text()

    def run_dir(self, run_ID: int = 0) -> Path:
        """Return the directory of a run."""
        return self.case.folder / f"data/study/lr_1e-3/run_{run_ID}"

    def job(self, run_ID: int = 0) -> str:
        """Return the number of the job that a run has, "" before it has one."""
        return str(read_json(self.run_dir(run_ID).with_suffix(".job"))[0].get("job_id", ""))

    def printed(self, run_ID: int = 0) -> str:
        """Return what a run and its jobs have printed."""
        return self.run_dir(run_ID).with_suffix(".txt").read_text()

    def jobs(self) -> list[str]:
        """Return the numbers of all jobs that were ever submitted."""
        return sorted(path.name.split("_")[0] for path in (self.case.folder / "jobs").glob("*_submission.sh"))

    def until_queued_again(self, run_ID: int = 0) -> None:
        """Wait until the job of a run stands in the queue again, and its first start has left nothing at work."""
        self.case.until(lambda: self.case.state(self.job(run_ID)).startswith("PENDING"), 90, "a job that waits again")

    def assert_finished(self) -> None:
        """Fail unless all runs are those that nobody has disturbed, and another launch finds nothing to do."""
        for run_ID in range(self.n_runs):
            self.case.assert_undisturbed(self.run_dir(run_ID))
        self.ends_with(self.launch(), 0)


@pytest.mark.parametrize(
    ("cause", "kind", "first_start"),
    [
        ("preemption", "low", "PREEMPTED"),
        ("preemption", "grace", "REQUEUED"),
        ("preemption", "cancel", "REQUEUED"),
        ("requeue", "debug", "REQUEUED"),
        ("node down", "debug", "NODE_FAIL"),
    ],
)
def test_a_job_without_a_launcher_goes_on_by_itself(case: Case, cause: str, kind: str, first_start: str):
    grid = Grid(case, kind=kind)
    launcher = grid.launch()
    case.until_rows(grid.run_dir())
    launcher.kill()
    job = grid.job()
    case.disturb(cause, job)
    case.until(lambda: case.accounts(job)[0].startswith(first_start), 60, first_start)
    case.go()
    case.until_ended(job)
    grid.assert_finished()
    assert case.accounts(job)[1:] == ["COMPLETED 0:0"]
    assert grid.printed().count("start ") == 2
    assert grid.jobs() == [job]


def test_a_job_whose_time_is_up_five_times_goes_on_by_itself(case: Case):
    case.env["STEP_SECONDS"] = "0.03"
    grid = Grid(case, timeout_min=2, slurm_signal_delay_s=60)
    launcher = grid.launch()
    case.until_rows(grid.run_dir(), 1)
    launcher.kill()
    case.until(lambda: grid.printed().count("start ") == 6, 800, "the sixth start")
    case.go()
    case.until_ended(grid.job())
    grid.assert_finished()
    assert [line.split()[0] for line in case.accounts(grid.job())] == ["REQUEUED"] * 5 + ["COMPLETED"]


@pytest.mark.parametrize("is_requeued_before", [False, True], ids=["running", "waiting again"])
def test_a_job_that_a_user_cancels_stays_cancelled(case: Case, is_requeued_before: bool):
    grid = Grid(case)
    launcher = grid.launch()
    case.until_rows(grid.run_dir())
    job = grid.job()
    if is_requeued_before:
        case.ask("scontrol", "requeue", job)
        grid.until_queued_again()
    case.ask("scancel", job)
    grid.ends_with(launcher, 1)
    assert "cancelled" in grid.told
    assert case.accounts(job)[-1].startswith("CANCELLED")
    assert status(grid.run_dir()) == "interrupted"
    case.go()
    grid.ends_with(grid.launch(), 0)
    grid.assert_finished()
    assert len(grid.jobs()) == 2


def test_a_limit_of_submissions_costs_time_and_no_run(case: Case):
    grid = Grid(case, n_runs=3, n_slots=3, slurm_account="limited")
    case.go()
    grid.ends_with(grid.launch(), 0)
    grid.assert_finished()
    assert len(grid.jobs()) == 3
    refused = [i for i in range(3) if "The job was not submitted, and is tried again" in grid.printed(i)]
    assert len(refused) == 1, case.all_that_is_known()


def test_a_partition_that_is_not_there_fails_the_runs_at_once(case: Case):
    grid = Grid(case, kind="nowhere")
    grid.ends_with(grid.launch(), 1, 120)
    assert "invalid partition specified" in grid.told


def test_the_jobs_of_a_killed_launcher_are_adopted(case: Case):
    """The third one waits for a core, as the node has two, in SLURM's eyes."""
    grid = Grid(case, n_runs=3, n_slots=3)
    launcher = grid.launch()
    for run_ID in (0, 1):
        case.until_rows(grid.run_dir(run_ID))
    assert case.state(grid.job(2)).startswith("PENDING")
    launcher.kill()
    jobs = grid.jobs()
    launcher = grid.launch()
    case.go()
    grid.ends_with(launcher, 0)
    grid.assert_finished()
    assert grid.jobs() == jobs
    assert [case.accounts(job) for job in jobs] == [["COMPLETED 0:0"]] * 3


def test_one_ctrl_c_saves_what_runs_and_cancels_what_waits(case: Case):
    """The first job runs, the second was requeued, and the third waits for its first start."""
    grid = Grid(case, n_runs=3, n_slots=3)
    launcher = grid.launch()
    for run_ID in (0, 1):
        case.until_rows(grid.run_dir(run_ID))
    case.ask("scontrol", "hold", grid.job(2))
    case.ask("scontrol", "requeue", grid.job(1))
    grid.until_queued_again(1)
    launcher.send_signal(signal.SIGINT)
    grid.ends_with(launcher, 130, 100)
    assert [status(grid.run_dir(i)) for i in (0, 1)] == ["interrupted"] * 2
    case.until(lambda: not any(case.state(job).startswith("RUNNING") for job in grid.jobs()), 30, "no job that runs")
    assert [case.accounts(grid.job(i))[-1].split()[0] for i in range(3)] == ["COMPLETED", "CANCELLED", "CANCELLED"]
    case.go()
    grid.ends_with(grid.launch(), 0)
    grid.assert_finished()


def test_ctrl_c_twice_cancels_all(case: Case):
    grid = Grid(case, n_runs=2, n_slots=2)
    launcher = grid.launch()
    for run_ID in (0, 1):
        case.until_rows(grid.run_dir(run_ID))
    launcher.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two that come at once are one
    launcher.send_signal(signal.SIGINT)
    grid.ends_with(launcher, 130, 100)
    for job in grid.jobs():
        case.until_ended(job, 60)
    case.go()
    grid.ends_with(grid.launch(), 0)
    grid.assert_finished()


def test_a_run_that_fails_has_failed_in_accounting_too(case: Case):
    grid = Grid(case)
    case.env["BAD"] = "yes"
    grid.ends_with(grid.launch(), 1)
    assert [case.accounts(job) for job in grid.jobs()] == [["FAILED 1:0"]] * 2  # with one retry


def test_a_run_has_the_device_that_its_job_was_given(case: Case):
    """This machine may have none: so the run is asked, and what becomes of it does not matter."""
    grid = Grid(case, slurm_gres="gpu:1")
    case.go()
    launcher = grid.launch()
    case.until(lambda: launcher.poll() is not None, 400, "the end of the launcher")
    assert re.search(r"start \d+ \['\w+_1gpu'\]", grid.printed()), case.all_that_is_known()


# ---- another SLURM: without accounting, with jobs bound to cores, and with a controller that a test may end ----


@pytest.fixture
def bare(case: Case) -> Iterator[Case]:
    """Yield a case whose jobs go to the other SLURM; one case at a time, as it has one node."""
    top = Path(os.environ["RLPYT_SLURM"], "bare")
    with FileLock(f"{top}.lock"):
        case.number, number = 1, case.number
        case.env |= {"PATH": f"{Path(sys.executable).parent}:{top}/bin:{os.environ['PATH']}"}
        case.env |= {"SLURM_CONF": f"{top}/slurm.conf"}
        yield case
        case.end_all()
        case.env, case.number = {**case.env, "SLURM_CONF": os.environ["SLURM_CONF"]}, number


def test_a_controller_may_be_away(bare: Case):
    """For half a minute at the launch, and for half a minute in the middle of the runs, which end then."""
    away = Path(os.environ["RLPYT_SLURM"], "bare/away")
    grid = Grid(bare, n_runs=2, n_slots=2)
    try:
        away.touch()
        bare.until(lambda: "DOWN" in bare.ask("scontrol", "ping", check=False), 30, "a controller that is away")
        launcher = grid.launch()
        time.sleep(30)
        away.unlink()
        for run_ID in (0, 1):
            bare.until_rows(grid.run_dir(run_ID))
        away.touch()
        bare.go()
        time.sleep(30)
    finally:
        away.unlink(missing_ok=True)
    grid.ends_with(launcher, 0)
    grid.assert_finished()
    assert len(grid.jobs()) == 2


def test_a_job_that_is_killed_is_seen_without_accounting(bare: Case):
    grid = Grid(bare)
    launcher = grid.launch()
    bare.until_rows(grid.run_dir())
    first = grid.job()
    bare.ask("scancel", "--signal=KILL", f"{first}.0")  # its step: SLURM takes one for the job as a scancel
    bare.until(lambda: grid.job() not in ("", first), 300, "another job")
    bare.go()
    grid.ends_with(launcher, 0)
    grid.assert_finished()


def test_a_job_is_bound_to_its_cores(bare: Case):
    grid = Grid(bare)
    bare.go()
    grid.ends_with(grid.launch(), 0)
    assert re.search(r"cores \[\d\]", grid.printed()), grid.printed()[:500]
