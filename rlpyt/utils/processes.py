"""Worker processes that cannot hang their master, and whose errors are raised in the master.

Every wait in the master watches three things: the message of the worker, its sentinel, which shows a death within
milliseconds, and its progress in shared memory, which shows a worker that stands still. An error in a worker is
raised in the master as `WorkerError` with the traceback of the worker. Ctrl-C, SIGTERM and a closed terminal do not
stop a worker, as the master tells it when to stop. The kernel kills it when its master dies, even in the middle of a
step.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import numpy as np

from rlpyt.utils.cgroups import cpu_quota
from rlpyt.utils.process_start import PRELOAD, start_process, variables_set
from rlpyt.utils.progress import Progress
from rlpyt.utils.shared_memory import dumps, shared_array, unsendable
from rlpyt.utils.slurm_job import job_cpus
from rlpyt.utils.watched import LOOK_SECONDS, Picklable, Stalls, receive_asking
from rlpyt.utils.watched import WorkerError as WorkerError
from rlpyt.utils.worker_main import CORES, DONE, SPIN_SECONDS, WORKER_NAME, Failure, poll_for, worker_main

START_METHODS = ("forkserver", "spawn", "fork")
_STOP_SECONDS = 5.0  # how long a worker may take to close its environments before it is killed
_KILL_SECONDS = 5.0  # how long a killed worker may take to end: one that waits for a network folder does not


class Worker:
    """One process that answers requests with the server that `serve(rank, progress, *args)` makes in it.

    A server is called with a request and returns the reply; its `close()` is called at the end. `progress` is a
    `Progress` in shared memory: the server writes it; the master reads it to see that the worker lives, and to say
    where it stopped. The server may start processes of its own. SIGTERM does nothing in the process, as the master may
    need it still; with `obeys_sigterm` it ends it. `role` is the noun of messages.
    """

    def __init__(
        self,
        rank: int,
        serve: Callable[..., Any],
        args: Sequence[object],
        start_method: str,
        *,
        obeys_sigterm: bool = False,
        role: str = "Worker",
    ) -> None:
        if start_method not in START_METHODS:
            raise ValueError(
                f"Starting worker {rank}: start_method is {start_method!r}; expected one of {START_METHODS}."
            )
        context: Any = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            context.set_forkserver_preload(list(PRELOAD))
        self.rank, self._role = rank, role
        self.progress = Progress(shared_array(Progress.SIZE, np.int64))
        try:  # before there is a process that could be left behind
            first_request = dumps((serve, rank, self.progress, tuple(args)))
        except Exception as error:
            raise TypeError(
                f"Starting {role.lower()} {rank}: {unsendable(args)} cannot be sent to another process: {error}. Let "
                "the class that has it make it there (open the file, connect, take the lock) from plain arguments."
            ) from error
        # Shared arrays go by the number of a descriptor, which another block may get once they are gone.
        self._sent: object = args
        self._connection, child = context.Pipe()
        lifeline, self._lifeline = context.Pipe(duplex=False)
        inherited = [self._connection, self._lifeline] if start_method == "fork" else []
        # The kernel counts the thread that started a process as its parent; a forkserver starts all in its main thread.
        parent_stays = start_method == "forkserver" or threading.current_thread() is threading.main_thread()
        self._process = context.Process(
            target=worker_main,
            args=(child, lifeline, inherited, parent_stays, obeys_sigterm, os.environ.get(CORES)),
            name=f"{WORKER_NAME}{rank}",
        )
        # At the end of a program Python waits for its processes, which wait for requests and ignore its SIGTERM. It is
        # told before the start, as a signal that was held back meanwhile may be raised at its end.
        Finalize(self, _kill, (self._process,), exitpriority=0)
        try:
            start_process(self._process, start_method)
        except (EOFError, ConnectionError) as error:
            text = f"Starting {role} {rank}: the forkserver, which starts it, was killed meanwhile."
            raise WorkerError(text) from error
        child.close()
        lifeline.close()
        self._fds = (self._connection.fileno(), self._process.sentinel)  # readable at a reply, and at its end
        self._has_reply = poll_for(self._fds[:1])
        self._socket = socket.socket(fileno=os.dup(self._connection.fileno()))  # for the bounds alone
        self._bounds: dict[int, float] = {}
        self.send_bytes(first_request)

    @property
    def pid(self) -> int | None:
        """Process number."""
        pid: int | None = self._process.pid
        return pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return bool(poll_for(self._fds[1:]).poll(0))

    def send(self, request: Picklable) -> None:
        """Send a request; shared arrays in it go by reference.

        Raises:
            WorkerError: if the worker is dead; it has the error of the worker if the worker raised one.
        """
        self.send_bytes(dumps(request))

    def send_bytes(self, data: bytes, timeout: float = 300.0) -> None:
        """Send a request that `dumps` has pickled; it may be sent to several workers.

        Args:
            data: the request.
            timeout: seconds until the part that is not yet read must fit into the pipe.
        """
        self._bound(socket.SO_SNDTIMEO, timeout)
        try:
            self._connection.send_bytes(data)
        except (BrokenPipeError, ConnectionResetError):
            while self._has_reply.poll(0):
                self.receive()  # raises the error that the worker died of, if it sent one, or that it is dead
            raise self._death() from None
        except BlockingIOError:
            text = f"{self.seen_at()} has made no progress for {timeout:g} s: it does not read what it is sent."
            raise WorkerError(text, self.rank) from None

    def receive(self, timeout: float = 300.0) -> Picklable:
        """Return the reply that has arrived.

        Args:
            timeout: seconds to wait for more of a reply that has arrived in part.

        Raises:
            WorkerError: if the worker raised, is dead, or stands still in the middle of its reply.
        """
        # A reply that was sent before a death is still in the pipe: read it first.
        if not self._has_reply.poll(0):
            raise self._death()
        self._bound(socket.SO_RCVTIMEO, timeout)
        try:
            data = self._connection.recv_bytes()
        except BlockingIOError:
            text = f"{self.seen_at()} has made no progress for {timeout:g} s: the rest of its reply does not come."
            raise WorkerError(text, self.rank) from None
        except (EOFError, OSError):  # also "got end of file during message"
            raise self._death() from None
        self._sent = None
        reply = pickle.loads(data)
        if isinstance(reply, Failure):
            text = f"{self.seen_at()} raised {reply.error}\n\nIts traceback:\n{reply.traceback}"
            raise WorkerError(text, self.rank)
        return reply

    def _bound(self, option: int, seconds: float) -> None:
        """Set how long sending or receiving may take; the system is asked only where it changes."""
        if self._bounds.get(option) != seconds:
            self._socket.setsockopt(socket.SOL_SOCKET, option, _timeval(seconds))
            self._bounds[option] = seconds

    def seen_at(self) -> str:
        """Return the name of the worker and where it was last seen, for messages."""
        at = self.progress
        seen = f", last seen at environment {at.env_rank}, step {at.step}," if any(at.numbers()) else ""
        return f"{self._role} {self.rank} (pid {self.pid}){seen}"

    def _death(self) -> WorkerError:
        self._process.join(timeout=1.0)
        code = self._process.exitcode
        how = f"exited with code {code}{' (or its forkserver was killed)' if code == 255 else ''}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            how += " (out of memory, if nobody killed it by hand)" if code == -signal.SIGKILL else ""
        hint = (
            " If it died before its first reply, look above for its own message; a script that starts workers must "
            "stand under `if __name__ == '__main__':`."
        )
        return WorkerError(f"{self.seen_at()} {how}.{'' if any(self.progress.numbers()) else hint}", self.rank)


def _timeval(seconds: float) -> bytes:
    """Return a time as the socket options take it, in which 0 would mean without end."""
    seconds = min(max(seconds, 1e-3), 1e9)
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def _kill(process: BaseProcess) -> None:
    if process.is_alive():
        process.kill()


def replied(workers: Sequence[Worker], seconds: float) -> list[Worker]:
    """Return workers with a reply and dead ones, as soon as there is one; none after some seconds."""
    worker_of = {fd: worker for worker in workers for fd in worker._fds}
    ready = poll_for(worker_of).poll(1000 * seconds)
    return list({(worker := worker_of[fd]).rank: worker for fd, _ in ready}.values())


def reply_soon(workers: Sequence[Worker], seconds: float = SPIN_SECONDS) -> list[Worker]:
    """Return the same, by asking again and again for a moment: falling asleep and waking up takes ten times as long."""
    deadline = time.perf_counter() + seconds
    while not (ready := [worker for worker in workers if worker._has_reply.poll(0)]):
        if time.perf_counter() > deadline:
            break
        os.sched_yield()
    return ready


def receive_all(
    workers: Sequence[Worker],
    timeout: float,
    replace: Callable[[WorkerError], Worker] | None = None,
    on_wait: Callable[[], None] | None = None,
) -> list[Picklable]:
    """Wait for one reply of every process, and return the replies; see `receive_asking`."""
    return receive_asking(replied, workers, timeout, replace, on_wait, reply_soon)


def receive_ready(workers: Sequence[Worker], timeout: float, wait: bool) -> list[tuple[Worker, Picklable]]:
    """Return workers with their next replies, one of each that has replied.

    Args:
        workers: each with a request under way, or several, which it answers in their order.
        timeout: seconds that a worker may be without progress.
        wait: whether to wait until there is a reply.

    Raises:
        WorkerError: as soon as any of them has raised, died or stood still.
    """
    ready, stalls = reply_soon(workers, SPIN_SECONDS if wait else 0.0), Stalls(timeout)
    while wait and not ready:
        ready = replied(workers, min(LOOK_SECONDS, timeout))
        if not ready:
            stalls.check(workers)
    return [(worker, worker.receive(timeout)) for worker in ready]


def stop_workers(workers: Sequence[Worker], seconds: float | None = None) -> None:
    """Ask all workers to close, wait for them, and kill the rest. It may be called again, and after a failure.

    The default of `seconds` is long enough for an environment to close in order.
    """
    for worker in workers:
        with suppress(WorkerError, OSError):
            worker.send_bytes(DONE, timeout=0.01)
    processes = [worker._process for worker in workers]
    _join(processes, _STOP_SECONDS if seconds is None else seconds)
    living = [process for process in processes if process.is_alive()]
    for process in living:
        process.kill()
    _join(living, _KILL_SECONDS)
    for worker in workers:
        for end in (worker._connection, worker._lifeline, worker._socket):
            end.close()


def _join(processes: Sequence[BaseProcess], seconds: float) -> None:
    """Wait for the ends of processes, for some seconds in all."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(timeout=max(0.0, deadline - time.monotonic()))


def available_cpus() -> list[int]:
    """Return the cores that this process may run on, by its control group and taskset."""
    return sorted(os.sched_getaffinity(0))


def allowed_cpus(cpus: int | Sequence[int], what: str) -> list[int]:
    """Return the given cores that this process may run on, and warn of those that are left out.

    Args:
        cpus: number of a core, or several.
        what: the setting that named them, first word of the warning.
    """
    named = [cpus] if isinstance(cpus, int) else list(cpus)
    available = available_cpus()
    allowed = [cpu for cpu in named if cpu in available]
    missing = [cpu for cpu in named if cpu not in available]
    if missing:
        then = f"they are left out, and {allowed} are used" if allowed else "nothing is pinned there"
        text = f"{what}: this process may not run on the cores {missing} of {named}, only on {available}; {then}."
        warnings.warn(f"{text} Name some of those.", stacklevel=3)
    return allowed


def available_cores() -> int:
    """Return the number of cores that this process may keep busy.

    It is the number of its cores, or less where it may use less time than they have: by its container, by its SLURM
    job, or by RLPYT_CORES, which tells a process its share where it is not pinned. A part of a core counts as a core.

    Raises:
        ValueError: if RLPYT_CORES is no whole number from 1.
    """
    given = os.environ.get(CORES, "").strip()
    if given and not (given.isdecimal() and int(given) > 0):
        raise ValueError(
            f"Counting cores: the environment variable {CORES} is {given!r}; expected a whole number from 1, or none. "
            "Correct it, or unset it."
        )
    limit = int(given) if given else math.inf
    return max(1, math.ceil(min(len(available_cpus()), cpu_quota(), job_cpus(), limit)))


def has_own_cores() -> bool:
    """Return whether all cores that this process may run on are its own, so that it can deal them out by pinning.

    A process that may run on more cores than it may keep busy shares them with others, whom it does not know: in a
    container with a quota, or in a job that is not bound to cores. If each of them pinned its work to the first cores,
    these would be crowded while others idle. There the number of cores is dealt, and the system finds free ones. Cores
    that a user names are always pinned.
    """
    return available_cores() >= len(available_cpus())


def cores_limited_to(n_cores: int) -> AbstractContextManager[None]:
    """Limit `available_cores` while the block runs, in this process and in those that it starts meanwhile."""
    return variables_set({CORES: str(n_cores)})


def available_threads() -> int:
    """Return the number of useful threads: `available_cores`, or fewer if OMP_NUM_THREADS is lower."""
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # OpenMP takes a list, one number a level
    n_cores = available_cores()
    return min(n_cores, int(limit)) if limit.isdigit() and int(limit) > 0 else n_cores
