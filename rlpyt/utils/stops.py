"""Exceptions that end a run: which are asked for from outside, and where they come from."""

from __future__ import annotations

import traceback
from pathlib import Path

_PACKAGE = f"{Path(__file__).parents[1]}/"


def is_end_of_run(error: BaseException) -> bool:
    """Return whether an exception asks this process to end: Ctrl-C, or a signal's exit code (128 + signal).

    Every other `SystemExit` is an error of the code that it comes from, such as a game that calls `sys.exit()`.
    """
    if isinstance(error, SystemExit):
        return isinstance(error.code, int) and 128 < error.code <= 192
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


def place_of(error: BaseException) -> str:
    """Return the innermost line of code that is not the library's, as "file:line in function"; empty without one."""
    own = [line for line in traceback.extract_tb(error.__traceback__) if not line.filename.startswith(_PACKAGE)]
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else ""
