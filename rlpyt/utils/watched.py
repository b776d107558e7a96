"""Waiting for workers, wherever they run: for their replies, their errors, and signs that they stand still."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

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


class Stalls:
    """Times since which workers with a request under way make no progress, from the first look at them on."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._seen: dict[int, tuple[list[int], float]] = {}

    def check(self, workers: Iterable[AnyWorker]) -> None:
        """Raise WorkerError if one of these workers has stood still for too long."""
        now = time.monotonic()
        for worker in workers:
            progress = worker.progress.numbers()
            seen, since = self._seen.setdefault(worker.rank, (progress, now))
            if progress != seen:
                self._seen[worker.rank] = (progress, now)
            elif now - since > self._timeout:
                raise WorkerError(
                    f"{worker.seen_at()} has made no progress for {self._timeout:g} s. If a step or reset of the "
                    "environment may take that long, raise the sampler's worker_timeout.",
                    worker.rank,
                )


LOOK_SECONDS = 0.5
"""Longest time between two looks at what workers are at."""


def receive_asking(
    ready: Callable[[Sequence[W], float], Iterable[W]],
    workers: Sequence[W],
    timeout: float,
    replace: Callable[[WorkerError], W] | None = None,
    on_wait: Callable[[], None] | None = None,
    soon: Callable[[Sequence[W]], Sequence[W]] = lambda workers: (),
) -> list[Picklable]:
    """Wait for one reply of every worker, and return the replies.

    Args:
        ready: `ready(workers, seconds)` returns those of the workers whose reply or error can be received; it waits for
            the first, and returns none after so many seconds.
        workers: each with a request under way.
        timeout: seconds that a worker may be without progress, or the rest of a reply that has arrived in part.
        replace: takes the error of a lost worker, and returns a new worker of the same rank with the request under way;
            it raises the error if there is none. None always raises.
        on_wait: called from time to time while there is nothing to receive.
        soon: returns workers whose reply or error comes within a moment, to be tried first.

    Raises:
        WorkerError: as soon as any of them has raised, died or stood still.
    """
    replies: dict[int, Picklable] = {}
    waiting = {worker.rank: worker for worker in workers}
    stalls = Stalls(timeout)
    came = soon(workers) if workers else ()
    while waiting:
        try:
            came = came or list(ready(list(waiting.values()), min(LOOK_SECONDS, timeout)))
            for worker in came:
                replies[worker.rank] = worker.receive(timeout)
                del waiting[worker.rank]
            if not came:
                stalls.check(waiting.values())
        except WorkerError as error:
            if replace is None:
                raise
            waiting[error.rank] = replace(error)
            stalls = Stalls(timeout)
        else:
            if not came and on_wait is not None:
                on_wait()
        came = ()
    return [replies[worker.rank] for worker in workers]
