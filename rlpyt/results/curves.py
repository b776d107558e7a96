"""Curves of several runs on one axis of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlpyt.results.runs import Array, RunResult
from rlpyt.run_records import STEPS


@dataclass(frozen=True, eq=False)
class Curves:
    """Values of several runs at common steps."""

    steps: Array
    """Steps, increasing."""
    values: Array
    """Runs x steps; nan where a run has no row yet, or none any more."""

    @property
    def complete(self) -> np.ndarray:
        """Whether all runs have a value, for each step: elsewhere a mean is one of fewer runs."""
        return np.asarray(np.isfinite(self.values).all(axis=0))


def aligned_curves(runs: Sequence[RunResult], y: str, x: str = STEPS, n_points: int = 200) -> Curves:
    """Bring a column of several runs to common steps.

    The steps are all steps at which a run has a row, or `n_points` equal distances from the first to the last if there
    are more. Between two rows a value is interpolated linearly; before the first and after the last row of a run it is
    nan, never extended. Rows without a finite value are left out.

    Args:
        runs: runs of any status; each counts as far as it has come. A run without a row is a row of nan.
        y: name of the column.
        x: name of the column for the axis.
        n_points: number of steps at most.
    """
    curves = [run.curve(y, x) for run in runs]
    axis = np.unique(np.concatenate([steps for steps, _ in curves])) if curves else np.empty(0)
    if len(axis) > n_points:
        axis = np.linspace(axis[0], axis[-1], n_points)
    rows = [
        np.interp(axis, steps, values, left=np.nan, right=np.nan) if len(steps) else np.full(len(axis), np.nan)
        for steps, values in curves
    ]
    return Curves(axis, np.array(rows, dtype=np.float64).reshape(len(rows), len(axis)))
