"""Worker processes that cannot hang their master, and whose errors come home.

Every wait in the master watches the worker's message, its sentinel (a death is seen in milliseconds) and a
progress counter in shared memory (a worker that stands still too long is stopped). What goes wrong in a
worker is raised in the master as `WorkerError` with the worker's own traceback. A worker ignores Ctrl-C (the
master tells it when to stop) and is killed by the kernel when its master dies, even in the middle of a step.
"""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.utils.shared_memory import dumps, shared_array

START_METHODS = ("forkserver", "spawn", "fork")
_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 5.0  # how long a worker may take to close its environments before it is killed


class WorkerError(RuntimeError):
    """A worker raised, died or stood still; the message says which, where, and shows its traceback."""


class _Failure(NamedTuple):
    error: str
    traceback: str


class Worker:
    """One process that answers requests with the server that `serve(rank, progress, *args)` makes in it.

    A server is called with a request and returns the reply; its `close()` is called at the end. `progress` is an
    int64 array in shared memory, [environment, step]; the server writes it, the master reads it to see that the
    worker lives, and to say where it stopped.
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
        self.progress = shared_array(2, np.int64)
        try:
            first_request = dumps((serve, rank, self.progress, tuple(args)))  # before there is a process to be left
        except Exception as error:
            raise TypeError(
                f"Starting worker {rank}: what it is to work with cannot be sent to another process: {error}. Let the "
                "environment's class make it (open the file, connect, take the lock) from plain arguments."
            ) from error
        self._connection, child = context.Pipe()
        lifeline, self._lifeline = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_worker_main, args=(child, lifeline), daemon=True, name=f"rlpyt-worker-{rank}"
        )
        self._process.start()
        child.close()
        lifeline.close()
        self._send(first_request)

    @property
    def pid(self) -> int | None:
        """Process number."""
        return self._process.pid

    def send(self, request: Any) -> None:
        """Send a request; shared arrays in it go by reference.

        Raises:
            WorkerError: if the worker is dead.
        """
        self._send(dumps(request))

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send_bytes(data)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death() from None

    def receive(self) -> Any:
        """Return the reply that has arrived.

        Raises:
            WorkerError: if the worker raised, or is dead.
        """
        # A reply sent before a death is still in the pipe, so it is looked for first.
        if not self._connection.poll():
            raise self._death()
        try:
            reply = pickle.loads(self._connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        if isinstance(reply, _Failure):
            raise WorkerError(f"{self._where()} raised {reply.error}\n\nIts traceback:\n{reply.traceback}")
        return reply

    def _where(self) -> str:
        env, step = self.progress
        return f"Worker {self.rank} (pid {self.pid}), last seen at environment {env}, step {step},"

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
        return WorkerError(f"{self._where()} {how}.{hint if not self.progress.any() else ''}")


def receive_all(workers: Sequence[Worker], timeout: float) -> list[Any]:
    """Wait for one reply of every worker.

    Args:
        workers: that were each sent a request.
        timeout: seconds that a worker may go without any progress.

    Raises:
        WorkerError: as soon as any of them has raised, died or stood still.
    """
    replies: dict[int, Any] = {}
    seen = {w.rank: (w.progress.tolist(), time.monotonic()) for w in workers}
    while len(replies) < len(workers):
        waiting = {obj: w for w in workers if w.rank not in replies for obj in (w._connection, w._process.sentinel)}
        ready = {waiting[obj].rank: waiting[obj] for obj in wait(list(waiting), timeout=min(1.0, timeout))}
        replies.update({rank: worker.receive() for rank, worker in ready.items()})
        for worker in waiting.values():
            progress, since = seen[worker.rank]
            if worker.progress.tolist() != progress:
                seen[worker.rank] = (worker.progress.tolist(), time.monotonic())
            elif worker.rank not in replies and time.monotonic() - since > timeout:
                raise WorkerError(
                    f"{worker._where()} has made no progress for {timeout:g} s. If a step or reset of the environment "
                    "may take that long, raise the sampler's worker_timeout."
                )
    return [replies[w.rank] for w in workers]


def stop_workers(workers: Sequence[Worker]) -> None:
    """Ask all workers to close, wait a little, and kill what is left; may be called again, and after a failure."""
    for worker in workers:
        with suppress(WorkerError, OSError):
            worker.send(None)
    deadline = time.monotonic() + _STOP_SECONDS
    for worker in workers:
        process = worker._process
        process.join(timeout=max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
        worker._connection.close()
        worker._lifeline.close()


def _worker_main(connection: Connection, lifeline: Connection) -> None:
    """Serve requests until None comes or the master is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_master(lifeline)
    torch.set_num_threads(1)
    serve, rank, progress, args = _receive(connection) or (None, 0, None, ())
    if serve is None:
        return
    server = None
    try:
        server = serve(rank, progress, *args)
        while (request := _receive(connection)) is not None:
            _send(connection, server(request))
    except BaseException as error:
        _send(connection, _Failure(f"{type(error).__name__}: {error}", traceback.format_exc()))
    finally:
        if server is not None:
            server.close()


def _die_with_master(lifeline: Connection) -> None:
    """Have the kernel kill this process when the other end of the pipe is closed, or when its parent dies.

    Neither is enough: a forkserver, the parent of its workers, lives on as long as one of them does; and a forked
    worker holds the other end of its own pipe.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def _receive(connection: Connection) -> Any:
    """Return the next request; a master that is gone counts as the request to stop."""
    try:
        return pickle.loads(connection.recv_bytes())
    except (EOFError, ConnectionResetError):
        return None


def _send(connection: Connection, reply: Any) -> None:
    data = dumps(reply)
    with suppress(OSError):  # the master is gone: nobody is left to tell
        connection.send_bytes(data)


def available_cpus() -> list[int]:
    """Return the cores that this process may run on (its cgroup's or taskset's), not all that the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def available_threads() -> int:
    """Return the threads worth having: one for each core there is, or fewer where OMP_NUM_THREADS says so."""
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # OpenMP takes a list, one number a level
    n_cpus = len(available_cpus())
    return min(n_cpus, int(limit)) if limit.isdigit() and int(limit) > 0 else n_cpus
