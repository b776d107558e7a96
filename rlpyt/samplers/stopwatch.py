"""Stopwatch of the time that a batch took, by activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

ACTIVITIES = ("environments", "network", "waiting", "copying")
"""Activities of a process while a batch is collected: it steps environments, runs the network, waits for another
process (or for its next batch), or moves data between rows and network."""


class Stopwatch:
    """Sums of seconds by activity; a lap costs 0.2 us, so it always runs."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(ACTIVITIES, 0.0)
        self._last = perf_counter()

    def start(self) -> None:
        """Begin a lap; the time before it is not counted."""
        self._last = perf_counter()

    def lap(self, activity: str) -> None:
        """Count the time since the last lap for an activity."""
        now = perf_counter()
        self.seconds[activity] += now - self._last
        self._last = now

    def take(self) -> dict[str, float]:
        """Return the seconds of every activity, and begin again from zero."""
        seconds, self.seconds = self.seconds, dict.fromkeys(ACTIVITIES, 0.0)
        return seconds


def mean_of(processes: Sequence[Mapping[str, float]], total: float) -> dict[str, float]:
    """Return the mean over processes that worked side by side; a process has waited for what it lacks to the total."""
    mean = {name: sum(seconds[name] for seconds in processes) / len(processes) for name in ACTIVITIES}
    mean["waiting"] += max(0.0, total - sum(mean.values()))
    return mean
