"""Reasons to end a run early: signals, the end of its time, and a request."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType

from rlpyt.logging.checkpoint_files import Content
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.runners.training import Training
from rlpyt.utils.output import drop_lost_output
from rlpyt.utils.worker_main import STOP_SIGNALS

_LETS_GO_ON = re.compile(r"(n_steps|hooks)\b")
_SAME_SECONDS = 2.0
# One request may come as several signals. A shell passes SIGHUP on, and when it ends the kernel sends it again.
# `timeout` sends SIGTERM to its child and to the group. A login that ends sends both.


class Preempted(SystemExit):
    """End of a run that has saved a checkpoint, to go on later: the exit code of the script is 85."""

    def __init__(self, reason: str) -> None:
        super().__init__(PREEMPTED)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Preemption:
    """Request to end a run after the iteration, with a checkpoint: its first signal, or the end of its time."""

    def __init__(self) -> None:
        self._signum = 0
        self._since = 0.0
        self._end: float | None = None  # None while no checkpoint can be saved

    def begin(self, max_minutes: float) -> None:
        """Take requests from now on; the run's time ends in `max_minutes`."""
        self._end = time.monotonic() + 60.0 * max_minutes

    def defer(self, signum: int) -> bool:
        """Note a signal; False if the run must end at once, as for the second request."""
        if self._end is None:
            return False
        if self._signum:
            return signum != signal.SIGINT and time.monotonic() < self._since + _SAME_SECONDS
        self._signum, self._since = signum, time.monotonic()
        name = signal.Signals(signum).name
        text = f"\n{name}: the run ends with a checkpoint after this iteration; a second signal ends it at once.\n"
        with suppress(OSError):
            os.write(2, text.encode())  # a handler must not print: it may have interrupted a print
        return True

    @property
    def reason(self) -> str:
        """What asks for the end; empty where nothing does."""
        if self._signum:
            return f"{signal.Signals(self._signum).name} was sent"
        return "max_time is over" if (self._end or inf) <= time.monotonic() else ""


class Stop:
    """Request to stop a run at a row of its log, which its replicas agree on."""

    def __init__(self) -> None:
        self.reason = ""
        """Why the run has stopped; empty if it has not."""
        self._request = ""

    def request(self, reason: str) -> None:
        """Stop the run at the next row; of several calls the first counts."""
        self._request = self._request or reason or "request_stop was called"

    def agree(self, training: Training, n_done: int, complete_rows: Callable[[], None]) -> None:
        """Stop, if a replica was asked to before the row after `n_done` iterations; `complete_rows` ends that row."""
        if n_done >= training.n_itr:
            return  # the run ends here anyway
        self.reason = next(filter(None, training.agreement.gather(self._request)), "")
        if self.reason:
            complete_rows()
            training.logger.notes["stopped"] = self.reason
            training.logger.notice(f"The run stops after {n_done * training.steps_per_itr:,} steps: {self.reason}.")

    def went_before(self, training: Training, manifest: Content, settings: Mapping[str, object]) -> bool:
        """Return whether a run that goes on from a checkpoint was stopped there, and nothing lets it go further."""
        reason, before = manifest.get("stopped", ""), manifest["settings"]
        names = [name for name in {**before, **settings} if _LETS_GO_ON.match(name)]
        if not reason or any(before.get(name) != settings.get(name) for name in names):
            return False
        self.reason = training.logger.notes["stopped"] = reason
        return True


@contextmanager
def signals_as_exceptions(defer: Callable[[int], bool] = lambda signum: False) -> Iterator[None]:
    """Raise an exception on the `STOP_SIGNALS` while the block runs, so that a stopped run stops its workers.

    A handler of the user's for SIGINT, SIGHUP or SIGUSR1 stays, and so does a signal that is ignored, as under nohup.
    After a SIGHUP it is ignored from then on: the shell's end may send it again while the script ends in order. `defer`
    is called with the signal first, and returns true if it will end the run later.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGHUP:
            replaced[signum] = signal.SIG_IGN
            drop_lost_output()
        if defer(signum):
            return
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + signum)

    replaced = _replaceable_handlers()
    for signum in replaced:
        signal.signal(signum, stop)
    try:
        yield
    finally:
        for signum, before in replaced.items():
            signal.signal(signum, before)


def _replaceable_handlers() -> dict[int, Callable[[int, FrameType | None], object] | int | None]:
    """Return the handlers that a run may replace, by their signals."""
    if threading.current_thread() is not threading.main_thread():
        return {}  # Python sets handlers only in its main thread
    handlers = {int(signum): signal.getsignal(signum) for signum in STOP_SIGNALS}
    if handlers[signal.SIGINT] is not signal.default_int_handler:
        del handlers[signal.SIGINT]
    for signum in (signal.SIGHUP, signal.SIGUSR1):
        if handlers[signum] is not signal.SIG_DFL:
            del handlers[signum]
    if handlers[signal.SIGTERM] is None:  # a handler that is not Python's, which cannot be put back
        del handlers[signal.SIGTERM]
    return dict(handlers)
