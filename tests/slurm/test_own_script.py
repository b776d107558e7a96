"""A batch script as docs/howto/resume.md prints it, and what SLURM does to its job."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.slurm.conftest import HERE, Case, n_rows, printed_scripts, status


def study(case: Case) -> str:
    """Return the command of the program of these tests, whose folder here has no name that a shell would split."""
    shutil.copy(HERE / "study.py", case.folder)
    return f"python {case.folder}/study.py {case.folder}/data"


def printed(case: Case, name: str = "alone", time_limit: str = "0:10:00", run_ID: str = "0") -> str:
    """Return one of the page's two scripts, with another program and another time limit."""
    text = dict(zip(("alone", "array"), printed_scripts("howto/resume.md"), strict=True))[name]
    text = re.sub(r"--time=\S+ --cpus-per-task=4", f"--time={time_limit} --cpus-per-task=1", text)
    return re.sub(r"python train.py *", f"{study(case)} {run_ID if name == 'alone' else ''}", text)


def run_dir(case: Case, run_ID: int = 0) -> Path:
    return case.folder / f"data/run_{run_ID}"


def n_starts(case: Case) -> int:
    output = case.folder / "job.txt"
    return output.read_text().count("start ") if output.exists() else 0


@pytest.mark.parametrize(
    ("cause", "kind", "first_start"),
    [
        ("preemption", "low", "PREEMPTED 0:0"),
        ("preemption", "grace", "REQUEUED 0:0"),
        ("requeue", "debug", "REQUEUED 0:0"),
        ("node down", "debug", "NODE_FAIL 0:0"),
    ],
)
def test_a_run_whose_job_is_taken_away_comes_back_and_is_the_same(case: Case, cause: str, kind: str, first_start: str):
    job = case.submit(printed(case), kind=kind)
    case.until_rows(run_dir(case))
    case.disturb(cause, job)
    case.until(lambda: case.accounts(job)[0].split()[0] == first_start.split()[0], 60, first_start)
    case.go()
    case.until_ended(job)
    case.assert_undisturbed(run_dir(case))
    assert case.accounts(job) == [first_start, "COMPLETED 0:0"]
    assert n_starts(case) == 2


@pytest.mark.parametrize(
    ("cause", "kind", "end"), [("scancel", "debug", "CANCELLED"), ("preemption", "cancel", "PREEMPTED")]
)
def test_a_job_that_is_cancelled_is_over_and_its_run_goes_on_in_another(case: Case, cause: str, kind: str, end: str):
    job = case.submit(printed(case), kind=kind)
    case.until_rows(run_dir(case))
    case.disturb(cause, job)
    case.until_ended(job)
    assert status(run_dir(case)) == "interrupted"
    [account] = case.accounts(job)
    assert account.startswith(end)
    case.go()
    again = case.submit(printed(case))
    case.until_ended(again)
    case.assert_undisturbed(run_dir(case))
    case.assert_accounts(again, "COMPLETED 0:0")


@pytest.mark.parametrize(("signal", "n_times"), [("TERM", 5), ("USR1", 1)])
def test_a_run_whose_time_is_up_again_and_again_is_the_same(case: Case, signal: str, n_times: int):
    """SLURM sends the signal up to half a minute early: half a minute after the start, when the run is at work."""
    case.env["STEP_SECONDS"] = "0.03"
    job = case.submit(printed(case, time_limit="0:02:00").replace("TERM@120", f"{signal}@60"))
    case.until(lambda: n_starts(case) == n_times + 1, 800, "the last start")
    case.go()
    case.until_ended(job)
    case.assert_undisturbed(run_dir(case))
    case.assert_accounts(job, *["REQUEUED 0:0"] * n_times, "COMPLETED 0:0")


def test_a_run_that_fails_has_failed_in_accounting(case: Case):
    job = case.submit(printed(case, run_ID="-1"))
    case.until_ended(job)
    case.assert_accounts(job, "FAILED 1:0")


def test_only_the_task_of_an_array_that_was_stopped_is_requeued(case: Case):
    """The third task has the number of the array, in SLURM's eyes."""
    case.env["STEP_SECONDS"] = "0.03"
    script = printed(case, "array").replace("array=0-3", "array=0-2").replace("TERM@120", "TERM@510")
    array = case.submit(script.replace("srun", "[ $SLURM_ARRAY_TASK_ID = 2 ] || export GO=/dev/null\nsrun"))
    case.until(lambda: all(status(run_dir(case, i)) == "finished" for i in (0, 1)), 120, "two tasks that finish")
    case.until(lambda: case.accounts(f"{array}_2")[0] == "REQUEUED 0:0", 150, "a third task that is requeued")
    case.go()
    for run_ID in range(3):
        case.until_ended(f"{array}_{run_ID}")
        case.assert_undisturbed(run_dir(case, run_ID))
    case.assert_accounts(array, *["COMPLETED 0:0"] * 2, "REQUEUED 0:0", "COMPLETED 0:0")


def test_replicas_whose_job_is_requeued_are_those_of_one_machine(case: Case):
    """By the script of docs/howto/replicas.md, with a port that follows the job, once announced and once not."""
    case.env["STEP_SECONDS"] = "0.01"
    [script] = printed_scripts("howto/replicas.md")
    script = script.replace(
        "nodes=2 --ntasks-per-node=4 --cpus-per-task=8", "nodes=1 --ntasks-per-node=2 --cpus-per-task=1"
    )
    # The nodes here are daemons of one machine, with names that no network knows.
    script = re.sub("(?<=MASTER_ADDR=).*", "127.0.0.1", script)
    script = script.replace("--time=12:00:00", "--time=0:10:00").replace("TERM@120", "TERM@510")
    job = case.submit(script.replace("python script.py", f"{study(case)} 0 replicas"))
    case.until(lambda: len(case.accounts(job)) == 2, 300, "the second start")
    case.until_rows(run_dir(case), n_rows(run_dir(case)) + 1)
    case.ask("scontrol", "requeue", job)
    case.go()
    case.until_ended(job)
    case.assert_undisturbed(run_dir(case), "replicas")
    assert case.accounts(job) == ["REQUEUED 0:0"] * 2 + ["COMPLETED 0:0"]
