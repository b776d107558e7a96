"""Study of a grid: its groups of runs, and the final scores of each method on each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlpyt.results.atari import atari_game, human_normalized_score
from rlpyt.results.groups import NO_RECORD, RunGroup, group_runs
from rlpyt.results.runs import Array, Folders, RunResult, find_runs
from rlpyt.run_records import STEPS

RETURN = "ReturnAverage"
GAME_SCORE = "GameScoreAverage"


@dataclass(frozen=True, eq=False)
class Study:
    """Runs of a grid in groups, and what is drawn of them."""

    runs: tuple[RunResult, ...]
    """All runs that were found."""
    groups: tuple[RunGroup, ...]
    """Groups of runs with recorded settings and rows that have the column."""
    y: str
    """Column that is drawn, and whose last part is the score of a run."""
    x: str
    """Column of the axis."""
    scale: str
    """Scale of `scores`: human-normalised for Atari games, else the column itself."""
    scores: dict[str, Array]
    """Matrix of runs x tasks of each method, in the order of `tasks`: finished runs only."""
    remarks: tuple[str, ...]
    """What a reader must know: runs that are left out or not finished, and why scores are missing."""

    @property
    def tasks(self) -> list[str]:
        """Names of the environments."""
        return list(dict.fromkeys(group.task for group in self.groups))

    @property
    def methods(self) -> list[str]:
        """Labels of the groups, without tasks."""
        return list(dict.fromkeys(group.method for group in self.groups))


def read_study(folder: Folders, y: str | None = None, x: str = STEPS) -> Study:
    """Read the runs below a folder, group them, and score them.

    The score of a run is the mean of `y` over the last tenth of its steps. Only finished runs are scored.

    Args:
        folder: the directory of a grid, or several.
        y: name of the column; None is `GameScoreAverage` if all tasks are Atari games whose runs have it, else
            `ReturnAverage`.
        x: name of the column of the axis.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if there is no run in it, or no run has the column.
    """
    runs = find_runs(folder)
    with_rows = [run for run in runs if run.columns]
    y = y or _default_column(with_rows)
    if with_rows and not any({x, y} <= set(run.columns) for run in with_rows):
        columns = sorted({column for run in with_rows for column in run.columns})
        raise ValueError(f"Reading the runs of {folder}: got columns {x!r} and {y!r}, expected two of {columns}.")
    groups = group_runs(runs)
    remarks = [remark for group in groups for remark in group.remarks()]
    drawn = []
    for group in groups:
        runs_of = [run for run in group.runs if run not in group.replaced]
        members = tuple(run for run in runs_of if {x, y} <= set(run.columns))
        lacking = [run for run in runs_of if run not in members and (run.finished or run.columns)]
        remarks += [f"{run.name}: not drawn, " + (f"no {x} or no {y}" if run.columns else run.note) for run in lacking]
        if group.method == NO_RECORD:
            remarks += [f"{run.name}: not drawn, as its settings are not recorded" for run in members]
        elif members:
            drawn.append(RunGroup(group.method, group.task, members))
    remarks += _without_score(drawn, y, x)
    scores, scale, missing = _scores(drawn, y, x)
    return Study(tuple(runs), tuple(drawn), y, x, scale, scores, tuple(dict.fromkeys([*remarks, *missing])))


def _default_column(runs: Sequence[RunResult]) -> str:
    raw = bool(runs) and all(GAME_SCORE in run.columns and atari_game(run.task) for run in runs)
    return GAME_SCORE if raw else RETURN


def _without_score(groups: Sequence[RunGroup], y: str, x: str) -> list[str]:
    """Name the finished runs that are left out of the scores: a method must not rise because a run has diverged."""
    runs = [run for group in groups for run in group.finished if not np.isfinite(run.final(y, x))]
    return [f"{run.name}: finished, and not scored, as its last tenth has no {y}" for run in runs]


def _scores(groups: Sequence[RunGroup], y: str, x: str) -> tuple[dict[str, Array], str, list[str]]:
    """Return the matrix of each method, the scale of its numbers, and why methods are missing."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    normalised = y == GAME_SCORE and all(atari_game(task) for task in tasks)
    scale = "human-normalised score" if normalised else y
    if len(tasks) > 1 and not normalised:
        return {}, scale, [f"no scores over tasks: {y} of {', '.join(tasks)} is not on one scale"]
    found: dict[str, Array] = {}
    missing = []
    for method in dict.fromkeys(group.method for group in groups):
        columns = {
            group.task: [run.final(y, x) for run in group.finished] for group in groups if group.method == method
        }
        lengths = [sum(map(np.isfinite, columns.get(task, []))) for task in tasks]
        if len(set(lengths)) > 1 or not lengths[0]:
            counts = ", ".join(f"{n} on {task or 'the task'}" for n, task in zip(lengths, tasks, strict=True))
            missing.append(f"{method}: no scores, as its finished runs with a score are {counts}")
            continue
        matrix = np.array([[value for value in columns[task] if np.isfinite(value)] for task in tasks]).T
        if normalised:
            matrix = np.array(
                [[human_normalized_score(t, s) for t, s in zip(tasks, row, strict=True)] for row in matrix]
            )
        found[method] = matrix
    return found, scale, missing
