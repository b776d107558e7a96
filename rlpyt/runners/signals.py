"""SIGTERM in a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def termination_as_exception() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that a stopped job stops its workers too."""
    before = signal.getsignal(signal.SIGTERM)
    # Python sets handlers in its main thread alone, and cannot put back one that is not its own, which it calls None.
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
