"""Count in shared memory that one process raises and another waits for."""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np

from rlpyt.utils.shared_memory import shared_array
from rlpyt.utils.worker_main import poll_for, spin


class Bell:
    """Count of finished work, with a pipe to sleep on; sent to other processes by `rlpyt.utils.shared_memory.dumps`.

    One process rings and one waits. Neither needs the process that made the bell, but while it is sent.
    """

    def __init__(self) -> None:
        self._set(shared_array(1, np.int64), *os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))

    def _set(self, count: np.ndarray, reads: int, writes: int) -> None:
        self._count, self._reads, self._writes = count, reads, writes
        self._poller = poll_for([reads])

    def __reduce__(self) -> tuple[object, ...]:
        return _received, (self._count, os.getpid(), self._reads, self._writes)

    @property
    def count(self) -> int:
        """Work finished so far."""
        return int(self._count[0])

    def ring(self, count: int) -> None:
        """Say how much is finished."""
        self._count[0] = count
        with suppress(BlockingIOError):  # a full pipe wakes whoever waits as well
            os.write(self._writes, b"\0")

    def wait_for(self, count: int, seconds: float) -> bool:
        """Return whether so much is finished; wait for it, but no longer than this."""
        if self.count < count and (spin(self._poller) or self._poller.poll(1000 * seconds)):
            with suppress(BlockingIOError):
                os.read(self._reads, 4096)
        return self.count >= count

    def __del__(self) -> None:
        for fd in (self._reads, self._writes):
            with suppress(OSError):
                os.close(fd)


def _received(count: np.ndarray, pid: int, reads: int, writes: int) -> Bell:
    bell = Bell.__new__(Bell)
    ends = ((reads, os.O_RDONLY), (writes, os.O_WRONLY))
    bell._set(count, *(os.open(f"/proc/{pid}/fd/{fd}", how | os.O_NONBLOCK | os.O_CLOEXEC) for fd, how in ends))
    return bell
