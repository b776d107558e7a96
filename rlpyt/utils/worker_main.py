"""Main function of a worker process: it serves requests with one thread, and dies with its master."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from threadpoolctl import threadpool_info, threadpool_limits

from rlpyt.utils.output import outlive_terminal
from rlpyt.utils.shared_memory import dumps

PR_SET_PDEATHSIG = 1
# A sleeping process takes 44 us to wake on another core, as long as a step of eight CartPoles. So spin first.
SPIN_SECONDS = 200e-6
# A worker whose master spins too, and selects actions in less than this, is awake when they come.
_WORKER_SPIN_SECONDS = 1e-3
_POOLS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")
ONE_THREAD = {**{f"{pool}_NUM_THREADS": "1" for pool in _POOLS}, "OPENCV_FOR_THREADS_NUM": "1"}
"""Environment variables that libraries read when they are loaded, to make their pools of threads."""

MASTER_OF_FORKSERVER = "RLPYT_MASTER_OF_FORKSERVER"
"""Variable of the environment of a forkserver: the process that has started it."""
CORES = "RLPYT_CORES"
"""Variable of the environment: how many cores a process may keep busy at most."""
STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1})
"""Signals that ask a run to end, often all of its processes at once; its master decides for them. SIGUSR1 is what
scripts of SLURM send ahead of the end of their time."""

WORKER_NAME = "rlpyt-worker-"
"""Beginning of the names of worker processes; the rank follows."""

DONE = dumps(None)
"""As a request: close and end; as a reply: nothing to say."""


class Failure(NamedTuple):
    """Reply of a worker that raised."""

    error: str
    traceback: str


def worker_main(
    connection: Connection,
    lifeline: Connection,
    inherited: Sequence[Connection],
    parent_stays: bool,
    obeys_sigterm: bool,
    cores: str | None,
) -> None:
    """Serve requests until None comes or the master is gone.

    Args:
        connection: to the master.
        lifeline: pipe whose other end the master holds; nothing is sent through it.
        inherited: the ends of the master, if this process was forked with them.
        parent_stays: whether the thread that started this process lives as long as the master.
        obeys_sigterm: whether SIGTERM and SIGUSR1 end this process, unless its server handles them.
        cores: RLPYT_CORES of the master, which may have changed since its forkserver began; None where it is not set.
    """
    leave_stop_signals_to_master(obeys_sigterm)
    for end in inherited:
        end.close()
    outlive_terminal()
    _die_with_master(lifeline, parent_stays)
    keep_to_one_thread()
    if cores is None:
        os.environ.pop(CORES, None)
    else:
        os.environ[CORES] = cores
    requests = Requests(connection)
    serve, rank, progress, args = requests.receive() or (None, 0, None, ())
    if serve is None:
        return
    server = None
    try:
        server = serve(rank, progress, *args)
        while (request := requests.receive()) is not None:
            _send(connection, server(request))
    except BaseException as error:
        _send(connection, Failure(f"{type(error).__name__}: {error}", traceback.format_exc()))
    finally:
        if server is not None:
            server.close()


def leave_stop_signals_to_master(obeys_sigterm: bool) -> None:
    """Let the signals that stop a run do nothing here, and receive them again; they were blocked since the start.

    A program that an environment starts inherits a signal that is ignored. This is wanted for SIGHUP and SIGUSR1: a
    simulator must outlive the terminal, too, for the environment to go on. The environment closes it at the end. If the
    worker is killed, nobody ends the simulator, as before. SIGTERM has a handler instead, which programs do not
    inherit: so an environment can terminate them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL if obeys_sigterm else signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL if obeys_sigterm else lambda signum, frame: None)
    signal.siginterrupt(signal.SIGTERM, False)  # system calls of simulators go on
    os.register_at_fork(after_in_child=partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def keep_to_one_thread() -> None:
    """Limit every pool of threads to one thread, also those of libraries that are loaded later."""
    os.environ.update(ONE_THREAD)
    torch.set_num_threads(1)
    # Asked for one thread, the OpenBLAS of a forked process first starts those that its parent had.
    if any(pool["num_threads"] > 1 for pool in threadpool_info()):
        threadpool_limits(1)
    if "cv2" in sys.modules:  # whose pool is its own
        sys.modules["cv2"].setNumThreads(1)


def _die_with_master(lifeline: Connection, parent_stays: bool) -> None:
    """Have the kernel kill this process when the other end of the pipe is closed, or when its parent dies.

    Neither is enough alone. A forkserver is the parent of its workers and lives as long as one of them. Forked workers
    hold the other ends of the pipes of workers before them.
    """
    if parent_stays:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def poll_for(fds: Iterable[int]) -> select.poll:
    """Return a poll object, which takes 1 us a call; `multiprocessing.connection.wait` builds a selector each time."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return poller


def spin(poller: select.poll, seconds: float = SPIN_SECONDS) -> list[tuple[int, int]]:
    """Return what is ready within a short time, in which this process stays awake but yields its core."""
    deadline = time.perf_counter() + seconds
    while not (ready := poller.poll(0)) and time.perf_counter() < deadline:
        os.sched_yield()
    return ready


class Requests:
    """Requests of the master. A worker waits awake for the next one where the last came soon, and else asleep."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._poller = connection, poll_for([connection.fileno()])
        self._came_soon = True

    def receive(self) -> Any:
        """Return the next request; None, the request to stop, if the master is gone."""
        start = time.perf_counter()
        if not (self._came_soon and spin(self._poller, _WORKER_SPIN_SECONDS)):
            self._poller.poll()
        self._came_soon = time.perf_counter() - start < _WORKER_SPIN_SECONDS
        try:
            return pickle.loads(self._connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            return None


def _send(connection: Connection, reply: Any) -> None:
    data = DONE if reply is None else dumps(reply)
    with suppress(OSError):  # the master is gone
        connection.send_bytes(data)
