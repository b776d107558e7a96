"""Board of notes that the replicas of a group leave for each other in the group's store, and what follows from them."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import psutil
import torch.distributed as dist

_STORE_SECONDS = 2.0  # how long a store may take that answers at all
_POLL_SECONDS = 0.02


class Peer(NamedTuple):
    """Process of a replica, as it describes itself at the start."""

    host: str
    pid: int
    device: str
    cpus: list[int]
    task: str = ""
    """Of SLURM; each has CPUs of its own, also where all may run on the same ones."""

    def shares_cores_with(self, other: Peer) -> bool:
        """Return whether two processes have the same cores."""
        return (self.host, self.cpus, self.task) == (other.host, other.cpus, other.task)

    def state(self) -> str:
        """Return what the system says of a process of this machine; nothing where it runs, or runs elsewhere."""
        if self.host != socket.gethostname():
            return ""
        try:
            status = psutil.Process(self.pid).status()
        except psutil.NoSuchProcess:
            status = psutil.STATUS_ZOMBIE
        return {
            psutil.STATUS_ZOMBIE: "was killed (out of memory, if nobody killed it by hand)",
            psutil.STATUS_STOPPED: "is stopped, as by SIGSTOP",
        }.get(status, "")


class Note(NamedTuple):
    """Last words of a replica."""

    place: str
    """Where it was."""
    error: str = ""
    """Of its own; empty where it ended in order, or has only lost contact."""
    traceback: str = ""
    lost_contact: bool = False
    """Whether another one has broken the connection, or has not come in time."""
    timed_out: bool = False
    """Whether it has waited in vain."""


N = TypeVar("N")


class Board:
    """Notes of the replicas by their names; each replica writes its own, and any may read all."""

    def __init__(self, store: dist.Store, rank: int, world_size: int) -> None:
        self._store, self._rank, self._world_size = dist.PrefixStore("board", store), rank, world_size

    def write(self, name: str, note: Peer | Note) -> None:
        """Write a note of this replica."""
        self._store.set(f"{name}/{self._rank}", json.dumps(note))

    def read_all(self, name: str, kind: Callable[..., N]) -> dict[int, N]:
        """Return the notes of this name that are there, by rank."""
        there = [rank for rank in range(self._world_size) if self._store.check([f"{name}/{rank}"])]
        return {rank: kind(*json.loads(self._store.get(f"{name}/{rank}"))) for rank in there}

    def exchange_last_words(
        self, note: Note, seconds: float = 0.0, enough: Callable[[Mapping[int, Note]], bool] = lambda notes: False
    ) -> dict[int, Note] | None:
        """Write the last words of this replica, and return those of all that come within some seconds.

        A store whose process is stopped holds nobody up.

        Args:
            note: of this replica.
            seconds: to wait for the others.
            enough: whether the notes that have come are enough to return early.

        Returns:
            The notes by rank; None if the store is gone or does not answer.
        """
        found: list[dict[int, Note]] = []

        def talk() -> None:
            deadline = time.monotonic() + seconds
            try:
                self.write("end", note)
                while len(notes := self.read_all("end", Note)) < self._world_size:
                    if enough(notes) or time.monotonic() > deadline:
                        break
                    time.sleep(_POLL_SECONDS)
                found.append(notes)
            except RuntimeError:  # of the store
                return

        # A store that does not answer would hold this thread in C++, where no signal reaches it.
        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        thread.join(seconds + _STORE_SECONDS)
        return found[0] if found else None


def whose_fault(notes: Mapping[int, Note], peers: Sequence[Peer]) -> tuple[int, str] | None:
    """Return which replica was lost and how, from the last words of all and from what the system says of the silent.

    Returns:
        Rank and what it did; None while that is not certain.
    """
    for rank, note in notes.items():
        if note.error:
            return rank, f"raised {note.error}\n\nIts traceback:\n{note.traceback}"
    for rank, note in notes.items():
        if not note.lost_contact:
            return rank, "has left the run while others go on"
    for rank, peer in enumerate(peers):
        if rank not in notes and (state := peer.state()):
            return rank, state
    late = [rank for rank, note in notes.items() if not note.timed_out]
    if late and len(notes) == len(peers) and len(late) < len(notes):
        return late[0], "was later than the others would wait"
    return None
