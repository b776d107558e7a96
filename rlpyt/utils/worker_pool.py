"""Pool of workers that replaces lost ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlpyt.utils.processes import Worker, WorkerError, receive_all, stop_workers
from rlpyt.utils.progress import Progress
from rlpyt.utils.shared_memory import dumps, reserve_descriptors

_FILES_A_WORKER = 8  # pipes and their copies, the sentinel, the memory of the progress


class Message(NamedTuple):
    """Pickled request, which may be sent many times. It keeps the shared arrays in it alive."""

    request: Any
    data: bytes

    @classmethod
    def of(cls, request: Any) -> Message:
        """Pickle a request."""
        return cls(request, dumps(request))


class SetUp(NamedTuple):
    """Request that every new worker is sent before it works, and the check of its reply."""

    message: Message
    accept: Callable[[Any], None]


def _same_request(progress: Progress, request: Any) -> Any:
    return request


def _ignore(*args: Any) -> None:
    """Accept every reply."""


class WorkerPool:
    """Workers, each with at most one request under way.

    A lost worker is replaced by a new process, which is sent the set-up requests of the lost one in their order, and
    then the request that was under way.

    Args:
        serve: makes the server in a worker; called with rank, progress and the worker's arguments.
        args_of: `args_of(rank, restarts)` returns the arguments; restarts is 0 at first, then counts up.
        n_workers: number of workers.
        start_method: "forkserver", "spawn" or "fork".
        restarts: lost workers that are replaced, all together, before a loss is raised.
        on_loss: `on_loss(progress, request)` returns the request that the new worker takes up; it is given the
            progress that the lost worker had made, and the request that was under way. It changes nothing.
        tell: `tell(error, restarts_left)` is called for every worker that was replaced.
        on_wait: called from time to time while there is nothing to receive, where a call gives no function of its own.
        has_workers: whether the servers start workers of their own.
        role: noun of the workers in messages.
    """

    start_timeout: float = 600.0
    """Seconds without progress while a worker is set up: simulators compile, licences are fetched."""
    timeout: float = start_timeout
    """Seconds that a worker may go without progress afterwards."""

    def __init__(
        self,
        serve: Callable[..., Any],
        args_of: Callable[[int, int], tuple[Any, ...]],
        n_workers: int,
        start_method: str,
        restarts: int = 0,
        on_loss: Callable[[Progress, Any], Any] = _same_request,
        tell: Callable[[WorkerError, int], None] = _ignore,
        on_wait: Callable[[], None] = _ignore,
        has_workers: bool = False,
        role: str = "Worker",
    ) -> None:
        self._serve, self._start_method = serve, start_method
        self._args_of: Callable[[int, int], tuple[Any, ...]] | None = args_of
        self._on_loss, self._tell, self._on_wait = on_loss, tell, on_wait
        self._has_workers, self._role = has_workers, role
        self.restarts_left = restarts
        self.n_restarts = 0
        self._under_way: dict[int, Message] = {}  # requests without a reply yet, by rank
        self._set_up: dict[int, list[SetUp]] = {rank: [] for rank in range(n_workers)}
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
        args = self._args_of(rank, self.n_restarts)
        return Worker(rank, self._serve, args, self._start_method, has_workers=self._has_workers, role=self._role)

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
        """Wait for the replies under way of these workers, and drop them."""
        late = [rank for rank in ranks if rank in self._under_way]
        if late:
            self.receive(late)

    def receive(self, ranks: Sequence[int], on_wait: Callable[[], None] | None = None) -> list[Any]:
        """Return the replies to posted requests.

        Args:
            ranks: of the workers, each with a request under way.
            on_wait: called from time to time while there is nothing to receive.

        Raises:
            WorkerError: if a worker is lost and may not be replaced.
        """
        workers = [self.workers[rank] for rank in ranks]
        replies = receive_all(workers, self.timeout, self._replace, on_wait or self._on_wait)
        for rank in ranks:
            del self._under_way[rank]
        return replies

    def ask(self, requests: Mapping[int, Any], on_wait: Callable[[], None] | None = None) -> list[Any]:
        """Send requests by rank, and return the replies."""
        self.post({rank: Message.of(request) for rank, request in requests.items()})
        return self.receive(list(requests), on_wait)

    def set_up(self, requests: Mapping[int, Any], accept: Callable[[Any], None] = _ignore) -> list[Any]:
        """Send requests by rank that every later worker of the rank is sent too, and return the replies.

        Args:
            requests: by rank.
            accept: called with each reply, also with those of later workers; its errors are raised unchanged.
        """
        messages = {rank: Message.of(request) for rank, request in requests.items()}
        self.post(messages)
        replies = self.receive(list(messages))
        for (rank, message), reply in zip(messages.items(), replies, strict=True):
            accept(reply)
            self._set_up[rank].append(SetUp(message, accept))
        return replies

    def _replace(self, error: WorkerError) -> Worker:
        """Replace a lost worker and send the new one the request under way; raise the error if none is left."""
        rank = error.rank
        progress, lost = self.workers[rank].progress.copy(), self._under_way.pop(rank)
        while self.restarts_left > 0:
            self.restarts_left -= 1
            self.n_restarts += 1
            stop_workers([self.workers[rank]], seconds=0.5)
            try:
                worker = self.workers[rank] = self._start(rank)
                self._tell(error, self.restarts_left)
                for message, accept in self._set_up[rank]:
                    worker.send_bytes(message.data, self.start_timeout)
                    accept(receive_all([worker], self.start_timeout)[0])
                request = self._on_loss(progress, lost.request)
                resumed = lost if request is lost.request else Message.of(request)
                worker.send_bytes(resumed.data)
                self._under_way[rank] = resumed
                return worker
            except WorkerError as another:
                error = another
        try:
            raise error
        finally:
            del (
                error
            )  # its traceback has this frame: the circle would keep shared memory until the garbage collector runs

    def count_restarts(self, n: int) -> None:
        """Count restarts of an earlier process of this run, too: later ones have other seeds, and fewer are left."""
        self.restarts_left = max(0, self.restarts_left + self.n_restarts - n)
        self.n_restarts = n

    def stop(self) -> None:
        """Stop all workers; may be called again.

        The pool also drops the functions that it calls. They belong to the owner of the pool, and the circle would keep
        shared memory until the garbage collector runs.
        """
        workers, self.workers = self.workers, []
        self._args_of, self._on_loss, self._tell, self._set_up = None, _same_request, _ignore, {}
        self._on_wait = _ignore
        stop_workers(workers)
