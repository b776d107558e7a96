"""Ctrl-C in a run: a line in the log, and no traceback at the end of the script."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import TracebackType

from rlpyt.logging.run_logger import Logger


@contextlib.contextmanager
def end_in_one_line(logger: Logger) -> Iterator[None]:
    """Log that Ctrl-C has stopped the block, and print no traceback where it ends the script.

    The KeyboardInterrupt goes on as it was: it stops a loop over runs and a notebook's cell, a caller may catch it, and
    a script that it ends has the exit code of Ctrl-C (130 in a shell). `status.json` has the traceback.

    Args:
        logger: of the run.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        logger.log(f"Interrupted by Ctrl-C. What was saved stays in {logger.directory}.")
        _print_no_traceback_of(interrupt)
        raise


def _print_no_traceback_of(interrupt: KeyboardInterrupt) -> None:
    hook = sys.excepthook

    def quiet(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is not interrupt:
            hook(kind, error, trace)

    sys.excepthook = quiet
