"""Process that appends batches to a replay as they are collected, while others collect and learn."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from rlpyt.core import Appender
from rlpyt.types import Samples
from rlpyt.utils.arrays import torchify_buffer
from rlpyt.utils.bell import Bell
from rlpyt.utils.calls import CallServer, call
from rlpyt.utils.processes import Worker
from rlpyt.utils.progress import Progress

_BEAT_SECONDS = 0.2


class Appended(NamedTuple):
    """Reply to a request: a batch is in the replay."""

    seconds: float
    """Time of appending it, without that of waiting for it and for the lock."""
    waited: float
    """Time of waiting for the lock of the replay."""


class CopierServer(CallServer):
    """Copier of batches from the memory of a sampler to a replay.

    Args:
        rank: of the process.
        progress: where its life, and the iteration at hand, are noted.
        appender: stores the batches.
        batches: the places of the sampler's memory.
        bell: rung by the sampler; its count is the number of batches collected so far.
    """

    def __init__(
        self, rank: int, progress: Progress, appender: Appender, batches: Sequence[Samples], bell: Bell
    ) -> None:
        self._progress, self._appender, self._bell = progress, appender, bell
        self._places: list[Samples] = [torchify_buffer(samples) for samples in batches]
        appender.join("copier")
        progress.episodes = 1

    def append(self, itr: int) -> Appended:
        """Append the batch of an iteration; wait for it until it has been collected."""
        self._progress.step = itr
        while not self._bell.wait_for(itr + 1, _BEAT_SECONDS):
            self._progress.episodes += 1
        start, waited = perf_counter(), self._appender.seconds_waited
        self._appender.append_rows(itr, self._places[itr % len(self._places)])
        waited = self._appender.seconds_waited - waited
        return Appended(perf_counter() - start - waited, waited)

    def close(self) -> None:
        """Do nothing: the replay is the learner's."""


class CopierProcess(Worker):
    """Process of a copier; its errors say at which batch it was."""

    def seen_at(self) -> str:
        """Return at which batch the copier was, for messages."""
        return f"The copier (pid {self.pid}), at the batch of iteration {self.progress.step},"


class Copier:
    """Twin of a copier in another process.

    Args:
        appender: goes to that process.
        batches: see `CopierServer`.
        bell: see `CopierServer`.
        start_method: "forkserver", "spawn" or "fork".
    """

    def __init__(self, appender: Appender, batches: Sequence[Samples], bell: Bell, start_method: str) -> None:
        self.process = CopierProcess(1, CopierServer, (appender, batches, bell), start_method)
        self.under_way = 0
        """Batches that it was asked to append, and has not yet."""
        self._seconds = self._waited = 0.0

    def append(self, itr: int) -> None:
        """Let it append the batch of an iteration once that is collected."""
        self.process.send(call(CopierServer.append, itr))
        self.under_way += 1

    def note(self, appended: Appended) -> None:
        """Note the reply to the oldest request."""
        self.under_way -= 1
        self._seconds += appended.seconds
        self._waited += appended.waited

    def take_seconds(self) -> tuple[float, float]:
        """Return the seconds of appending, and those of waiting for the lock, since the last call."""
        seconds = self._seconds, self._waited
        self._seconds = self._waited = 0.0
        return seconds
