"""Preparation of the forkserver, which imports this module before it serves. Elsewhere its import has no effect.

At its end it removes its socket, which Python leaves on the disk where the master is killed.

It blocks the signals that stop a run, and its processes inherit that. A worker receives them again in `worker_main`. A
process of other code, which knows nothing of this, receives them again before its first line.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from multiprocessing import current_process, forkserver, util
from pathlib import Path

from rlpyt.utils.worker_main import MASTER_OF_FORKSERVER, STOP_SIGNALS, WORKER_NAME


def _receive_signals(_: object) -> None:
    if not current_process().name.startswith(WORKER_NAME):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _remove_socket() -> None:
    """Remove the socket and the folder that the master made for it."""
    address: str | None = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]  # set by its `main`
    if address is not None:
        with contextlib.suppress(OSError):  # the master has done it
            os.unlink(address)
            Path(address).parent.rmdir()


if os.environ.get(MASTER_OF_FORKSERVER) == str(os.getppid()):
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    # Any object that lives as long as the forkserver: multiprocessing keeps a weak reference, and hands it over.
    util.register_after_fork(_receive_signals, _receive_signals)
    atexit.register(_remove_socket)  # not called in workers: they leave by os._exit
