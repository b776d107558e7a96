"""Pool of workers that replaces lost ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias

from rlpyt.utils.calls import AnyCall, Call, R, S
from rlpyt.utils.processes import Worker, WorkerError, receive_all, stop_workers
from rlpyt.utils.progress import Progress
from rlpyt.utils.shared_memory import dumps, reserve_descriptors
from rlpyt.utils.watched import AnyWorker, Picklable, W
from rlpyt.utils.workers_here import Server, WorkersHere

_FILES_A_WORKER = 8  # pipes and their copies, the sentinel, the memory of the progress


class Message(NamedTuple, Generic[S, R]):
    """Pickled call, which may be sent many times. It keeps the shared arrays in it alive."""

    request: Call[S, R]
    data: bytes

    @classmethod
    def of(cls, request: Call[S, R]) -> Message[S, R]:
        """Pickle a call."""
        return cls(request, dumps(request))


AnyMessage: TypeAlias = Message[S, Picklable]
"""Call of any reply."""


def _same_request(progress: Progress, request: Call[S, R]) -> Call[S, R]:
    return request


def _ignore(*args: object) -> None:
    """Accept every reply."""


class WorkerKind(Protocol[W]):
    """Way to run workers: in processes of this machine, or elsewhere."""

    @property
    def own_generators(self) -> bool:
        """Whether a worker has the global generators of random, numpy and torch to itself, as a process has."""

    def start(self, rank: int, args: tuple[object, ...]) -> W:
        """Start a worker; args are those of its server."""

    def receive(
        self,
        workers: Sequence[W],
        timeout: float,
        replace: Callable[[WorkerError], W] | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> list[Picklable]:
        """Return one reply of every worker; see `rlpyt.utils.watched.receive_asking`."""

    def stop(self, workers: Sequence[W], seconds: float | None = None) -> None:
        """Stop workers, whatever state they are in; may be called again.

        Args:
            workers: to stop.
            seconds: to wait for servers to close; None is long enough for an environment to close in order.
        """


AnyKind: TypeAlias = WorkerKind[Any]


@dataclass(frozen=True)
class LocalWorkers:
    """Workers in processes of this machine; see `WorkerKind`."""

    serve: Callable[..., object]
    """Makes the server in a worker; called with rank, progress and the worker's arguments."""
    start_method: str
    """"forkserver", "spawn" or "fork"."""
    role: str = "Worker"
    """Noun of the workers in messages."""

    own_generators: ClassVar[bool] = True
    receive = staticmethod(receive_all)
    stop = staticmethod(stop_workers)

    def start(self, rank: int, args: tuple[object, ...]) -> Worker:
        """Start a process."""
        return Worker(rank, self.serve, args, self.start_method, role=self.role)


HERE = "here"
"""Start method of workers in this process."""


def local_workers(serve: Callable[..., Server], start_method: str, role: str = "Worker") -> AnyKind:
    """Return the workers of this machine: in processes, or by the start method "here" in this one."""
    if start_method == HERE:
        return WorkersHere(serve, role)
    return LocalWorkers(serve, start_method, role)


class WorkerPool(Generic[S]):
    """Workers, each with a server that answers calls, and with at most one call under way.

    A lost worker is replaced by a new process, which is sent the set-up calls of the lost one in their order, and then
    the call that was under way.

    Args:
        kind: starts, hears and stops the workers.
        args_of: `args_of(rank, restarts)` returns the arguments; restarts is 0 at first, then counts up.
        n_workers: number of workers.
        restarts: lost workers that are replaced, all together, before a loss is raised.
        restart_seconds: only the restarts of the last so many seconds count; infinity counts all.
        on_loss: `on_loss(progress, request)` returns the call that the new worker takes up; it is given the progress
            that the lost worker had made, and the call that was under way. It changes nothing.
        tell: `tell(error, restarts_left)` is called for every worker that was replaced.
        on_wait: called from time to time while there is nothing to receive, where a call gives no function of its own.
    """

    start_timeout: float = 600.0
    """Seconds without progress while a worker is set up: simulators compile, licences are fetched."""
    timeout: float = start_timeout
    """Seconds that a worker may go without progress afterwards."""

    def __init__(
        self,
        kind: AnyKind,
        args_of: Callable[[int, int], tuple[object, ...]],
        n_workers: int,
        restarts: int = 0,
        restart_seconds: float = math.inf,
        on_loss: Callable[[Progress, AnyCall[S]], AnyCall[S]] = _same_request,
        tell: Callable[[WorkerError, int], None] = _ignore,
        on_wait: Callable[[], None] = _ignore,
    ) -> None:
        self._kind = kind
        self._args_of: Callable[[int, int], tuple[object, ...]] | None = args_of
        self._on_loss, self._tell, self._on_wait = on_loss, tell, on_wait
        self._restarts, self._restart_seconds = restarts, restart_seconds
        self._restarted_at: list[float] = []  # all restarts of the run
        self._under_way: dict[int, AnyMessage[S]] = {}  # calls without a reply yet, by rank
        # Calls that every new worker is sent before it works, and the checks of the replies.
        self._set_up = {rank: list[tuple[AnyMessage[S], Callable[[Picklable], None]]]() for rank in range(n_workers)}
        self._workers: list[AnyWorker] = []
        reserve_descriptors(_FILES_A_WORKER * n_workers)
        try:
            for rank in range(n_workers):
                self._workers.append(self._start(rank))
        except BaseException:
            self.stop()
            raise

    @property
    def workers(self) -> Sequence[AnyWorker]:
        """The running workers, by rank."""
        return self._workers

    @property
    def n_restarts(self) -> int:
        """Restarts so far."""
        return len(self._restarted_at)

    @property
    def restarts_left(self) -> int:
        """Lost workers that may be replaced now."""
        now = time.monotonic()
        # One of an earlier process of the run was infinitely long ago: only an unlimited time counts it.
        recent = sum(now - at <= self._restart_seconds for at in self._restarted_at)
        return max(0, self._restarts - recent)

    def _start(self, rank: int) -> AnyWorker:
        assert self._args_of is not None, "a stopped pool starts no worker"
        worker: AnyWorker = self._kind.start(rank, self._args_of(rank, self.n_restarts))
        return worker

    def post(self, requests: Mapping[int, Message[S, R]]) -> None:
        """Send calls by rank, without waiting; a reply not yet received is waited for."""
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

    def receive(self, ranks: Sequence[int], on_wait: Callable[[], None] | None = None) -> list[Picklable]:
        """Return the replies to posted calls.

        Args:
            ranks: of the workers, each with a call under way.
            on_wait: called from time to time while there is nothing to receive.

        Raises:
            WorkerError: if a worker is lost and may not be replaced.
        """
        workers = [self.workers[rank] for rank in ranks]
        replies = self._kind.receive(workers, self.timeout, self._replace, on_wait or self._on_wait)
        for rank in ranks:
            del self._under_way[rank]
        return replies

    def ask(self, requests: Mapping[int, Call[S, R]], on_wait: Callable[[], None] | None = None) -> list[R]:
        """Send calls by rank, and return the replies."""
        self.post({rank: Message.of(request) for rank, request in requests.items()})
        return self.receive(list(requests), on_wait)

    def set_up(self, requests: Mapping[int, Call[S, R]], accept: Callable[[R], None] = _ignore) -> list[R]:
        """Send calls by rank that every later worker of the rank is sent too, and return the replies.

        Args:
            requests: by rank.
            accept: called with each reply, also with those of later workers; its errors are raised unchanged.
        """
        messages = {rank: Message.of(request) for rank, request in requests.items()}
        self.post(messages)
        replies = self.receive(list(messages))
        for (rank, message), reply in zip(messages.items(), replies, strict=True):
            accept(reply)
            self._set_up[rank].append((message, accept))
        return replies

    def _replace(self, error: WorkerError) -> AnyWorker:
        """Replace a lost worker and send the new one the call under way; raise the error if none is left."""
        rank = error.rank
        progress, lost = self.workers[rank].progress.copy(), self._under_way.pop(rank)
        while self.restarts_left > 0:
            self._restarted_at.append(time.monotonic())
            self._kind.stop([self._workers[rank]], seconds=0.5)
            try:
                worker = self._workers[rank] = self._start(rank)
                self._tell(error, self.restarts_left)
                for message, accept in self._set_up[rank]:
                    worker.send_bytes(message.data, self.start_timeout)
                    accept(self._kind.receive([worker], self.start_timeout)[0])
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
            # Its traceback has this frame: the circle would keep shared memory until the garbage collector runs.
            del error

    def count_restarts(self, n: int) -> None:
        """Count restarts of an earlier process of this run, too: later ones have other seeds, and fewer are left."""
        self._restarted_at = [-math.inf] * n

    def stop(self) -> None:
        """Stop all workers; may be called again.

        The pool also drops the functions that it calls. They belong to the owner of the pool, and the circle would keep
        shared memory until the garbage collector runs.
        """
        workers, self._workers = self._workers, []
        self._args_of, self._set_up, self._on_loss = None, {}, _same_request
        self._tell = self._on_wait = _ignore
        self._kind.stop(workers)


AnyPool: TypeAlias = WorkerPool[Any]
"""Pool whose servers only its owner knows."""
