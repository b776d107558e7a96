"""Handling of SIGTERM in a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def termination_as_exception(defer: Callable[[int], bool] = lambda signum: False) -> Iterator[None]:
    """Raise SystemExit on SIGTERM while the block runs, so that a stopped job stops its workers too.

    Args:
        defer: called with the signal first; true if it will end the run later.
    """
    before = signal.getsignal(signal.SIGTERM)
    # Python sets handlers only in its main thread, and cannot restore a handler of other code, which it calls None.
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        if not defer(signum):
            raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
