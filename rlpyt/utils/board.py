"""Board of notes that the replicas of a group leave for each other, in the group's store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

_STORE_SECONDS = 2.0  # how long a store may take that answers at all
_POLL_SECONDS = 0.02


class Board:
    """Notes of the replicas by their names; each replica writes its own, and any may read all.

    Where a bound is given, a store whose process is stopped holds nobody up.

    Args:
        store: that all replicas reach.
        rank: of this replica.
        world_size: replicas.
    """

    def __init__(self, store: dist.Store, rank: int, world_size: int) -> None:
        self._store, self._rank, self._world_size = dist.PrefixStore("board", store), rank, world_size

    def write(self, name: str, note: tuple[Any, ...]) -> None:
        """Write a note of this replica, JSON values."""
        self._store.set(f"{name}/{self._rank}", json.dumps(note))

    def read_all(self, name: str) -> dict[int, list[Any]]:
        """Return the notes of this name that are there, by rank."""
        there = [rank for rank in range(self._world_size) if self._store.check([f"{name}/{rank}"])]
        return {rank: json.loads(self._store.get(f"{name}/{rank}")) for rank in there}

    def exchange(
        self,
        name: str,
        note: tuple[Any, ...],
        enough: Callable[[dict[int, list[Any]]], bool] = lambda notes: False,
        seconds: float = 0.0,
    ) -> dict[int, list[Any]] | None:
        """Write a note and return those of all others that come within some seconds.

        Args:
            name: of the notes.
            note: of this replica.
            enough: whether the notes that have come are enough to return early.
            seconds: to wait for the others.

        Returns:
            The notes by rank; None if the store is gone or does not answer.
        """
        found: list[dict[int, list[Any]]] = []

        def talk() -> None:
            deadline = time.monotonic() + seconds
            try:
                self.write(name, note)
                while len(notes := self.read_all(name)) < self._world_size:
                    if enough(notes) or time.monotonic() > deadline:
                        break
                    time.sleep(_POLL_SECONDS)
                found.append(notes)
            except RuntimeError:  # of the store
                return

        # A store that is stopped would hold this thread in C++, where no signal reaches it.
        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        thread.join(seconds + _STORE_SECONDS)
        return found[0] if found else None
