"""Progress bar with the time left, on terminals."""

from __future__ import annotations

import sys

import pyprind

from rlpyt.logging.context import current_logger
from rlpyt.utils.output import drop_lost_output


class ProgBarCounter:
    """Progress bar of a count, with the time left; it is silent unless stderr is a terminal.

    Args:
        total_count: the count at the end.
    """

    def __init__(self, total_count: int) -> None:
        self._count = 0
        self._bar: pyprind.ProgBar | None = None
        try:
            if current_logger().shows_progress and sys.stderr is not None and sys.stderr.isatty():
                self._bar = pyprind.ProgBar(max(total_count, 1), stream=sys.stderr)
        except (OSError, ValueError, AttributeError):
            # pyprind flushes stdout, which may be closed or missing: then there is no bar.
            self._bar = None

    def update(self, current_count: int) -> None:
        """Show that `current_count` of the total is done; a count below the last one is ignored."""
        if current_count > self._count:
            self._advance(current_count - self._count)
            self._count = current_count

    def stop(self) -> None:
        """Complete the bar; later updates have no effect."""
        if self._bar is not None and self._bar.active:
            self._advance(self._bar.max_iter - self._bar.cnt)
        self._bar = None

    def _advance(self, count: float) -> None:
        try:
            if self._bar is not None and self._bar.active:
                self._bar.update(count)
        except (OSError, ValueError):
            drop_lost_output()
            self._bar = None
