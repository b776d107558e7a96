"""Signals of the forkserver, which imports this module before it serves. Elsewhere its import has no effect.

A forkserver that is stopped, by SIGSTOP or a debugger, goes on when its master ends, and then ends by itself.

The forkserver blocks the signals that stop a run, and its processes inherit that. A worker receives them again in
`worker_main`. A process of other code, which knows nothing of this, receives them again before its first line.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing import current_process, util

from rlpyt.utils.worker_main import MASTER_OF_FORKSERVER, PR_SET_PDEATHSIG, STOP_SIGNALS, WORKER_NAME


def _receive_signals(name_of_worker: str) -> None:
    if not current_process().name.startswith(name_of_worker):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


class _Key:
    """Object for which multiprocessing calls a function in each new process."""


KEY = _Key()
"""Must live as long as the forkserver: multiprocessing keeps a weak reference."""

if os.environ.get(MASTER_OF_FORKSERVER) == str(os.getppid()):
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    util.register_after_fork(KEY, lambda key: _receive_signals(WORKER_NAME))
    if sys.platform == "linux":  # it does nothing to one that is not stopped, at the end of another thread too
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
