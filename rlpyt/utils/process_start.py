"""Start of a process that outlives the signals which ask the whole group of its master to stop.

A closed terminal sends SIGHUP to every process of its foreground group, Ctrl-C sends SIGINT, and schedulers send
SIGTERM to all processes of a job. The master alone decides what to do then: it may want to save a checkpoint, for which
it needs its workers.

The signals are blocked in this thread while a process starts. A new process inherits what is blocked, also by exec. So
a worker is safe before its first line runs, and so are the forkserver and the resource tracker of multiprocessing. A
signal that arrives meanwhile is kept for this process, whose handlers stay as they are. Handlers could be set in the
main thread only, and a signal that is ignored for a moment would be lost. The processes stay in the group of their
master, as Ctrl-Z and job control need it.
"""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess

from rlpyt.utils.worker_main import MASTER_OF_FORKSERVER, ONE_THREAD, STOP_SIGNALS

PRELOAD = ("rlpyt.utils.forkserver", "rlpyt.utils.processes", "rlpyt.samplers")
"""Modules that the forkserver imports, so that its processes have them."""
_LONGEST_TEMPORARY = 74  # letters, beside "/pymp-xxxxxxxx/listener-xxxxxxxx"


def start_process(process: BaseProcess, start_method: str) -> None:
    """Start a process whose target is `worker_main`, which receives the signals again.

    Args:
        process: not started.
        start_method: of the process. A forkserver that other code has started before may die of the signals.

    Raises:
        EOFError: if the forkserver was killed meanwhile.
        ConnectionError: if it was killed before.
        OSError: if no folder for temporary files has a path that is short enough for the socket of the forkserver.
    """
    with _start_conditions():
        if start_method == "forkserver":
            with _blocked_signals(), _named_master(), short_temporaries():
                forkserver.ensure_running()
            continue_forkserver()
            process.start()  # waits for the imports of the forkserver, for seconds, with the signals received
        elif start_method == "spawn":
            with _blocked_signals():
                process.start()
        else:
            with _blocked_signals(has_tracker=False):
                process.start()


def continue_forkserver() -> None:
    """Let the forkserver of this process go on, if it has one that was stopped by SIGSTOP or a debugger.

    It starts and reaps the workers: without it a start, and the end of a worker, would wait for ever.
    """
    pid: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # Python has no other way
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def forget_process(process: BaseProcess) -> None:
    """Let Python end without waiting for a process that cannot be killed."""
    multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]  # it joins all at its end


@contextmanager
def short_temporaries() -> Iterator[None]:
    """Take a folder for temporary files in the block whose path is short enough for a socket; /tmp, if TMPDIR is not.

    The kernel takes 107 letters, of which multiprocessing needs 33 for names of its own. The folder of a job on a
    cluster can be longer than the rest.

    Raises:
        OSError: if neither is there.
    """
    before, given = tempfile.tempdir, tempfile.gettempdir()
    if len(os.fsencode(given)) > _LONGEST_TEMPORARY:
        short = [folder for folder in ("/tmp", "/var/tmp") if os.access(folder, os.W_OK | os.X_OK)]
        if not short:
            raise OSError(
                f"Starting a process: the folder for temporary files is {given}, of {len(os.fsencode(given))} letters; "
                f"expected at most {_LONGEST_TEMPORARY}, as a socket is made there. Set TMPDIR to a shorter one."
            )
        tempfile.tempdir = short[0]
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _blocked_signals(has_tracker: bool = True) -> Iterator[None]:
    """Block the signals in this thread, and in the processes that it starts while the block runs."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        if has_tracker:
            # It has a way of its own for SIGINT and SIGTERM, and in Python 3.11 unblocks them here when it starts.
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _named_master() -> Iterator[None]:
    """Tell a forkserver that is started in the block whose it is; by that its first modules know where they are."""
    before = os.environ.get(MASTER_OF_FORKSERVER)
    os.environ[MASTER_OF_FORKSERVER] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[MASTER_OF_FORKSERVER]
        if before is not None:
            os.environ[MASTER_OF_FORKSERVER] = before


@contextmanager
def _start_conditions() -> Iterator[None]:
    """Give a process that is started in the block one thread for each pool, and a main module that it can run.

    It reads both before any code of ours: numpy starts its threads when it is imported, and multiprocessing runs
    the file of the main module. A script on standard input has no such file.
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
