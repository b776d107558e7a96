"""Process that appends batches to a replay as they are collected, while others collect and learn."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from rlpyt.core import Appender
from rlpyt.types import Samples
from rlpyt.utils.arrays import torchify_buffer
from rlpyt.utils.bell import Bell
from rlpyt.utils.calls import CallServer
from rlpyt.utils.processes import Worker
from rlpyt.utils.progress import Progress

_BEAT_SECONDS = 0.2


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
        progress.beat()

    def append(self, itr: int) -> tuple[float, float]:
        """Append the batch of an iteration, and wait for it until it has been collected.

        Returns:
            Seconds of appending it, and of waiting for the lock of the replay.
        """
        self._progress.step = itr
        while not self._bell.wait_for(itr + 1, _BEAT_SECONDS):
            self._progress.beat()
        start, waited = perf_counter(), self._appender.seconds_waited
        self._appender.append_rows(itr, self._places[itr % len(self._places)])
        waited = self._appender.seconds_waited - waited
        return perf_counter() - start - waited, waited

    def close(self) -> None:
        """Do nothing: the replay is the learner's."""


class CopierProcess(Worker):
    """Process of a copier; its errors say at which batch it was."""

    def seen_at(self) -> str:
        """Return at which batch the copier was, for messages."""
        return f"The copier (pid {self.pid}), at the batch of iteration {self.progress.step},"
