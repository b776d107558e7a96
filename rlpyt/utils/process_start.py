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

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    # A process reads these variables before any code of ours: numpy starts its threads when it is imported.
    with variables_set(ONE_THREAD), _runnable_main():
        if start_method == "forkserver":
            # By the name of its master the forkserver's first modules know where they are.
            named = variables_set({MASTER_OF_FORKSERVER: str(os.getpid())})
            with _blocked_signals(), named, short_temporaries():
                forkserver.ensure_running()
            process.start()  # waits for the imports of the forkserver, for seconds, with the signals received
        elif start_method == "spawn":
            with _blocked_signals():
                process.start()
        else:
            with _blocked_signals(has_tracker=False):
                process.start()


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
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment while the block runs, in this process and in those that it starts meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


@contextmanager
def _runnable_main() -> Iterator[None]:
    """Let a main module that came on standard input, which is no file for multiprocessing to run, seem to have none."""
    main = sys.modules["__main__"]
    file = main.__dict__.pop("__file__", None) if main.__dict__.get("__file__") == "<stdin>" else None
    try:
        yield
    finally:
        if file is not None:
            main.__file__ = file
