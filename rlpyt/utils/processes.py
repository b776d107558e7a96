"""Worker processes that cannot hang their master, and whose errors come home.

Every wait in the master watches the worker's message, its sentinel (a death is seen in milliseconds) and a
progress counter in shared memory (a worker that stands still too long is stopped). What goes wrong in a
worker is raised in the master as `WorkerError` with the worker's own traceback. A worker ignores Ctrl-C (the
master tells it when to stop) and is killed by the kernel when its master dies, even in the middle of a step.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from rlpyt.utils.cgroups import cpu_quota
from rlpyt.utils.progress import Progress
from rlpyt.utils.shared_memory import dumps, shared_array
from rlpyt.utils.worker_main import DONE, ONE_THREAD, Failure, poll_for, spin, worker_main

START_METHODS = ("forkserver", "spawn", "fork")
_STOP_SECONDS = 5.0  # how long a worker may take to close its environments before it is killed


class WorkerError(RuntimeError):
    """A worker raised, died or stood still; the message says which, where, and shows its traceback.

    Args:
        message: says it.
        rank: of the worker.
    """

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class Worker:
    """One process that answers requests with the server that `serve(rank, progress, *args)` makes in it.

    A server is called with a request and returns the reply; its `close()` is called at the end. `progress` is a
    `Progress` in shared memory: the server writes it; the master reads it to see that the worker lives, and to say
    where it stopped.
    """

    def __init__(self, rank: int, serve: Callable[..., Any], args: Sequence[Any], start_method: str) -> None:
        if start_method not in START_METHODS:
            raise ValueError(
                f"Starting worker {rank}: start_method is {start_method!r}; expected one of {START_METHODS}."
            )
        context: Any = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            context.set_forkserver_preload(["rlpyt.utils.processes", "rlpyt.samplers"])
        self.rank = rank
        self.progress = Progress(shared_array(Progress.SIZE, np.int64))
        try:
            first_request = dumps((serve, rank, self.progress, tuple(args)))  # before there is a process to be left
        except Exception as error:
            raise TypeError(
                f"Starting worker {rank}: what it is to work with cannot be sent to another process: {error}. Let the "
                "environment's class make it (open the file, connect, take the lock) from plain arguments."
            ) from error
        self._connection, child = context.Pipe()
        lifeline, self._lifeline = context.Pipe(duplex=False)
        inherited = [self._connection, self._lifeline] if start_method == "fork" else []
        # The kernel counts the thread that started a process as its parent; a forkserver starts all in its main thread.
        parent_stays = start_method == "forkserver" or threading.current_thread() is threading.main_thread()
        self._process = context.Process(
            target=worker_main,
            args=(child, lifeline, inherited, parent_stays),
            daemon=True,
            name=f"rlpyt-worker-{rank}",
        )
        with _start_conditions():
            self._process.start()
        child.close()
        lifeline.close()
        self._has_reply = poll_for([self._connection.fileno()])
        self._socket = socket.socket(fileno=os.dup(self._connection.fileno()))  # for the bound on a write alone
        self.send_bytes(first_request)

    @property
    def pid(self) -> int | None:
        """Process number."""
        pid: int | None = self._process.pid
        return pid

    def send(self, request: Any) -> None:
        """Send a request; shared arrays in it go by reference.

        Raises:
            WorkerError: if the worker is dead; with the error that it raised, where it raised one.
        """
        self.send_bytes(dumps(request))

    def send_bytes(self, data: bytes, timeout: float = 300.0) -> None:
        """Send a request that `dumps` has made: made once, it may be sent many times.

        Args:
            data: the request.
            timeout: seconds that the worker may take to read so much of it that the rest fits into the pipe.
        """
        bound = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
        try:
            self._connection.send_bytes(data)
        except (BrokenPipeError, ConnectionResetError):
            if self._has_reply.poll(0):
                self.receive()  # what it said last: the error that it died of, if it could tell one
            raise self._death() from None
        except BlockingIOError:
            text = f"{self._where()} has made no progress for {timeout:g} s: it does not read what it is sent."
            raise WorkerError(text, self.rank) from None

    def receive(self) -> Any:
        """Return the reply that has arrived.

        Raises:
            WorkerError: if the worker raised, or is dead.
        """
        # A reply sent before a death is still in the pipe, so it is looked for first.
        if not self._has_reply.poll(0):
            raise self._death()
        try:
            reply = pickle.loads(self._connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        if isinstance(reply, Failure):
            text = f"{self._where()} raised {reply.error}\n\nIts traceback:\n{reply.traceback}"
            raise WorkerError(text, self.rank)
        return reply

    def _where(self) -> str:
        at = self.progress
        return f"Worker {self.rank} (pid {self.pid}), last seen at environment {at.env_rank}, step {at.step},"

    def _death(self) -> WorkerError:
        self._process.join(timeout=1.0)
        code = self._process.exitcode
        how = f"exited with code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            how += " (out of memory, if nobody killed it by hand)" if code == -signal.SIGKILL else ""
        hint = (
            " If it died before its first reply, look above for its own message; a script that starts workers must "
            "stand under `if __name__ == '__main__':`."
        )
        return WorkerError(f"{self._where()} {how}.{'' if any(self.progress.numbers()) else hint}", self.rank)


@contextmanager
def _start_conditions() -> Iterator[None]:
    """Have a process that is started meanwhile find one thread for each of its pools, and a main module it can run.

    Both are read before any code of ours: numpy makes its threads when it is imported, and multiprocessing runs the
    main module's file, which a script on standard input has not.
    """
    before, main = dict(os.environ), sys.modules["__main__"]
    file = main.__dict__.pop("__file__", None) if main.__dict__.get("__file__") == "<stdin>" else None
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ.update({name: before[name] for name in ONE_THREAD if name in before})
        if file is not None:
            main.__file__ = file


class _Watch:
    """Waits for the first reply of some workers, and sees the ones that die or stand still.

    Args:
        workers: that were each sent a request.
        timeout: seconds that a worker may go without any progress.
    """

    def __init__(self, workers: Sequence[Worker], timeout: float) -> None:
        self._timeout = timeout
        self._worker_of = {fd: w for w in workers for fd in (w._connection.fileno(), w._process.sentinel)}
        self._poller = poll_for(self._worker_of)
        self._seen = {w.rank: (w.progress.numbers(), time.monotonic()) for w in workers}

    def wait(self) -> list[Worker]:
        """Return workers with a reply, or dead; none after a while, so that the caller can look around.

        Raises:
            WorkerError: if a worker has stood still for too long.
        """
        ready = spin(self._poller) or self._poller.poll(1000 * min(0.5, self._timeout))
        if not ready:
            self._check_progress()
        return list({(worker := self._worker_of[fd]).rank: worker for fd, _ in ready}.values())

    def forget(self, worker: Worker) -> None:
        """Wait for this one no more."""
        for fd in (worker._connection.fileno(), worker._process.sentinel):
            self._poller.unregister(fd)
            del self._worker_of[fd]
        del self._seen[worker.rank]

    def _check_progress(self) -> None:
        now = time.monotonic()
        for worker in set(self._worker_of.values()):
            progress, since = self._seen[worker.rank]
            if worker.progress.numbers() != progress:
                self._seen[worker.rank] = (worker.progress.numbers(), now)
            elif now - since > self._timeout:
                raise WorkerError(
                    f"{worker._where()} has made no progress for {self._timeout:g} s. If a step or reset of the "
                    "environment may take that long, raise the sampler's worker_timeout.",
                    worker.rank,
                )


def receive_all(
    workers: Sequence[Worker],
    timeout: float,
    replace: Callable[[WorkerError], Worker] | None = None,
    on_wait: Callable[[], None] | None = None,
) -> list[Any]:
    """Wait for one reply of every worker.

    Args:
        workers: that were each sent a request.
        timeout: seconds that a worker may go without any progress.
        replace: given the error of a lost worker, returns another with the same rank, to which the request was sent; it
            raises the error where there is none. None always raises.
        on_wait: called from time to time while there is nothing to receive.

    Raises:
        WorkerError: as soon as any of them has raised, died or stood still.
    """
    replies: dict[int, Any] = {}
    waiting = {worker.rank: worker for worker in workers}
    watch = _Watch(workers, timeout)
    while waiting:
        try:
            ready = watch.wait()
            for worker in ready:
                replies[worker.rank] = worker.receive()
                watch.forget(worker)
                del waiting[worker.rank]
        except WorkerError as error:
            if replace is None:
                raise
            waiting[error.rank] = replace(error)
            watch = _Watch(list(waiting.values()), timeout)
        else:
            if not ready and on_wait is not None:
                on_wait()
    return [replies[worker.rank] for worker in workers]


def stop_workers(workers: Sequence[Worker], seconds: float | None = None) -> None:
    """Ask all workers to close, wait a little, and kill what is left; may be called again, and after a failure.

    Args:
        workers: to stop.
        seconds: to wait; None is long enough for an environment to close in order.
    """
    for worker in workers:
        with suppress(WorkerError, OSError):
            worker.send_bytes(DONE, timeout=0.01)
    deadline = time.monotonic() + (_STOP_SECONDS if seconds is None else seconds)
    for worker in workers:
        process = worker._process
        process.join(timeout=max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
        for end in (worker._connection, worker._lifeline, worker._socket):
            end.close()


def available_cpus() -> list[int]:
    """Return the cores that this process may run on (its cgroup's or taskset's), not all that the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def allowed_cpus(cpus: int | Sequence[int], what: str) -> list[int]:
    """Return those of some cores that this process may run on, and warn where there is none.

    Args:
        cpus: a core, or several.
        what: where they were named, first word of the warning.
    """
    named = [cpus] if isinstance(cpus, int) else list(cpus)
    available = available_cpus()
    allowed = [cpu for cpu in named if cpu in available]
    if named and not allowed:
        warnings.warn(
            f"{what}: this process may run on none of the cores {named}, only on {available}; nothing is pinned "
            "there. Name some of those.",
            stacklevel=3,
        )
    return allowed


def available_cores() -> int:
    """Return how many cores' worth of work this process can do at a time.

    These are its cores, or fewer where its container may take less time than they have; a part of a core counts as one.
    """
    return max(1, math.ceil(min(len(available_cpus()), cpu_quota())))


def available_threads() -> int:
    """Return the threads worth having: as many as `available_cores`, or fewer where OMP_NUM_THREADS says so."""
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # OpenMP takes a list, one number a level
    n_cores = available_cores()
    return min(n_cores, int(limit)) if limit.isdigit() and int(limit) > 0 else n_cores
