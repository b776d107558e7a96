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

    Args:
        of: count, process and descriptors of the bell that was sent; None makes a new one.
    """

    def __init__(self, of: tuple[np.ndarray, int, int, int] | None = None) -> None:
        if of is None:
            self._count = shared_array(1, np.int64)
            self._reads, self._writes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        else:
            self._count, pid, *ends = of
            how = os.O_NONBLOCK | os.O_CLOEXEC
            self._reads, self._writes = (
                os.open(f"/proc/{pid}/fd/{fd}", how | mode)
                for fd, mode in zip(ends, (os.O_RDONLY, os.O_WRONLY), strict=True)
            )
        self._poller = poll_for([self._reads])

    def __reduce__(self) -> tuple[object, ...]:
        return Bell, ((self._count, os.getpid(), self._reads, self._writes),)

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
