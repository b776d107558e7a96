"""Trials of a search: drawn by Optuna, kept in a journal, and handed to the queue of runs."""

from __future__ import annotations

import csv
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rlpyt.launching.back_end import Launched
from rlpyt.launching.experiments import Runs
from rlpyt.launching.grid import GridRun, held_grid
from rlpyt.launching.variants import Variant, nested, save_variant
from rlpyt.logging.files import lock_file, open_lock
from rlpyt.run_records import PROGRESS_FILE, STEPS, VARIANT_FILE, score_of_run

if TYPE_CHECKING:
    import optuna

LOCK_FILE = "search.lock"
_LOOK_SECONDS = 1.0
_INTERVAL = "report_interval_steps"

Space: TypeAlias = "Mapping[tuple[str, ...], optuna.distributions.BaseDistribution] | Callable[[optuna.Trial], Variant]"
"""Distribution of each setting by its path, or a function that draws a variant."""
Curve: TypeAlias = dict[int, float]
"""Value by step."""


@dataclass
class SearchTrial:
    """Trial that this searcher runs."""

    number: int
    """Number in the study, also that of its folder."""
    trial_id: int
    """Number in the journal."""
    runs: list[Launched]
    """One for each seed."""
    lock: ExitStack
    """Lock of its folder."""
    last: int = 0
    """Last step that the study knows."""
    early_end: str | None = None
    """State in which its runs end early."""
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Time and size of each log when it was read."""


@dataclass(frozen=True)
class Score:
    """Column that a search maximises or minimises, and how it makes one number of a run."""

    y: str
    """Name of the column."""
    fraction: float
    """Part of the steps at the end of a run, over whose rows the value of a trial is the mean."""

    def curve(self, run: GridRun) -> Curve:
        """Return the whole rows of a run so far; of rows with one step the later one counts.

        Rows without a step are left out, and the value is nan where the column is missing or has not come yet.
        """
        rows = _rows_of(run)
        return {int(float(row[STEPS])): float(row.get(self.y) or "nan") for row in rows if row.get(STEPS)}

    def check(self, run: GridRun) -> None:
        """Refuse a run that has ended without the column: it may come first in a late row, so not before.

        Raises:
            ValueError: if the log has rows, but no such column.
        """
        columns = list(next(iter(_rows_of(run)), ()))
        for column in (STEPS, self.y) if columns else ():
            if column not in columns:
                raise ValueError(
                    f"A search: the run {run.directory} has ended, and its log has no column {column!r}; expected y "
                    f"to be one of {sorted(columns)}. Correct y."
                )

    def final(self, run: GridRun) -> float:
        """Return the mean over the last part of a run; nan without a value there."""
        curve = self.curve(run)
        return score_of_run([*curve], [*curve.values()], self.fraction)


class Trials(Runs):
    """Trials of a study as runs of a queue; several searchers share a study.

    A searcher holds the lock of a trial's folder while it runs the trial. A trial that goes on in the journal, but is
    not locked, was left by a searcher that was stopped or killed: it is run again, from its checkpoints.

    Args:
        study: in a journal that several processes may write.
        folder: absolute folder of the search.
        space: what is drawn.
        n_trials: trials of all searchers.
        seeds_per_trial: runs of each trial.
        score: what is reported.
        sampler: of a seed.
        seed: of the search.
        args: further arguments of all runs.
        say: writes a message.
    """

    def __init__(
        self,
        study: optuna.Study,
        folder: Path,
        space: Space,
        n_trials: int,
        seeds_per_trial: int,
        score: Score,
        sampler: Callable[[int], optuna.samplers.BaseSampler],
        seed: int,
        args: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._study, self._folder, self._space, self._n_trials = study, folder, space, n_trials
        self._seeds_per_trial, self._score, self._sampler, self._seed = seeds_per_trial, score, sampler, seed
        self._args, self._say = tuple(args), say
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
            with alone(self._folder) as is_alone:
                trial = (self._left_trial() or self._new_trial()) if is_alone else None
            if trial is not None:
                self._begin(trial)
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
        """Take the end of a run, and tell the study that of its trial.

        Raises:
            ValueError: if the run has finished without the column of the search.
        """
        trial = self._trials[run.run.log_dir]
        if run.state == "failed" and trial.early_end is None:
            self._end_early(trial, "dropped")
        if run.state == "finished":
            self._score.check(run.run)
        self._close(trial)

    def release(self) -> None:
        """Leave the trials that have not ended to other searchers."""
        for trial in self._trials.values():
            trial.lock.close()

    # ---- the study's side ----

    def _left_trial(self) -> SearchTrial | None:
        """Return a trial that another searcher has left."""
        import optuna

        all_trials = self._study.get_trials(deepcopy=False)
        running = [t.number for t in all_trials if t.state == optuna.trial.TrialState.RUNNING]
        others = [n for n in running if self._folder_of(n) not in self._trials]
        has_all = n_begun(self._study) >= self._n_trials
        self._is_over = has_all and not running
        for number in others:
            if (trial := self._locked(number)) is not None:
                return trial
        if others and has_all and not self._said:
            self._said = True
            self._say(f"Other searchers run the trials {others}: this one waits for their ends. Ctrl-C leaves it.")
        return None

    def _new_trial(self) -> SearchTrial | None:
        import numpy as np
        import optuna

        n_trials = n_begun(self._study)
        if n_trials >= self._n_trials:
            return None
        # A draw depends on seed, number and what is known: no two searchers and no two starts draw the same.
        self._study.sampler = self._sampler(int(np.random.SeedSequence([self._seed, n_trials]).generate_state(1)[0]))
        if callable(self._space):
            drawn = self._study.ask()
            try:
                variant = self._space(drawn)
            except optuna.TrialPruned:  # Optuna's word for settings that do not go together
                self._study.tell(drawn.number, state=optuna.trial.TrialState.PRUNED)
                self._say(f"trial_{drawn.number} is pruned by the function of the space.")
                self._next_look = 0.0
                return None
            if not isinstance(variant, dict):
                raise TypeError(
                    f"A search: the function of the space returned {variant!r:.100}; expected a variant, a dictionary. "
                    "Let it return one."
                )
        else:
            drawn = self._study.ask({".".join(path): choice for path, choice in self._space.items()})
            variant = nested(list(self._space), [drawn.params[".".join(path)] for path in self._space])
        save_variant(variant, self._folder_of(drawn.number))
        return self._locked(drawn.number)

    def _locked(self, number: int) -> SearchTrial | None:
        """Return a trial that goes on, with its lock; None if another process has it."""
        import optuna

        folder = self._folder_of(number)
        with ExitStack() as stack:
            try:
                lock = stack.enter_context(held_grid(folder, wait_seconds=-1.0))
            except RuntimeError:
                return None
            frozen = self._study.get_trials(deepcopy=False)[number]
            if frozen.state != optuna.trial.TrialState.RUNNING:
                return None
            if not (folder / VARIANT_FILE).exists():
                self._say(f"{folder.name}: its searcher has ended before it was drawn, so that it has failed.")
                self._study.tell(number, state=optuna.trial.TrialState.FAIL)
                return None
            runs = [
                GridRun(folder, run_ID, f"{folder.name}/{run_ID}", self._args)
                for run_ID in range(self._seeds_per_trial)
            ]
            launched = [Launched(run, "finished" if run.is_finished else "waits", lock=lock) for run in runs]
            last = frozen.last_step or 0
            return SearchTrial(number, frozen._trial_id, launched, stack.pop_all(), last)

    def _begin(self, trial: SearchTrial) -> None:
        self._next_look = 0.0
        self._trials[self._folder_of(trial.number)] = trial
        self.runs += trial.runs
        self.waiting.extend(run for run in trial.runs if run.state == "waits")
        self._close(trial)  # if its searcher was killed behind its last row

    def _folder_of(self, number: int) -> Path:
        return self._folder / f"trial_{number}"

    # ---- rows and ends ----

    def _report(self, trial: SearchTrial) -> bool:
        """Report the rows that all seeds have, each step once and in order; return whether the pruner ends the trial.

        Rows come at other steps if the batch is another one, and a pruner compares trials at one step. So a row counts
        at the multiple of the first trial's first step that it has passed.
        """
        marks = [_mark(_log_of(run.run)) for run in trial.runs]
        if marks == trial.marks:
            return False
        trial.marks = marks
        curves = [self._score.curve(run.run) for run in trial.runs]
        for row_step in sorted(set.intersection(*map(set, curves)) - {0}):
            step = row_step // self._interval(row_step) * self._interval(row_step)
            value = sum(curve[row_step] for curve in curves) / len(curves)
            if step <= trial.last or not math.isfinite(value):
                continue
            trial.last = step
            self._study._storage.set_trial_intermediate_value(trial.trial_id, step, value)
            if self._study.pruner.prune(self._study, self._study.get_trials(deepcopy=False)[trial.number]):
                return True
        return False

    def _interval(self, first_step: int) -> int:
        attributes = self._study.user_attrs
        if _INTERVAL not in attributes:
            self._study.set_user_attr(_INTERVAL, first_step)
            return first_step
        return int(attributes[_INTERVAL])

    def _end_early(self, trial: SearchTrial, state: str) -> None:
        from optuna.trial import TrialState

        trial.early_end = state
        self._study.tell(trial.number, state=TrialState.PRUNED if state == "pruned" else TrialState.FAIL)
        self._say(
            f"trial_{trial.number} " + (f"is pruned at step {trial.last}." if state == "pruned" else "has failed.")
        )
        for run in [run for run in trial.runs if run in self.waiting]:
            self.waiting.remove(run)
            run.state = state

    def _close(self, trial: SearchTrial) -> None:
        """Tell the study the value of a trial whose runs have ended."""
        from optuna.trial import TrialState

        if any(run.process is not None or run.state in ("waits", "stopped") for run in trial.runs):
            return
        if trial.early_end is None:
            for run in trial.runs:
                self._score.check(run.run)
            self._report(trial)  # rows that came after the last look; nothing is left to prune
            values = [self._score.final(run.run) for run in trial.runs]
            value = sum(values) / len(values)
            if math.isfinite(value):
                self._study.tell(trial.number, value)
                self._say(f"trial_{trial.number} has the value {value:.6g}.")
            else:
                self._say(f"trial_{trial.number} has failed: {self._score.y} has no value in the last rows.")
                self._study.tell(trial.number, state=TrialState.FAIL)
        trial.lock.close()
        self._next_look = 0.0


def n_begun(study: optuna.Study) -> int:
    """Return the number of trials without those that a user has enqueued and that have not begun."""
    from optuna.trial import TrialState

    return sum(trial.state != TrialState.WAITING for trial in study.get_trials(deepcopy=False))


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Hold the lock of a search while the block runs; give False if another searcher has it now."""
    lock = open_lock(folder / LOCK_FILE)
    try:
        lock_file(lock)  # without locks `held_grid` has warned
    except BlockingIOError:
        os.close(lock)
        yield False
        return
    try:
        yield True
    finally:
        os.close(lock)


def _rows_of(run: GridRun) -> list[dict[str, str]]:
    """Return the whole rows in the log of a run; none where there is no log yet."""
    try:
        text = _log_of(run).read_text(encoding="utf-8")
    except OSError:
        return []
    return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))


def _log_of(run: GridRun) -> Path:
    """Return the log of the newest start of a run."""
    return run.directories[-1] / PROGRESS_FILE


def _mark(path: Path) -> tuple[int, int]:
    """Return time and size of a log, which change with each row."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
