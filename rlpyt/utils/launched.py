"""Place of this process among those that a launcher, such as torchrun, has started."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch.distributed as dist


class Launched(NamedTuple):
    """Place of a process among those of a launcher."""

    rank: int
    world_size: int
    local_rank: int
    """Among those of this machine."""
    local_world_size: int

    @classmethod
    def from_environment(cls) -> Launched | None:
        """Return the place that the environment names; None where no launcher has started this process.

        RANK, WORLD_SIZE and MASTER_ADDR are what torchrun sets, and what torch.distributed reads.
        """
        if any(name not in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
            return None
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_RANK", rank)), int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
        return cls(rank, world_size, *local)


def launcher_store() -> dist.Store:
    """Return a store at which the processes of the launcher meet for one run; they may meet again for another."""
    store, rank, _ = next(dist.rendezvous("env://"))
    return dist.PrefixStore(f"rlpyt {store.add(f'runs of {rank}', 1)}", store)
