"""Trials of a search: drawn by Optuna, kept in a journal, and handed to the queue of runs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rlpyt.launching.back_end import Launched
from rlpyt.launching.experiments import Runs
from rlpyt.launching.grid import LOCK_FILE, GridRun, take_lock
from rlpyt.launching.variants import Variant, nested, save_variant
from rlpyt.logging.plots import read_progress
from rlpyt.run_records import STEPS, VARIANT_FILE, score_of_run

if TYPE_CHECKING:
    import optuna

SEARCH_LOCK = "search.lock"
_LOOK_SECONDS = 1.0
_INTERVAL = "report_interval_steps"

Space: TypeAlias = "Mapping[tuple[str, ...], optuna.distributions.BaseDistribution] | Callable[[optuna.Trial], Variant]"
"""Distribution of each setting by its path, or a function that draws a variant."""


@dataclass
class SearchTrial:
    """Trial that this searcher runs."""

    number: int
    """Number in the study, also that of its folder."""
    of_study: optuna.Trial
    """What rows are reported to."""
    runs: list[Launched]
    """One for each seed."""
    lock: int
    """Descriptor of the lock of its folder."""
    last: int = 0
    """Last step that the study knows."""
    early_end: str | None = None
    """State in which its runs end early."""
    last_rows: list[dict[str, str]] = field(default_factory=list)
    """Last row of each log when it was read."""


@dataclass(eq=False)
class Trials(Runs):
    """Trials of a study as runs of a queue; several searchers share a study.

    A searcher holds the lock of a trial's folder while it runs the trial. A trial that goes on in the journal, but is
    not locked, was left by a searcher that was stopped or killed: it is run again, from its checkpoints. The arguments
    are those of `search_experiments`.
    """

    study: optuna.Study
    folder: Path
    space: Space
    n_trials: int
    seeds_per_trial: int
    y: str
    fraction: float
    sampler: Callable[[int], optuna.samplers.BaseSampler]
    seed: int
    args: tuple[str, ...]
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        """Begin without a trial."""
        super().__init__()
        self._trials: dict[Path, SearchTrial] = {}
        self._next_look = 0.0
        self._is_over = self._said = False

    # ---- the queue's side ----

    def has_more(self) -> bool:
        """Return whether a trial is left, also one that another searcher runs: it may be killed."""
        return not self._is_over

    def take(self) -> Launched | None:
        """Return a run of a trial that has begun, or of the next one."""
        while not self.waiting and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            if (trial := self._next_trial()) is not None:
                self._next_look = 0.0
                self._trials[self._folder_of(trial.number)] = trial
                self.runs += trial.runs
                self.waiting.extend(run for run in trial.runs if run.state == "waits")
                self._close(trial)  # if its searcher was killed behind its last row
        return super().take()

    def put_back(self, run: Launched) -> None:
        """Take a run back, unless its trial has ended."""
        trial = self._trials[run.run.log_dir]
        if trial.early_end is None:
            return super().put_back(run)
        run.state = trial.early_end
        self._close(trial)

    def early_end(self, run: Launched) -> str | None:
        """Report new rows; return "pruned" if the pruner ends the trial, "dropped" if a run of it has failed."""
        trial = self._trials[run.run.log_dir]
        if trial.early_end is None and self._report(trial):
            self._end_early(trial, "pruned")
        return trial.early_end

    def has_ended(self, run: Launched) -> None:
        """Take the end of a run, and tell the study that of its trial."""
        trial = self._trials[run.run.log_dir]
        if run.state == "failed" and trial.early_end is None:
            self._end_early(trial, "dropped")
        if run.state == "finished":
            self._value(run.run)  # a wrong column ends the search now, and not after the other seeds
        self._close(trial)

    def release(self) -> None:
        """Leave the trials that have not ended to other searchers."""
        for trial in self._trials.values():
            _unlock(trial)

    # ---- the study's side ----

    def _next_trial(self) -> SearchTrial | None:
        """Return a trial that another searcher has left, or a new one; None where there is none now."""
        lock = take_lock(self.folder / SEARCH_LOCK)
        if lock is None:
            return None
        try:
            return self._left_trial() or self._new_trial()
        finally:
            os.close(lock)

    def _left_trial(self) -> SearchTrial | None:
        running = [t.number for t in self.study.get_trials(deepcopy=False) if t.state.name == "RUNNING"]
        others = [number for number in running if self._folder_of(number) not in self._trials]
        has_all = n_begun(self.study) >= self.n_trials
        self._is_over = has_all and not running
        for number in others:
            if (trial := self._locked(number)) is not None:
                return trial
        if others and has_all and not self._said:
            self._said = True
            self.say(f"Other searchers run the trials {others}: this one waits for their ends. Ctrl-C leaves it.")
        return None

    def _new_trial(self) -> SearchTrial | None:
        n_trials = n_begun(self.study)
        if n_trials >= self.n_trials:
            return None
        # A draw depends on seed, number and what is known: no two searchers and no two starts draw the same.
        self.study.sampler = self.sampler(int(np.random.SeedSequence([self.seed, n_trials]).generate_state(1)[0]))
        number, variant = self._draw(self.space)
        if variant is None:
            self._tell(number, "PRUNED")
            self.say(f"trial_{number} is pruned by the function of the space.")
            self._next_look = 0.0
            return None
        save_variant(variant, self._folder_of(number))
        return self._locked(number)

    def _draw(self, space: Space) -> tuple[int, Variant | None]:
        """Return a new trial's number and variant; None if a function says that its settings do not go together."""
        from optuna import TrialPruned

        if not callable(space):
            trial = self.study.ask({".".join(path): choice for path, choice in space.items()})
            return trial.number, nested(space, [trial.params[".".join(path)] for path in space])
        trial = self.study.ask()
        try:
            variant = space(trial)
        except TrialPruned:
            return trial.number, None
        if not isinstance(variant, dict):
            raise TypeError(
                f"A search: the function of the space returned {variant!r:.100}; expected a variant, a dictionary. "
                "Let it return one."
            )
        return trial.number, variant

    def _locked(self, number: int) -> SearchTrial | None:
        """Return a trial that goes on, with its lock; None if another process has it."""
        from optuna.trial import Trial

        folder = self._folder_of(number)
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder / LOCK_FILE)
        if lock is None:
            return None
        frozen = self.study.get_trials(deepcopy=False)[number]
        runs = [GridRun(folder, i, f"{folder.name}/{i}", self.args) for i in range(self.seeds_per_trial)]
        launched = [Launched(run, "finished" if run.is_finished else "waits", lock=lock) for run in runs]
        trial = SearchTrial(number, Trial(self.study, frozen._trial_id), launched, lock, frozen.last_step or 0)
        if frozen.state.name == "RUNNING" and (folder / VARIANT_FILE).exists():
            return trial
        if frozen.state.name == "RUNNING":
            self.say(f"{folder.name}: its searcher has ended before it was drawn, so that it has failed.")
            self._tell(number, "FAIL")
        _unlock(trial)
        return None

    def _tell(self, number: int, state: str) -> None:
        from optuna.trial import TrialState

        self.study.tell(number, state=TrialState[state])

    def _folder_of(self, number: int) -> Path:
        return self.folder / f"trial_{number}"

    # ---- rows and ends ----

    def _report(self, trial: SearchTrial) -> bool:
        """Report the rows that all seeds have, each step once and in order; return whether the pruner ends the trial.

        Rows come at other steps if the batch is another one, and a pruner compares trials at one step. So a row counts
        at the multiple of the first trial's first step that it has passed.
        """
        last_rows = [run.run.last_row() for run in trial.runs]
        if last_rows == trial.last_rows:
            return False
        trial.last_rows = last_rows
        curves = [self._curve(run.run) for run in trial.runs]
        for row_step in sorted(set.intersection(*map(set, curves)) - {0}):
            step = row_step // self._interval(row_step) * self._interval(row_step)
            value = sum(curve[row_step] for curve in curves) / len(curves)
            if step <= trial.last or not math.isfinite(value):
                continue
            trial.last = step
            trial.of_study.report(value, step)
            if trial.of_study.should_prune():
                return True
        return False

    def _curve(self, run: GridRun) -> dict[int, float]:
        """Return the values of a run so far by their steps; of rows with one step the later one counts.

        Rows without a step are left out, and the value is nan where the column is missing or has not come yet.
        """
        columns = _columns_of(run)
        steps = columns.get(STEPS, [])
        values = columns.get(self.y, [math.nan] * len(steps))
        return {int(step): value for step, value in zip(steps, values, strict=True) if math.isfinite(step)}

    def _value(self, run: GridRun) -> float:
        """Return the mean over the last part of a run that has ended, whose log must have the column by now."""
        columns = _columns_of(run)
        for column in (STEPS, self.y) if columns else ():
            if column not in columns:
                raise ValueError(
                    f"A search: the run {run.directory} has ended, and its log has no column {column!r}; expected y "
                    f"to be one of {sorted(columns)}. Correct y."
                )
        curve = self._curve(run)
        return score_of_run([*curve], [*curve.values()], self.fraction)

    def _interval(self, first_step: int) -> int:
        attributes = self.study.user_attrs
        if _INTERVAL not in attributes:
            self.study.set_user_attr(_INTERVAL, first_step)
            return first_step
        return int(attributes[_INTERVAL])

    def _end_early(self, trial: SearchTrial, state: str) -> None:
        trial.early_end = state
        self._tell(trial.number, "PRUNED" if state == "pruned" else "FAIL")
        self.say(
            f"trial_{trial.number} " + (f"is pruned at step {trial.last}." if state == "pruned" else "has failed.")
        )
        for run in [run for run in trial.runs if run in self.waiting]:
            self.waiting.remove(run)
            run.state = state

    def _close(self, trial: SearchTrial) -> None:
        """Tell the study the value of a trial whose runs have ended."""
        if any(run.process is not None or run.state in ("waits", "stopped") for run in trial.runs):
            return
        if trial.early_end is None:
            values = [self._value(run.run) for run in trial.runs]
            self._report(trial)  # rows that came after the last look; nothing is left to prune
            value = sum(values) / len(values)
            if math.isfinite(value):
                self.study.tell(trial.number, value)
                self.say(f"trial_{trial.number} has the value {value:.6g}.")
            else:
                self.say(f"trial_{trial.number} has failed: {self.y} has no value in the last rows.")
                self._tell(trial.number, "FAIL")
        _unlock(trial)
        self._next_look = 0.0


def n_begun(study: optuna.Study) -> int:
    """Return the number of trials without those that a user has enqueued and that have not begun."""
    return sum(trial.state.name != "WAITING" for trial in study.get_trials(deepcopy=False))


def _unlock(trial: SearchTrial) -> None:
    if trial.lock >= 0:
        os.close(trial.lock)
        trial.lock = -1


def _columns_of(run: GridRun) -> Mapping[str, list[float]]:
    """Return the columns in the log of the newest start of a run; none where there is no log yet."""
    try:
        return read_progress(run.directories[-1])
    except OSError:
        return {}
