"""Waiting for workers, wherever they run: for their replies, their errors, and signs that they stand still."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from rlpyt.utils.progress import Progress

Picklable: TypeAlias = Any
"""Whatever pickles: a request to a worker, or its reply."""


class WorkerError(RuntimeError):
    """Error of a worker that raised, died or stood still; the message has its place and traceback."""

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class AnyWorker(Protocol):
    """Worker wherever it runs: what a pool and a watch need of it."""

    rank: int
    progress: Progress

    @property
    def pid(self) -> int | None:
        """Number of its process on this machine; None where it has none."""

    def send_bytes(self, data: bytes, timeout: float = 300.0) -> None:
        """Send a pickled request."""

    def receive(self, timeout: float = 300.0) -> Picklable:
        """Return the reply that has arrived, or raise the error that came in its place."""

    def seen_at(self) -> str:
        """Return the name of the worker and where it was last seen, for messages."""


W = TypeVar("W", bound=AnyWorker)


class AnyWatch(Protocol[W]):
    """Watch over workers with a request under way."""

    def wait(self) -> list[W]:
        """Return workers whose reply or error can be received; none after a while.

        Raises:
            WorkerError: if a worker has stood still for too long.
        """

    def forget(self, worker: W) -> None:
        """Stop waiting for a worker."""


class Stalls:
    """Times since which workers with a request under way make no progress."""

    def __init__(self, workers: Iterable[AnyWorker], timeout: float) -> None:
        self._timeout = timeout
        self._seen = {w.rank: (w.progress.numbers(), time.monotonic()) for w in workers}

    def check(self, workers: Iterable[AnyWorker]) -> None:
        """Raise WorkerError if one of these workers has stood still for too long."""
        now = time.monotonic()
        for worker in workers:
            progress, since = self._seen[worker.rank]
            if worker.progress.numbers() != progress:
                self._seen[worker.rank] = (worker.progress.numbers(), now)
            elif now - since > self._timeout:
                raise WorkerError(
                    f"{worker.seen_at()} has made no progress for {self._timeout:g} s. If a step or reset of the "
                    "environment may take that long, raise the sampler's worker_timeout.",
                    worker.rank,
                )


_LOOK_SECONDS = 0.5  # between two looks at what workers are at


class Asking(Generic[W]):
    """Watch that asks a function which workers are ready; see `receive_asking`."""

    def __init__(
        self, workers: Iterable[W], timeout: float, ready: Callable[[Sequence[W], float], Iterable[W]]
    ) -> None:
        self._waiting = {worker.rank: worker for worker in workers}
        self._stalls, self._ready = Stalls(self._waiting.values(), timeout), ready
        self._seconds = min(_LOOK_SECONDS, timeout)

    def wait(self) -> list[W]:
        """Return workers whose reply or error can be received; none after a while."""
        ready = list(self._ready(list(self._waiting.values()), self._seconds))
        if not ready:
            self._stalls.check(self._waiting.values())
        return ready

    def forget(self, worker: W) -> None:
        """Stop waiting for a worker."""
        del self._waiting[worker.rank]


def receive_watched(
    workers: Sequence[W],
    make_watch: Callable[[Sequence[W]], AnyWatch[W]],
    timeout: float,
    replace: Callable[[WorkerError], W] | None = None,
    on_wait: Callable[[], None] | None = None,
    soon: Callable[[Sequence[W]], Sequence[W]] = lambda workers: (),
) -> list[Picklable]:
    """Wait for one reply of every worker, and return the replies.

    Args:
        workers: each with a request under way.
        make_watch: makes a watch over workers.
        timeout: seconds to wait for the rest of a reply that has arrived in part.
        replace: takes the error of a lost worker, and returns a new worker of the same rank with the request under way;
            it raises the error if there is none. None always raises.
        on_wait: called from time to time while there is nothing to receive.
        soon: returns workers whose reply or error comes within a moment, before a watch is made; none are waited for.

    Raises:
        WorkerError: as soon as any of them has raised, died or stood still.
    """
    replies: dict[int, Picklable] = {}
    waiting = {worker.rank: worker for worker in workers}
    # Made for those who do not reply soon: it takes as long as a step of an environment.
    watch: AnyWatch[W] | None = None
    while waiting:
        try:
            if watch is None and not (ready := soon(list(waiting.values()))):
                watch = make_watch(list(waiting.values()))
            if watch is not None:
                ready = watch.wait()
            for worker in ready:
                replies[worker.rank] = worker.receive(timeout)
                del waiting[worker.rank]
                if watch is not None:
                    watch.forget(worker)
        except WorkerError as error:
            if replace is None:
                raise
            waiting[error.rank] = replace(error)
            watch = None
        else:
            if not ready and on_wait is not None:
                on_wait()
    return [replies[worker.rank] for worker in workers]


def receive_asking(
    ready: Callable[[Sequence[W], float], Iterable[W]],
    workers: Sequence[W],
    timeout: float,
    replace: Callable[[WorkerError], W] | None = None,
    on_wait: Callable[[], None] | None = None,
) -> list[Picklable]:
    """Wait for one reply of every worker, and return the replies.

    Args:
        ready: `ready(workers, seconds)` returns those of the workers whose reply or error can be received; it waits for
            the first, and returns none after so many seconds.
        workers: each with a request under way.
        timeout: seconds that a worker may be without progress.
        replace: see `receive_watched`.
        on_wait: called from time to time while there is nothing to receive.

    Raises:
        WorkerError: as soon as any of them has raised, died or stood still.
    """
    return receive_watched(workers, lambda waiting: Asking(waiting, timeout, ready), timeout, replace, on_wait)
