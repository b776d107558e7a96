"""Columns of the log that say how the two sides of an asynchronous run keep step with each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import nan
from time import perf_counter


class Coupling:
    """Sums of what happened between two rows of the log: who waited, and how old the data were.

    A version of the weights is the number of iterations that they have learned from. The age of a batch is the version
    of the learner when it takes the batch in, less the version that collected it.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.optimizer_wait = 0.0
        """Seconds in which the learner had no batch."""
        self.sampler_wait = 0.0
        """Seconds in which the sampler was not allowed to begin the next batch."""
        self.hand_over = 0.0
        """Seconds of both sides for copying weights, and rows where they are copied."""
        self.ages: list[int] = []
        """Of the batches that the learner has taken in."""

    @contextmanager
    def optimizer_waits(self) -> Iterator[None]:
        """Count the time of the block as waiting of the learner."""
        start = perf_counter()
        yield
        self.optimizer_wait += perf_counter() - start

    @contextmanager
    def hands_over(self) -> Iterator[None]:
        """Count the time of the block as hand-over."""
        start = perf_counter()
        yield
        self.hand_over += perf_counter() - start

    def take(self) -> dict[str, float]:
        """Return the columns, and begin again from zero."""
        ages = self.ages
        columns = {
            "OptimizerWaitTime": self.optimizer_wait,
            "SamplerWaitTime": self.sampler_wait,
            "HandOverTime": self.hand_over,
            # Floats, of which replicas take the mean.
            "DataAgeMin": float(min(ages, default=nan)),
            "DataAgeMean": sum(ages) / len(ages) if ages else nan,
            "DataAgeMax": float(max(ages, default=nan)),
            "RowsDropped": 0,  # that no one will learn from: every batch is learned from
        }
        self._begin()
        return columns
