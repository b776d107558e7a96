"""Place of this process among those that a launcher, such as torchrun or a script with srun, has started."""

from __future__ import annotations

import ctypes
import os
import signal
from datetime import timedelta
from functools import cache
from typing import NamedTuple

import torch.distributed as dist

from rlpyt.utils.worker_main import PR_SET_PDEATHSIG

_MEET_SECONDS = 600.0
"""Longest time in which the processes of a launcher come to the store of the first one."""


class Launched(NamedTuple):
    """Place of a process among those of a launcher."""

    rank: int
    world_size: int
    local_rank: int
    """Among those of this machine."""
    max_restarts: int = 0
    """How often torchrun starts all processes again after one of them has failed."""

    @classmethod
    def from_environment(cls) -> Launched | None:
        """Return the place that the environment names; None where no launcher has started this process.

        RANK, WORLD_SIZE and MASTER_ADDR are what torchrun sets, and what torch.distributed reads.

        Raises:
            ValueError: if RANK and WORLD_SIZE are not those of one of several processes.
        """
        if any(name not in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
            return None
        given = os.environ["RANK"], os.environ["WORLD_SIZE"]
        if not all(number.isdecimal() for number in given) or not int(given[0]) < int(given[1]):
            raise ValueError(
                f"Reading what a launcher has set: RANK is {given[0]!r} and WORLD_SIZE is {given[1]!r}; expected the "
                "number of this process, from 0, and how many there are in all. In a script with srun these are "
                "SLURM_PROCID and SLURM_NTASKS. Correct them, or unset RANK where no launcher has started this process."
            )
        rank, world_size = map(int, given)
        max_restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0))
        return cls(rank, world_size, int(os.environ.get("LOCAL_RANK", rank)), max_restarts)


def end_with_launcher() -> None:
    """Let the kernel send this process SIGTERM where torchrun has started it and is killed, so that it is not left."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def launcher_store() -> dist.Store:
    """Return a store at which the processes of the launcher meet for one run; they may meet again for another."""
    store, rank = _store_of_all_runs()
    return dist.PrefixStore(f"rlpyt {store.add(f'runs of {rank}', 1)}", store)


@cache  # without torchrun, rank 0 has the store: it counts the runs of a script for as long as the process lives
def _store_of_all_runs() -> tuple[dist.Store, int]:
    # Neither Ctrl-C nor an error of another process ends this wait, and torch's own limit is half an hour.
    store, rank, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=_MEET_SECONDS)))
    return store, rank
