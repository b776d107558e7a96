"""Workers that are asked together, and replaced where they are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlpyt.utils.processes import Worker, WorkerError, receive_all, stop_workers
from rlpyt.utils.shared_memory import dumps, reserve_descriptors

_FILES_A_WORKER = 8  # pipes and their copies, the sentinel, the memory of its progress


class Message(NamedTuple):
    """A request ready to be sent, any number of times; shared arrays in it live as long as it does."""

    request: Any
    data: bytes

    @classmethod
    def of(cls, request: Any) -> Message:
        """Pickle a request."""
        return cls(request, dumps(request))


class WorkerPool:
    """Some workers, each with at most one request under way.

    Args:
        serve: makes the server in a worker; called with rank, progress and the worker's arguments.
        args_of: `args_of(rank, restarts)` returns the arguments; restarts is 0 at first, then counts up.
        n_workers: how many.
        start_method: "forkserver", "spawn" or "fork".
        restarts: lost workers that are replaced, all together, before a loss is raised.
        recover: called when a lost worker has been replaced, with its rank, the progress that the lost one had made and
            the error; brings the new one to where it can take the request under way again, by `ask`, and returns that
            request, or another instead of it.
    """

    start_timeout: float = 600.0
    """Seconds without progress while a worker is built: simulators compile, licences are fetched."""
    timeout: float = start_timeout
    """Seconds that a worker may go without progress afterwards."""

    def __init__(
        self,
        serve: Callable[..., Any],
        args_of: Callable[[int, int], tuple[Any, ...]],
        n_workers: int,
        start_method: str,
        restarts: int = 0,
        recover: Callable[[int, np.ndarray, WorkerError, Any], Any] | None = None,
    ) -> None:
        self._serve, self._start_method = serve, start_method
        self._args_of: Callable[[int, int], tuple[Any, ...]] | None = args_of
        self._recover = recover
        self.restarts_left = restarts
        self.n_restarts = 0
        self._under_way: dict[int, Message] = {}  # requests without a reply yet, by rank
        self._replacing = False
        self.workers: list[Worker] = []
        reserve_descriptors(_FILES_A_WORKER * n_workers)
        try:
            for rank in range(n_workers):
                self.workers.append(self._start(rank))
        except BaseException:
            self.stop()
            raise

    def _start(self, rank: int) -> Worker:
        assert self._args_of is not None, "a stopped pool starts no worker"
        return Worker(rank, self._serve, self._args_of(rank, self.n_restarts), self._start_method)

    def post(self, requests: Mapping[int, Message]) -> None:
        """Send requests by rank, without waiting; a reply not yet received is waited for."""
        self.settle(requests)
        for rank, request in requests.items():
            self._under_way[rank] = request
            try:
                self.workers[rank].send_bytes(request.data, self.timeout)
            except WorkerError as error:
                self._replace(error)

    def settle(self, ranks: Iterable[int]) -> None:
        """Wait for the replies that these workers owe, and drop them."""
        late = [rank for rank in ranks if rank in self._under_way]
        if late:
            self.receive(late)

    def receive(self, ranks: Sequence[int], on_wait: Callable[[], None] | None = None) -> list[Any]:
        """Return the replies to what was posted.

        Args:
            ranks: of the workers, each with a request under way.
            on_wait: called from time to time while there is nothing to receive.

        Raises:
            WorkerError: if a worker is lost and may not be replaced.
        """
        timeout = self.start_timeout if self._replacing else self.timeout
        replies = receive_all([self.workers[rank] for rank in ranks], timeout, self._replace, on_wait)
        for rank in ranks:
            del self._under_way[rank]
        return replies

    def ask(self, requests: Mapping[int, Any], on_wait: Callable[[], None] | None = None) -> list[Any]:
        """Send requests by rank, and return the replies."""
        self.post({rank: Message.of(request) for rank, request in requests.items()})
        return self.receive(list(requests), on_wait)

    def _replace(self, error: WorkerError) -> Worker:
        """Replace a lost worker, and send the new one the request that was under way; raise where none may be."""
        rank = error.rank
        if self._replacing:  # the one that is being brought up is lost too: the loop below goes on
            raise error
        progress, message = self.workers[rank].progress.copy(), self._under_way.pop(rank)
        while self.restarts_left > 0:
            self.restarts_left -= 1
            self.n_restarts += 1
            stop_workers([self.workers[rank]], seconds=0.5)
            try:
                self._replacing = True
                self.workers[rank] = self._start(rank)
                resumed = self._resumed(rank, progress, error, message)
                self.workers[rank].send_bytes(resumed.data)
                self._under_way[rank] = resumed
                return self.workers[rank]
            except WorkerError as another:
                error = another
                self._under_way.pop(rank, None)
            finally:
                self._replacing = False
        try:
            raise error
        finally:
            del error  # its traceback has this frame: a circle would keep shared memory until the collector comes

    def _resumed(self, rank: int, progress: np.ndarray, error: WorkerError, message: Message) -> Message:
        if self._recover is None:
            return message
        request = self._recover(rank, progress, error, message.request)
        return message if request is message.request else Message.of(request)

    def stop(self) -> None:
        """Stop all workers; may be called again.

        What the pool calls is let go too: it belongs to who holds the pool, and a circle would keep shared memory
        until the garbage collector comes.
        """
        workers, self.workers = self.workers, []
        self._args_of = self._recover = None
        stop_workers(workers)
