"""Progress bar with the time left, on terminals."""

from __future__ import annotations

import sys
import time

from rlpyt.logging.context import current_logger
from rlpyt.utils.terminal import Region, bar, can_redraw, clock

_SECONDS = 0.1  # between drawings


class ProgBarCounter:
    """Progress bar of a count, with the time left; it is silent unless stderr is a terminal.

    Where the logger draws the table of the run, the count is shown there, and not on stderr.

    Args:
        total_count: the count at the end.
        name: of what is counted.
    """

    def __init__(self, total_count: int, name: str = "next row") -> None:
        self._count, self._total, self._name = 0, max(total_count, 1), name
        self._logger = current_logger()
        shows = self._logger.shows_progress and not self._logger.live.is_drawn and can_redraw(sys.stderr)
        self._bar = Region(sys.stderr) if shows else None
        self._start = self._drawn = time.monotonic()

    def update(self, current_count: int) -> None:
        """Show that `current_count` of the total is done; a count below the last one is ignored."""
        if current_count <= self._count:
            return
        self._count = min(current_count, self._total)
        done, now = self._count / self._total, time.monotonic()
        self._logger.live.show_part(self._name, done)
        if done == 1.0 or now > self._drawn + _SECONDS:
            self._drawn = now
            self._draw(done, f"{clock((now - self._start) * (1 - done) / done)} left")

    def stop(self) -> None:
        """Complete the bar; later updates have no effect."""
        self._draw(1.0, f"{clock(time.monotonic() - self._start)} in all")
        self._bar = None

    def _draw(self, done: float, when: str) -> None:
        if self._bar is not None and not self._logger.live.is_drawn:
            self._bar.draw([f"{self._name} [{bar(done, 30)}] {done:4.0%} | {when}"])
