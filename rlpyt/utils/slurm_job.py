"""Share of a node that SLURM has given to this process, as the variables of its environment say.

Where SLURM binds a job to cores, the process may run on no others, and its mask says all. Without binding
(TaskPlugin=task/none) a job of one CPU has the mask of the whole node, and only these variables say how much of it is
the job's. Whatever is started from a shell of `salloc` counts as part of its job, as it inherits them.
"""

from __future__ import annotations

import math
import os
import re
from itertools import takewhile

_INTERACTIVE = "4294967290"
"""SLURM_STEP_ID of the shell that `salloc` opens on the first node (LaunchParameters=use_interactive_step)."""
_NODES = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def job_cpus() -> float:
    """Return how many logical CPUs SLURM has given to this process, a float; infinity outside of a job.

    A task of `srun` has its part of the step. Every other process, in a batch script or a shell of `salloc`, has what
    the whole job has on this node.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return math.inf
    of_node = _on_this_node("SLURM_CPUS_ON_NODE") or _on_this_node("SLURM_JOB_CPUS_PER_NODE")  # salloc sets the second
    of_task = _on_this_node("SLURM_CPUS_PER_TASK")
    n_tasks = _on_this_node("SLURM_STEP_TASKS_PER_NODE")
    if n_tasks and os.environ.get("SLURM_STEP_ID") != _INTERACTIVE:
        # Both hold: a step without --cpus-per-task inherits the variable from its job.
        of_node = of_node and max(1, of_node // n_tasks)
    else:
        of_task *= _on_this_node("SLURM_TASKS_PER_NODE") or 1
    return min((float(number) for number in (of_task, of_node) if number), default=math.inf)


def job_name() -> str:
    """Return the name of the job for messages, such as "SLURM job 109"; empty outside of a job."""
    number = os.environ.get("SLURM_JOB_ID", "")
    return number and f"SLURM job {number}"


def visible_gpus() -> list[str]:
    """Return the names of the GPUs in CUDA_VISIBLE_DEVICES, as a job system sets it; none where it names none.

    CUDA stops at the first name that is none, such as -1, or "NoDevFiles" of SLURM.
    """
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return [*takewhile(lambda name: name[:1].isdigit() or name[:4] in ("GPU-", "MIG-"), names)]


def task_name() -> str:
    """Return what distinguishes this process's task from all others, which SLURM gives CPUs of their own."""
    return ".".join(os.environ.get(f"SLURM_{name}", "") for name in ("JOB_ID", "STEP_ID", "PROCID")).strip(".")


def _on_this_node(variable: str) -> int:
    """Return the entry for this node of a list such as "8(x2),4"; 0 where there is none."""
    entries = [_NODES.fullmatch(part.strip()) for part in os.environ.get(variable, "").split(",")]
    numbers = [int(entry[1]) for entry in entries if entry for _ in range(int(entry[2] or 1))]
    node = os.environ.get("SLURM_NODEID", "")
    place = int(node) if node.isdigit() else 0
    return numbers[min(place, len(numbers) - 1)] if numbers else 0
