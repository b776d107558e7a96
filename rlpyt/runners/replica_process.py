"""Processes of the replicas that a run starts on its own machine."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

import torch.distributed as dist

from rlpyt.utils.calls import CallServer, call
from rlpyt.utils.process_group import ReplicaError
from rlpyt.utils.processes import Worker, WorkerError, receive_all, stop_workers
from rlpyt.utils.progress import Progress
from rlpyt.utils.stops import EndOfRun

_START_METHOD = "forkserver"
_END_SECONDS = 60.0  # that a replica may take to close its sampler, after the last iteration


class Trains(Protocol):
    """Runner, as one of the replicas of a run."""

    def train(self) -> None:
        """Train."""


class Joins(Protocol):
    """Group of the replicas of a runner."""

    def join(self, rank: int, world_size: int, store: dist.Store) -> None:
        """Be replica `rank` in the next training."""


class ReplicaServer(CallServer):
    """Server of the process of a replica; `port` is that of the store of replica 0, on this machine."""

    def __init__(self, rank: int, progress: Progress, runner: Trains, group: Joins, world_size: int, port: int) -> None:
        self._runner = runner
        group.join(rank, world_size, dist.TCPStore("127.0.0.1", port, is_master=False))

    def train(self) -> None:
        """Train."""
        self._runner.train()

    def close(self) -> None:
        """Do nothing; the runner has closed everything after its training."""


@contextmanager
def started_replicas(runner: Trains, group: Joins, world_size: int) -> Iterator[tuple[dist.Store, list[Worker]]]:
    """Start replicas 1, 2, ... of a run, with copies of the runner, and stop them when the block ends in any way.

    Yields:
        The store by which they find each other, and the processes.
    """
    # Port 0: the system picks one that is free. It listens on this machine only.
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    workers: list[Worker] = []
    try:
        for rank in range(1, world_size):
            args = (runner, group, world_size, port)
            worker = Worker(
                rank, ReplicaServer, args, _START_METHOD, has_workers=True, obeys_sigterm=True, role="Replica"
            )
            workers.append(worker)
            worker.send(call(ReplicaServer.train))
        yield store, workers
        receive_all(workers, _END_SECONDS)
    except BaseException:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker.pid or 0, signal.SIGTERM)  # it closes its environments
        raise
    finally:
        stop_workers(workers)


class _Interruption(EndOfRun):
    """Carrier of an error through code that handles every Exception, as KeyboardInterrupt is."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def interrupted_by_an_end(workers: Sequence[Worker], error: Callable[[Worker], Exception | None]) -> Iterator[None]:
    """Raise what `error` returns, as Ctrl-C does, as soon as one of some processes has ended while the block runs.

    Outside of the main thread nothing is raised.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal armed
        ended = [worker for worker in workers if worker.has_ended]
        if armed and ended and (raised := error(ended[0])) is not None:
            armed = False
            raise _Interruption(raised)

    before = signal.signal(signal.SIGIO, handle)
    try:
        for worker in workers:
            _signal_at_end(worker, True)
        handle(signal.SIGIO, None)  # one may have ended before
        yield
    except _Interruption as interruption:
        raise interruption.error from None
    finally:
        armed = False
        for worker in workers:
            _signal_at_end(worker, False)  # without a handler the signal would end this process
        signal.signal(signal.SIGIO, before)


def _signal_at_end(worker: Worker, wanted: bool) -> None:
    """Let the kernel send SIGIO when the pipe is closed that a process holds open while it lives."""
    fcntl.fcntl(worker.sentinel, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(worker.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(worker.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC if wanted else flags & ~os.O_ASYNC)


def check_started(workers: Sequence[Worker]) -> None:
    """Raise the error of a replica that has ended before it was in the group; a thread gets no signal of its end."""
    for worker in workers:
        if worker.has_ended:
            raise end_of(worker)


def end_of(worker: Worker) -> ReplicaError:
    """Return the error of a replica that has ended before it was in the group."""
    try:
        worker.receive(1.0)
    except WorkerError as error:
        return ReplicaError(f"Replica {worker.rank} ended at its start.\n{error}", worker.rank)
    return ReplicaError(f"Replica {worker.rank} (pid {worker.pid}) ended at its start.", worker.rank)
