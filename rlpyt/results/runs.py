"""Results of runs, read from their directories, also while a run goes on."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlpyt.logging.plots import read_progress
from rlpyt.results.run_settings import Value, settings_of, text_of
from rlpyt.run_records import (
    PARAMS_FILE,
    STEPS,
    TASK_NAMES,
    VARIANT_FILE,
    Json,
    inside,
    read_json,
    run_directories,
    run_status,
    score_of_run,
)

ENDED_EARLY = ("failed", "killed", "interrupted")
"""Statuses of runs that have ended, but not at their end."""
_TASK_PLACES = ("env_kwargs", "eval_env_kwargs", "env", "eval_env")

Array: TypeAlias = NDArray[np.float64]
Folders: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Folder of runs, or several."""


@dataclass(frozen=True, eq=False)
class RunResult:
    """Record of one run: its settings, its status and its rows."""

    directory: Path
    """Absolute path of the run directory."""
    name: str
    """Path of the directory from the folder that was searched."""
    status: str
    """finished, running, interrupted, failed or killed; "no record" without a status.json."""
    note: str
    """Reason for the status, and what could not be read; often empty."""
    settings: Mapping[str, Value]
    """Settings by place, such as `algo.learning_rate`; empty if none are recorded."""
    params: Json
    """Content of params.json; empty if there is none."""
    columns: Mapping[str, Array]
    """Columns of progress.csv, without rows from behind the one where the run went on; empty before the first row."""

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.status == "finished"

    @property
    def seed(self) -> Value:
        """Seed of the run, also one that it drew; None if none is recorded."""
        for place in (("plan",), ("runner", "settings"), ()):
            if (seed := inside(self.params, *place, "seed")) is not None:
                return settings_of({"seed": seed})["seed"]
        return None

    @property
    def gives_compute(self) -> bool:
        """Whether the user gave the compute settings, and did not leave them to the runner."""
        return isinstance(inside(self.params, "runner", "settings", "settings"), dict)

    @property
    def start(self) -> tuple[Path, str] | None:
        """Folder and run_ID that it was started with, equal for a second start; None where it took any free number."""
        run_id = inside(self.params, "logger", "run_ID")
        return None if run_id is None else (self.directory.parent, str(run_id))

    @property
    def task(self) -> str:
        """Name of the environment or game, as the settings have it; empty if they have none."""
        names = [
            text_of(value, 200)
            for key, value in self.settings.items()
            if is_task(key) and not key.endswith("EnvCls") and "eval" not in key
        ]
        return "-".join(dict.fromkeys(names)) or text_of(self.settings.get("sampler.EnvCls", ""))

    @property
    def last_step(self) -> float:
        """Steps at the last row; nan without a row."""
        return self.last(STEPS)

    def last(self, column: str) -> float:
        """Return the largest value of a column that only grows; nan without one."""
        values = self.columns.get(column, np.empty(0))
        return float(np.nanmax(values)) if np.isfinite(values).any() else math.nan

    def curve(self, y: str, x: str = STEPS) -> tuple[Array, Array]:
        """Return two columns, without rows where one of them is not finite; x increases.

        Where an x comes twice, the later row counts. A run without rows has empty columns.
        """
        if not self.columns:
            return np.empty(0), np.empty(0)
        for column in (x, y):
            if column not in self.columns:
                raise ValueError(
                    f"Reading {self.directory}: got column {column!r}, expected one of {sorted(self.columns)}."
                )
        xs, ys = self.columns[x], self.columns[y]
        known = np.isfinite(xs) & np.isfinite(ys)
        last = dict(zip(xs[known].tolist(), ys[known].tolist(), strict=True))
        steps = np.array(sorted(last))
        return steps, np.array([last[step] for step in steps])

    def final(self, y: str, x: str = STEPS, fraction: float = 0.1) -> float:
        """Return the mean of a column over the last part of the run; nan without a value there.

        Rows count whose x is above (1 - fraction) of that of the last row.
        """
        steps, _ = self.curve(y, x)
        return score_of_run(self.columns[x].tolist(), self.columns[y].tolist(), fraction) if len(steps) else math.nan


def find_runs(folder: Folders) -> list[RunResult]:
    """Read all runs in and below a folder, in the order of their names; those of several folders one after the other.

    A run is a directory `run_<ID>` with records, or an empty one. Runs that are not finished or have no record are
    there too, and their status says so. Links to folders are followed. Records of earlier starts (`earlier_<n>/` in a
    run) are no runs.

    Args:
        folder: the directory of a grid, of an experiment, or of one run; or several.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if there is no run in one.
    """
    roots = [path.resolve() for path in folders_of(folder)]
    common = Path(os.path.commonpath(roots))
    found: dict[Path, RunResult] = {}
    for root in roots:
        if not root.is_dir():
            raise FileNotFoundError(f"Looking for runs: {root} is not a folder; expected that of runs or of one run.")
        directories = run_directories(root)
        if not directories:
            raise ValueError(
                f"Looking for runs: there is none in {root}; expected directories such as run_0 with progress.csv "
                "in it or below. Give the log_dir of the runs."
            )
        found |= {directory.resolve(): _read_run(directory, common) for directory in directories}
    return list(found.values())


def folders_of(folder: Folders) -> list[Path]:
    """Return folders as a list."""
    return [Path(folder)] if isinstance(folder, str | os.PathLike) else [Path(each) for each in folder]


def is_task(key: str) -> bool:
    """Return whether a setting names the environment or game, so that runs that differ in it differ in task."""
    path = key.split(".")
    return (path[-1] in TASK_NAMES and len(path) > 1 and path[-2] in _TASK_PLACES) or path[-1] == "EnvCls"


def _read_run(directory: Path, root: Path) -> RunResult:
    params, params_note = read_json(directory / PARAMS_FILE)
    variant, variant_note = read_json(directory.parent / VARIANT_FILE, needed=False)
    columns, rows_note = _read_columns(directory)
    status, status_note = run_status(directory)
    notes = (status_note, params_note, variant_note, rows_note)
    return RunResult(
        directory=directory,
        name=str(directory.relative_to(root)) if directory != root else directory.name,
        status=status,
        note="; ".join(note for note in notes if note),
        settings=settings_of(params, variant),
        params=params,
        columns=columns,
    )


def _read_columns(directory: Path) -> tuple[dict[str, Array], str]:
    """Return the whole rows, and what is wrong with them."""
    try:
        columns = read_progress(directory)
    except FileNotFoundError:
        return {}, "no rows yet"
    except (OSError, ValueError, csv.Error) as error:
        return {}, f"progress.csv cannot be read ({error})"
    rows = {name: np.array(column, dtype=np.float64) for name, column in columns.items()}
    if not any(map(len, rows.values())):
        return {}, "no rows yet"
    stands = _stands(rows[STEPS]) if STEPS in rows else slice(None)
    return {name: column[stands] for name, column in rows.items()}, ""


def _stands(steps: Array) -> NDArray[np.bool_]:
    """Return which rows stand: none that has more steps than a later one, as the run went on from before it."""
    later = np.fmin.accumulate(steps[::-1])[::-1]
    return ~(steps > later)


# ---- several runs ----


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
