"""Handling of SIGTERM in a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def termination_as_exception() -> Iterator[None]:
    """Raise SystemExit on SIGTERM while the block runs, so that a stopped job stops its workers too."""
    before = signal.getsignal(signal.SIGTERM)
    # Python sets handlers only in its main thread, and cannot restore a handler of other code, which it calls None.
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
