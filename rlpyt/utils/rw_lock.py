"""Read-write lock between processes that starves neither side and outlives the death of its holders.

The lock is kept by the kernel (`flock` on files without a name), which releases it when its holder dies. A process that
waits tries again and again, so that Ctrl-C, a bound of time and a check of the other processes all work.

A reader or writer passes a gate into a room: readers share the room, a writer has it alone. A writer that waits for the
room to empty keeps the gate closed, so readers cannot starve it. A process that was inside lets those who wait go
first, so nobody starves another by coming back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from types import TracebackType
from typing import ClassVar, Final

import numpy as np

from rlpyt.utils.shared_memory import SharedMemory, shared_array

_OUT, _WAITS, _READS, _WRITES = range(4)
_DOES: Final = {_WAITS: "waits", _READS: "reads", _WRITES: "writes"}
_SPIN_SECONDS = 200e-6
_PAUSE_SECONDS = 50e-6
_YIELD_SECONDS = 0.1  # to let others go first, who try every 0.1 ms; one that is stopped holds nobody up for longer
_CELLS_A_ROLE = 3  # process id, what it does, how often it was inside
_NOTHING: Final = nullcontext()


class LockError(RuntimeError):
    """Error of a lock that could not be had in time, or whose last writer did not finish."""


class NoLock:
    """Lock for data of one process, where nobody waits: `with lock.reading:` and `with lock.writing:` do nothing."""

    shared: ClassVar[bool] = False
    """Whether there are other processes, so that the data must lie in shared memory."""
    seconds_waited: float = 0.0
    """Time that this process has waited so far."""
    explain: Callable[[], str] = str
    """Gives more text for a `LockError`; or raises a better error, such as what another process died of."""

    @property
    def reading(self) -> AbstractContextManager[None]:
        """Context in which nobody writes."""
        return _NOTHING

    @property
    def writing(self) -> AbstractContextManager[None]:
        """Context in which nobody else reads or writes."""
        return _NOTHING

    def join(self, role: str) -> None:
        """Say which role this process has."""


class RwLock(NoLock):
    """Read-write lock between the processes of some roles.

    Made in one process and sent to others by `rlpyt.utils.shared_memory.dumps`. Each of them calls `join` first. No two
    threads of a process may use it at the same time.

    A writer that died inside, or left it by an exception, may have left half of what it wrote. The next process that
    comes in gets a `LockError` that names that writer.

    Args:
        roles: one for each process, for messages.
        timeout: seconds to wait at most.
        what: what the lock protects, for messages.
        memory: of the lock in another process; None makes it.
    """

    shared: ClassVar[bool] = True
    _gate = _room = -1  # descriptors of this process, once it has joined

    def __init__(
        self,
        roles: Sequence[str],
        timeout: float = 60.0,
        what: str = "shared data",
        memory: tuple[Sequence[SharedMemory], np.ndarray] | None = None,
    ) -> None:
        self.roles, self.timeout, self.what = tuple(roles), timeout, what
        self._memory = memory or (
            [SharedMemory.allocate(1) for _ in range(2)],
            shared_array(1 + _CELLS_A_ROLE * len(roles), np.int64),
        )
        # Number of the role inside to write, from 1; then the cells of each role.
        self._cells = self._memory[1].data
        self._me = -1  # place of this role's cells
        self._inside = False
        self.seconds_waited = 0.0

    @property
    def reading(self) -> AbstractContextManager[None]:
        """Context in which nobody writes."""
        return _Section(self, _READS)

    @property
    def writing(self) -> AbstractContextManager[None]:
        """Context in which nobody else reads or writes."""
        return _Section(self, _WRITES)

    def __reduce__(self) -> tuple[object, ...]:
        return RwLock, (self.roles, self.timeout, self.what, self._memory)

    def join(self, role: str) -> None:
        """Open the lock in this process, which has one of the roles.

        Raises:
            ValueError: if there is no such role.
        """
        if role not in self.roles:
            raise ValueError(f"Joining the lock of {self.what}: got role {role!r}; expected one of {self.roles}.")
        self._close()
        # Opened anew: a lock of the kernel belongs to an open file, and forked processes share one.
        self._gate, self._room = (os.open(f"/proc/self/fd/{f.fd}", os.O_RDWR | os.O_CLOEXEC) for f in self._memory[0])
        places = [1 + _CELLS_A_ROLE * i for i in range(len(self.roles))]
        self._me = places[self.roles.index(role)]
        self._others = [place for place in places if place != self._me]
        self._cells[self._me], self._cells[self._me + 1] = os.getpid(), _OUT

    def acquire(self, act: int) -> None:
        """Come in to read or to write; see `reading` and `writing`."""
        if self._me < 0 or self._inside:
            wrong = "this process has joined under no role" if self._me < 0 else "this process is inside already"
            raise RuntimeError(f"Taking the lock of {self.what}: {wrong}; expected join(role) once, and no nested use.")
        cells, me = self._cells, self._me
        try:
            if any(cells[place + 1] == _WAITS for place in self._others) or not self._enter(act):
                self._wait(act)
            cells[me + 1] = act
            cells[me + 2] += 1
            self._inside = True
            if cells[0]:
                raise self._error(self._half_written(act))
            if act == _WRITES:
                cells[0] = me
        except BaseException:
            self._leave()
            raise

    def release(self, completed: bool) -> None:
        """Go out again.

        Args:
            completed: False where an exception came in between: what was written may be half of it.
        """
        if completed and self._cells[0] == self._me:  # not by its act, which one that yields may have taken back
            self._cells[0] = 0
        self._leave()

    def _leave(self) -> None:
        self._inside = False
        self._cells[self._me + 1] = _OUT
        flock(self._room, LOCK_UN)
        flock(self._gate, LOCK_UN)

    def _enter(self, act: int) -> bool:
        """Try to come in. A writer that finds readers in the room keeps the gate closed."""
        writes = act == _WRITES
        try:
            flock(self._gate, LOCK_NB | (LOCK_EX if writes else LOCK_SH))
            flock(self._room, LOCK_NB | (LOCK_EX if writes else LOCK_SH))
        except BlockingIOError:
            if not writes:
                flock(self._gate, LOCK_UN)
            return False
        flock(self._gate, LOCK_UN)
        return True

    def _wait(self, act: int) -> None:
        """Let those go first who wait already, then try until it succeeds."""
        start = time.monotonic()
        self._yield(start)
        cells, me = self._cells, self._me
        while True:
            cells[me + 1] = _WAITS  # again and again, as one that has waited for this process in vain takes it back
            if self._enter(act):
                self.seconds_waited += time.monotonic() - start
                return
            waited = time.monotonic() - start
            if waited > self.timeout:
                raise self._error(self._too_late(act))
            _pause(waited)

    def _yield(self, start: float) -> None:
        """Wait until one of those who wait has been inside, or does not wait any more."""
        cells = self._cells
        first = {place: cells[place + 2] for place in self._others if cells[place + 1] == _WAITS}
        while all(cells[place + 1] == _WAITS and cells[place + 2] == n for place, n in first.items()) and first:
            waited = time.monotonic() - start
            if waited > _YIELD_SECONDS:
                for place in first:
                    cells[place + 1] = _OUT
                return
            _pause(waited)

    # ---- messages ----

    def _error(self, text: str) -> LockError:
        self._leave()
        return LockError(text + self.explain())

    def _name(self, place: int) -> str:
        return f"the {self.roles[place // _CELLS_A_ROLE]} (pid {self._cells[place]})"

    def _doing(self, act: int) -> str:
        return f"{'Writing to' if act == _WRITES else 'Reading'} {self.what}"

    def _half_written(self, act: int) -> str:
        return (
            f"{self._doing(act)}: {self._name(self._cells[0])} died or failed while it wrote, so that what it wrote "
            "may be incomplete; expected every writer to finish. Look for its own error, and start the run again."
        )

    def _too_late(self, act: int) -> str:
        others = [(p, self._cells[p + 1]) for p in self._others]
        who = " and ".join(f"{self._name(place)} still {_DOES[does]}" for place, does in others if does != _OUT)
        return (
            f"{self._doing(act)}: {self._name(self._me)} has waited for {self.timeout:g} s, and "
            f"{who or 'no process says that it is inside'}; expected to come in. Is that process stopped, or "
            "waiting for a disk?"
        )

    def _close(self, close: Callable[[int], None] = os.close) -> None:
        for fd in (self._gate, self._room):
            if fd >= 0:
                close(fd)  # an argument, as at the end of the process the module's own names may be gone
        self._gate = self._room = -1

    def __del__(self) -> None:
        self._close()


class _Section:
    """Stay in a room, to read or to write, as a context."""

    __slots__ = ("_act", "_lock")

    def __init__(self, lock: RwLock, act: int) -> None:
        self._lock, self._act = lock, act

    def __enter__(self) -> None:
        self._lock.acquire(self._act)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release(completed=kind is None)


def _pause(waited: float) -> None:
    """Let others run: for a moment where the wait may be short, else for a while."""
    if waited < _SPIN_SECONDS:
        os.sched_yield()
    else:
        time.sleep(_PAUSE_SECONDS)
