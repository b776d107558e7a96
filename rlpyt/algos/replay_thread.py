"""Thread that draws the batches of an iteration ahead, while updates compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import Generic, NoReturn, Protocol, Self, TypeVar

import torch

BatchT = TypeVar("BatchT")
ResultT = TypeVar("ResultT")


class Call(Protocol):
    """Call that was handed over, a `Future`."""

    def result(self) -> object:
        """Wait for the call, and return or raise what it has."""


class ReplayThread(Generic[BatchT]):
    """Thread that uses the replay in the learner's stead, as a context around the updates of an iteration.

    It makes one call after the other, in the order in which they were handed over, so nothing depends on which thread
    is faster. What a call raises comes to the learner from `next_batch` or from the end of the context, by which all
    calls have been made; after an exception, those that have not begun are dropped. Calls see the learner's context
    variables: the current logger, and what numpy does about floating-point errors.

    Args:
        draw: draws the batch of one update.
        n_batches: batches to draw ahead, all in all. Further ones are drawn when they are asked for.
    """

    def __init__(self, draw: Callable[[], BatchT], n_batches: int) -> None:
        self._draw, self._n_batches, self._n_left = draw, n_batches, n_batches
        self._drawn: Future[BatchT] | None = None
        self._under_way: deque[Call] = deque()

    def __enter__(self) -> Self:
        self._torch_threads, self._context = torch.get_num_threads(), copy_context()
        # A team of threads for each of the two would be more threads than cores.
        self._pool = ThreadPoolExecutor(1, "replay", initializer=torch.set_num_threads, initargs=(1,))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._pool.shutdown(cancel_futures=kind is not None)
        finally:  # after a second Ctrl-C too
            # The number of a thread is also that of threads to come.
            torch.set_num_threads(self._torch_threads)
        if kind is not None:
            return
        self._wait_for(None)
        if self._drawn is not None:  # the replay's random stream is further than without the thread
            raise RuntimeError(
                f"Learning with prefetch: {self._n_batches} updates took {self._n_batches - self._n_left} batches, and "
                "one more was drawn ahead; expected a batch or more an update. Call sample_batch of the base class in "
                "every update, or leave prefetch out."
            )

    def next_batch(self) -> BatchT:
        """Return the batch of the next update, and have the one after it drawn."""
        drawn = self._drawn or self.submit(self._draw)
        self._wait_for(drawn)
        self._n_left -= 1
        self._drawn = self.submit(self._draw) if self._n_left > 0 else None
        return drawn.result()

    def submit(self, call: Callable[..., ResultT], *args: object) -> Future[ResultT]:
        """Hand over a call, to be made after those before it."""
        future = self._pool.submit(self._context.run, call, *args)
        self._under_way.append(future)
        return future

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Copying an algorithm with prefetch: an update is under way, and a thread uses the replay; expected a copy "
            "between two iterations. Copy it in a hook of the runner, or leave prefetch out."
        )

    def _wait_for(self, last: Call | None) -> None:
        """Wait for the calls up to `last`, or for all; raise what the first that failed has raised."""
        while self._under_way:
            call = self._under_way.popleft()
            call.result()
            if call is last:
                return
