"""Where the time of a batch went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

PARTS = ("environments", "network", "waiting", "copying")
"""What a process does while a batch is collected: steps environments, runs the network, waits for another process
(or for its next batch), or moves data between rows and network."""


class Stopwatch:
    """Adds up seconds by what was done in them; a lap costs 0.2 us, so it always runs."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._last = perf_counter()

    def start(self) -> None:
        """Begin a lap, and count nothing of what came before."""
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap for a part."""
        now = perf_counter()
        self.seconds[part] += now - self._last
        self._last = now

    def take(self) -> dict[str, float]:
        """Return the seconds of every part, and begin again from zero."""
        seconds, self.seconds = self.seconds, dict.fromkeys(PARTS, 0.0)
        return seconds


def mean_of(processes: Sequence[Mapping[str, float]], total: float) -> dict[str, float]:
    """Return the mean over processes that worked side by side; what one lacks to the total it has waited."""
    mean = {part: sum(seconds[part] for seconds in processes) / len(processes) for part in PARTS}
    mean["waiting"] += max(0.0, total - sum(mean.values()))
    return mean
