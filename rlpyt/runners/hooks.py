"""Hooks of a run: parts of the user's that are called at its start, rows, evaluations and end, and may stop it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlpyt.core import EvalResult
from rlpyt.logging.sinks import Row
from rlpyt.settings import ScheduledSettings
from rlpyt.types import StateDict

if TYPE_CHECKING:
    from rlpyt.runners.hooked import HookedRun


class HookError(RuntimeError):
    """Error of a run that ends as one of its hooks has raised; the message names the hook and the call."""


@dataclass(eq=False)
class Hook(ScheduledSettings):
    """Part that is called while a run goes on. A subclass overrides the calls that it needs.

    Calls come from replica 0 alone. A call may read all parts of the runner, and end the run by
    `runner.request_stop(why)`. It must draw no random numbers from global generators, and change no part: the numbers
    of the run would change. What it raises ends the run.
    """

    def on_start(self, runner: HookedRun) -> None:
        """Begin: all parts are built, and no row is written. What an earlier run has left here is to be forgotten."""

    def on_row(self, runner: HookedRun, row: Row, step: int) -> None:
        """Look at a row of the log, which was just written.

        Args:
            runner: of the run.
            row: values by column name.
            step: CumSteps of the row.
        """

    def on_evaluation(self, runner: HookedRun, result: EvalResult, step: int) -> None:
        """Look at an evaluation, that of all replicas; its row is written next.

        Args:
            runner: of the run.
            result: the episodes.
            step: CumSteps of the agent that was evaluated.
        """

    def on_end(self, runner: HookedRun, status: str) -> None:
        """Clean up: the sampler is closed already. A hook whose `on_start` has raised, or never came, is not called.

        Args:
            runner: of the run; its `stop_reason` says whether it was stopped.
            status: "finished", "failed", "interrupted" or "preempted", by a checkpoint from which it goes on.
        """

    def state_dict(self) -> StateDict:
        """Return what a checkpoint keeps of the hook, as plain data."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, after `on_start` of a run that goes on."""


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
        self.whole("n_rows")
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
