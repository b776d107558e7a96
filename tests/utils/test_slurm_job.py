"""What SLURM has given to a process: the variables are those that SLURM 22.05 was seen to set."""

import math
import os

import pytest

from rlpyt.utils import slurm_job

# By what starts the process: its variables, without SLURM_ in front, and how many CPUs it has.
CASES = {
    "outside": ({}, math.inf),
    "batch script, -n1 -c4": (dict(CPUS_ON_NODE="4", CPUS_PER_TASK="4", TASKS_PER_NODE="1", NODEID="0"), 4),
    "batch script, -n4": (dict(CPUS_ON_NODE="4", TASKS_PER_NODE="4", NODEID="0"), 4),
    "batch script, -n4 -c2": (dict(CPUS_ON_NODE="8", CPUS_PER_TASK="2", TASKS_PER_NODE="4"), 8),
    "batch script, -n1 -c1 of a core with two threads": (dict(CPUS_ON_NODE="2", CPUS_PER_TASK="1"), 1),
    "salloc -c4": (dict(JOB_CPUS_PER_NODE="4", CPUS_PER_TASK="4", TASKS_PER_NODE="1"), 4),
    "salloc -N3 -n3 -c4": (dict(JOB_CPUS_PER_NODE="4(x3)", CPUS_PER_TASK="4", TASKS_PER_NODE="1(x3)"), 4),
    "salloc -n4 -c2, whose shell is a step": (
        dict(CPUS_ON_NODE="8", CPUS_PER_TASK="2", TASKS_PER_NODE="4", STEP_TASKS_PER_NODE="1", STEP_ID="4294967290"),
        8,
    ),
    "srun -n2": (dict(CPUS_ON_NODE="8", STEP_TASKS_PER_NODE="2", TASKS_PER_NODE="2"), 4),
    "srun -n1 -c2 in a job of 8": (dict(CPUS_ON_NODE="8", CPUS_PER_TASK="2", STEP_TASKS_PER_NODE="1"), 2),
    "srun -n4 in a batch script -c8": (dict(CPUS_ON_NODE="8", CPUS_PER_TASK="8", STEP_TASKS_PER_NODE="4"), 2),
    "srun -n5, on the third of three nodes": (dict(CPUS_ON_NODE="8", STEP_TASKS_PER_NODE="2(x2),1", NODEID="2"), 8),
    "srun --overcommit -n4 on one CPU": (dict(CPUS_ON_NODE="1", STEP_TASKS_PER_NODE="4"), 1),
    "nothing but the task's": (dict(CPUS_PER_TASK="3"), 3),
    "nothing that is a number": (dict(CPUS_PER_TASK="", CPUS_ON_NODE="many"), math.inf),
}


@pytest.fixture
def slurm(monkeypatch):
    """Return a function that sets the variables of a job and unsets all others."""

    def set_to(job_id: str | None, **variables: str) -> None:
        for name in [name for name in os.environ if name.startswith("SLURM")]:
            monkeypatch.delenv(name)
        for name, value in (variables | ({"JOB_ID": job_id} if job_id else {})).items():
            monkeypatch.setenv(f"SLURM_{name}", value)

    return set_to


@pytest.mark.parametrize(("variables", "expected"), CASES.values(), ids=CASES)
def test_a_process_has_its_part_of_what_the_job_has_on_this_node(variables, expected, slurm):
    slurm("109" if variables else None, **variables)
    assert slurm_job.job_cpus() == expected


def test_a_job_has_a_name_and_each_of_its_tasks_another(slurm):
    slurm(None)
    assert slurm_job.job_name() == slurm_job.task_name() == ""
    slurm("109", STEP_ID="0", PROCID="3")
    assert (slurm_job.job_name(), slurm_job.task_name()) == ("SLURM job 109", "109.0.3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", []), ("0", ["0"]), ("3, GPU-ab,MIG-c", ["3", "GPU-ab", "MIG-c"]), ("NoDevFiles", []), ("4,-1,5", ["4"])],
)
def test_the_gpus_of_a_job_are_those_that_are_visible(text, expected, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    assert slurm_job.visible_gpus() == expected
