"""Hook that stops a run whose return is high enough."""

from __future__ import annotations

from dataclasses import dataclass

from rlpyt.logging.sinks import Row
from rlpyt.runners.hooked import Hook, HookedRun
from rlpyt.settings import whole
from rlpyt.types import StateDict


@dataclass(eq=False)
class StopOnReturn(Hook):
    """Hook that stops the run once a column of the log reaches a threshold.

    Raises:
        ValueError: if `n_rows` is below 1.
        LookupError: if the log has no such column.
    """

    threshold: float
    """Value from which the run is good enough."""
    column: str = "ReturnAverage"
    """Column of `progress.csv`."""
    n_rows: int = 1
    """Rows in a row that must reach it."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be meant."""
        super().__post_init__()
        self.check("threshold", lambda x: x == x, "a number")
        whole(self, "n_rows")
        self._n_reached = 0

    def on_start(self, runner: HookedRun) -> None:
        """Forget the rows of an earlier run."""
        self._n_reached = 0

    def on_row(self, runner: HookedRun, row: Row, step: int) -> None:
        """Stop the run if the last rows have all reached the threshold."""
        if self.column not in row:
            raise LookupError(f"column is {self.column!r}; expected one of {', '.join(row)}.")
        value = row[self.column]
        reached = not isinstance(value, str) and value >= self.threshold
        self._n_reached = self._n_reached + 1 if reached else 0
        if self._n_reached >= self.n_rows:
            runner.request_stop(f"{self.column} is {value:.6g}, and {self.threshold:.6g} was to be reached")

    def state_dict(self) -> StateDict:
        """Return how many of the last rows have reached the threshold."""
        return {"n_reached": self._n_reached}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self._n_reached = state_dict["n_reached"]
