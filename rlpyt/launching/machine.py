"""Cores, hyper-threads, memory nodes and devices that this process may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rlpyt.utils.processes import available_cores, available_cpus, has_own_cores
from rlpyt.utils.slurm_job import visible_gpus

_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True)
class Core:
    """Physical core: the logical CPUs that share it, and its memory node."""

    cpus: tuple[int, ...]
    """Its hyper-threads that this process may use, the first one first."""
    node: int = 0
    """Number of the memory node."""


@dataclass(frozen=True)
class Machine:
    """Part of a machine that a process may use."""

    cores: tuple[Core, ...]
    """Cores in the order of their memory nodes."""
    devices: tuple[str, ...] = ()
    """CUDA devices, each as CUDA_VISIBLE_DEVICES names it."""
    has_own_cores: bool = True
    """Whether runs may be pinned to the cores, see `rlpyt.utils.processes.has_own_cores`; else only their number is
    meant, and the system finds free ones."""

    @classmethod
    def of_this_process(cls) -> Machine:
        """Return what this process may use, by taskset, control group, SLURM, RLPYT_CORES and CUDA_VISIBLE_DEVICES.

        If it may use less time than its cores have, it has so many of them.
        """
        allowed = available_cpus()
        nodes = {cpu: node for node, cpus in _nodes() for cpu in cpus}
        found = dict.fromkeys(
            Core(tuple(c for c in _siblings(cpu) if c in allowed) or (cpu,), nodes.get(cpu, 0)) for cpu in allowed
        )
        cores = sorted(found, key=lambda core: (core.node, core.cpus))
        n_cpus = available_cores()  # which counts logical CPUs, as quotas and SLURM do
        n_cores = next((n for n in range(1, len(cores)) if sum(len(c.cpus) for c in cores[:n]) >= n_cpus), len(cores))
        n_devices = torch.cuda.device_count()  # which does not start CUDA
        devices = tuple((visible_gpus() or [*map(str, range(n_devices))])[:n_devices])
        return cls(tuple(cores[:n_cores]), devices, has_own_cores())


def shared_cores(cores: Sequence[Core], slot: int, n_slots: int) -> Sequence[Core]:
    """Return the cores of a slot that shares a machine: as many as another, so that runs are alike; one at least."""
    each = max(1, len(cores) // n_slots)
    first = slot * each % len(cores)
    return cores[first : first + each]


def numbers_in(text: str) -> list[int]:
    """Return the numbers that Linux writes as a list of ranges, such as "0-3,8,10-11"."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    return [number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)]


def _siblings(cpu: int) -> list[int]:
    try:
        return numbers_in((_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text())
    except (OSError, ValueError):  # some containers do not show it
        return [cpu]


def _nodes() -> Iterator[tuple[int, list[int]]]:
    for folder in _NODES.glob("node[0-9]*"):
        try:
            yield int(folder.name.removeprefix("node")), numbers_in((folder / "cpulist").read_text())
        except (OSError, ValueError):
            continue
