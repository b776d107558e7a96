"""Servers that hold a read-write lock in other processes, for tests; importable there."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import numpy as np

from rlpyt.utils.progress import Progress
from rlpyt.utils.rw_lock import RwLock


class Stay(NamedTuple):
    """What a process saw that went in and out again and again."""

    n_inside: int
    n_torn: int
    """Times when the numbers that every writer makes equal were not."""


class LockServer:
    """Reads or writes shared numbers under a lock.

    Args:
        rank: of the worker.
        progress: see `Progress`.
        lock: of the numbers.
        role: of this process.
        numbers: [n] int64, shared; a writer adds 1 to all of them, one after the other.
    """

    def __init__(self, rank: int, progress: Progress, lock: RwLock, role: str, numbers: np.ndarray) -> None:
        self.lock, self.numbers, self.progress = lock, numbers, progress
        lock.join(role)

    def __call__(self, request: tuple[str, float]) -> object:
        name, seconds = request
        return getattr(self, name)(seconds)

    def close(self) -> None:
        return None

    def write(self, seconds: float) -> Stay:
        """Write without a pause."""
        return self._repeat(seconds, True)

    def read(self, seconds: float) -> Stay:
        """Read without a pause."""
        return self._repeat(seconds, False)

    def _repeat(self, seconds: float, writes: bool) -> Stay:
        n_inside, n_torn, end = 0, 0, time.monotonic() + seconds
        while time.monotonic() < end:
            with self.lock.writing if writes else self.lock.reading:
                first = int(self.numbers[0])
                for i in range(len(self.numbers)):
                    if i == len(self.numbers) // 2:
                        os.sched_yield()
                    n_torn += self.numbers[i] != first
                    if writes:
                        self.numbers[i] = first + 1
                if writes and n_inside % 8 == 0:
                    time.sleep(1e-3)  # time for others to come
            n_inside += 1
        return Stay(n_inside, n_torn)

    def hold_to_write(self, seconds: float) -> None:
        """Write half of the numbers and stay inside."""
        with self.lock.writing:
            self._stay(seconds)

    def hold_to_read(self, seconds: float) -> None:
        """Stay inside as a reader."""
        with self.lock.reading:
            self._stay(seconds)

    def _stay(self, seconds: float) -> None:
        self.progress.step += 1  # the test waits for it
        time.sleep(seconds)
