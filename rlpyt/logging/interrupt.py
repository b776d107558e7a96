"""Ctrl-C in a run: a line in the log, and no traceback when it ends the script."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

from rlpyt.logging.run_logger import Logger

_LOGGED = "_was_logged_by_rlpyt"


@contextlib.contextmanager
def end_in_one_line(logger: Logger) -> Iterator[None]:
    """Log that Ctrl-C has stopped the block, and print no traceback if it ends the script.

    The KeyboardInterrupt is raised again unchanged. It stops a loop over runs and the cell of a notebook, a caller may
    catch it, and a script that it ends has the exit code of Ctrl-C (130 in a shell). `status.json` has the traceback.

    Args:
        logger: logger of the run.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        logger.notice(f"Interrupted by Ctrl-C. What was saved stays in {logger.directory}.")
        _print_no_traceback_of(interrupt)
        raise


class _Hook:
    """Hook of `sys` that prints what another hook prints, except for logged interrupts.

    Logged interrupts are marked. To keep a reference would keep the traceback, and with it the memory of the run.
    """

    def __init__(self, other: Callable[[type[BaseException], BaseException, TracebackType | None], object]) -> None:
        self._other = other

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not _was_logged(error):
            self._other(kind, error, trace)


def _was_logged(error: BaseException | None) -> bool:
    """Return whether this is a logged interrupt, or another Ctrl-C while one is handled."""
    return isinstance(error, KeyboardInterrupt) and (_LOGGED in vars(error) or _was_logged(error.__context__))


def _print_no_traceback_of(interrupt: KeyboardInterrupt) -> None:
    vars(interrupt)[_LOGGED] = True
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)
