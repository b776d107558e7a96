"""Workers in this process, for debugging and tests: breakpoints stop in them, and what they print comes in order."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from rlpyt.utils.compute import torch_threads
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import global_streams, set_global_streams
from rlpyt.utils.watched import Picklable, WorkerError, receive_asking


class Server(Protocol):
    """Server of a worker."""

    def __call__(self, request: Picklable, /) -> Picklable:
        """Answer one."""

    def close(self) -> None:
        """End."""


class WorkerHere:
    """Server in this process, which answers a request when it is sent.

    It has one torch thread and global generators of its own, as in a process. Requests come as bytes, so that what it
    is sent is a copy, as there.
    """

    def __init__(self, rank: int, serve: Callable[..., Server], args: Sequence[object], role: str) -> None:
        self.rank, self.progress, self._role = rank, Progress(), role
        self._streams = global_streams()
        self._server: Server | None = None
        self._replies: list[Picklable] = []
        self._error: WorkerError | None = None
        with self._as_its_own_process():
            self._server = serve(rank, self.progress, *args)

    @property
    def pid(self) -> None:
        """Process number: it has no process of its own."""
        return

    def seen_at(self) -> str:
        """Return the name of the worker, for messages."""
        return f"{self._role} {self.rank} (in this process)"

    def send_bytes(self, data: bytes, timeout: float = 300.0) -> None:
        """Answer a request; the reply, or the error in its place, is there to be received."""
        if self._error is None:
            assert self._server is not None, "it was made without an error"
            with self._as_its_own_process():
                self._replies.append(self._server(pickle.loads(data)))

    def receive(self, timeout: float = 300.0) -> Picklable:
        """Return the oldest reply, or raise the error that came in its place."""
        if self._error is not None:
            raise self._error
        return self._replies.pop(0)

    def close(self) -> None:
        """Close the server."""
        if self._server is not None:
            self._server.close()

    @contextmanager
    def _as_its_own_process(self) -> Iterator[None]:
        """Let the block have one thread and the generators of this worker, and keep its error."""
        streams = global_streams()
        set_global_streams(self._streams)
        try:
            with torch_threads(1):
                yield
        except BaseException as error:
            text = (
                f"{self.seen_at()} raised {type(error).__name__}: {error}\n\nIts traceback:\n{traceback.format_exc()}"
            )
            self._error = WorkerError(text, self.rank)
            self._error.__cause__ = error
            if not isinstance(error, Exception):
                raise  # Ctrl-C is not the worker's; the worker is lost all the same
        finally:
            self._streams = global_streams()
            set_global_streams(streams)


class WorkersHere(NamedTuple):
    """Workers in this process; see `rlpyt.utils.worker_pool.WorkerKind`."""

    serve: Callable[..., Server]
    """Makes the server of a worker; called with rank, progress and the worker's arguments."""
    role: str = "Worker"
    """Noun of the workers in messages."""
    own_generators: bool = True
    """See `rlpyt.utils.worker_pool.WorkerKind`: they are exchanged while a worker works."""

    def start(self, rank: int, args: tuple[object, ...]) -> WorkerHere:
        """Make a server."""
        return WorkerHere(rank, self.serve, args, self.role)

    def receive(
        self,
        workers: Sequence[WorkerHere],
        timeout: float,
        replace: Callable[[WorkerError], WorkerHere] | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> list[Picklable]:
        """Return one reply of every worker: all are there."""
        return receive_asking(lambda waiting, seconds: waiting, workers, timeout, replace, on_wait)

    def stop(self, workers: Sequence[WorkerHere], seconds: float | None = None) -> None:
        """Close the servers."""
        for worker in workers:
            worker.close()
