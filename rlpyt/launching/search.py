"""Search of settings by Optuna, on the run slots of a grid: `search_experiments`."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rlpyt.launching.experiments import BackEnd, Queue, signals_to
from rlpyt.launching.local import LocalSlots, script_path
from rlpyt.launching.table import GridTable
from rlpyt.launching.trials import Space, Trials, n_begun
from rlpyt.launching.variants import Variant, check_keys, load_variant, nested, update_config
from rlpyt.settings import Settings
from rlpyt.utils.checks import whole_number
from rlpyt.utils.packages import optional_package

if TYPE_CHECKING:
    import optuna

JOURNAL_FILE = "search.journal"
_STUDY = "search"
_RECORD = "record"


@dataclass(frozen=True)
class SearchResult:
    """Result of a search so far, over all searchers."""

    exit_code: int
    """0 if all trials have ended, 1 if some failed, 85 if the search was stopped before, 130 by Ctrl-C."""
    n_trials: int
    """Trials so far."""
    best_number: int | None = None
    """Number of the best trial; None if no trial has finished."""
    best_value: float | None = None
    """Value of the best trial."""
    best_variant: Variant | None = None
    """Changes of the configuration in the best trial."""


def search_experiments(
    script: str | os.PathLike[str],
    affinity_code: str | BackEnd,
    experiment_title: str,
    space: Space,
    n_trials: int,
    *,
    seeds_per_trial: int = 1,
    y: str = "ReturnAverage",
    direction: str = "maximize",
    fraction: float = 0.1,
    sampler: Callable[[int], optuna.samplers.BaseSampler] | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
    seed: int = 0,
    config: Settings | None = None,
    common_args: Sequence[object] = (),
    set_egl_device: bool = False,
    data_dir: str | os.PathLike[str] = "data",
    retries: int = 1,
    file: TextIO | None = None,
) -> SearchResult:
    """Search settings by Optuna: each trial is a variant in `trial_<number>`, run as `run_experiments` runs a grid.

    Rows of a run are reported while it goes on. A trial that the pruner ends saves a checkpoint first. A call again
    goes on with a search that was stopped, and several calls at once, also on machines that share a file system, work
    on one search: each runs trials of its own, and takes over those of a searcher that has ended.

    Args:
        script: Python file, the same as for a grid.
        affinity_code: as in `run_experiments`.
        experiment_title: the folder of the search in `data_dir`.
        space: distribution of each setting, such as `{("algo", "learning_rate"): FloatDistribution(1e-5, 1e-2,
            log=True)}`. Or a function that draws a variant from an `optuna.Trial`.
        n_trials: trials in all, over all searchers and calls.
        seeds_per_trial: runs of each trial; their mean is reported and is the value.
        y: column of the log.
        direction: "maximize" or "minimize".
        fraction: the value of a run is the mean of `y` over this last part of its steps.
        sampler: makes a sampler of a seed; None is `TPESampler`. Each trial has a sampler with a seed of its own.
        pruner: None is `MedianPruner()`. Its steps are those of the environment.
        seed: of all draws.
        config: configuration that the names of settings in `space` are checked against.
        common_args: further arguments of all runs.
        set_egl_device: whether a run renders on its GPU.
        data_dir: folder of all grids.
        retries: how often a run that fails is started again. After that the trial has failed.
        file: for the table; None is standard output.

    Raises:
        ImportError: if Optuna is missing.
        ValueError: if the search is wrong; nothing has started then. Or if a log has no column `y`.
        TypeError: if a part of the configuration has no such setting.
    """
    optuna = optional_package("optuna", "A search", "search")
    n_trials = whole_number("A search", "n_trials", n_trials, 1)
    seeds_per_trial = whole_number("A search", "seeds_per_trial", seeds_per_trial, 1)
    retries, seed = whole_number("A search", "retries", retries, 0), whole_number("A search", "seed", seed, 0)
    if direction not in ("maximize", "minimize") or not 0 < fraction <= 1:
        raise ValueError(
            f"A search: direction is {direction!r} and fraction {fraction!r}; expected 'maximize' or 'minimize', and a "
            "number above 0 up to 1. Correct them."
        )
    _check_space(space, config)
    path, folder = script_path(script), (Path(data_dir) / experiment_title).resolve()
    slots = LocalSlots(affinity_code, set_egl_device) if isinstance(affinity_code, str) else affinity_code
    args = tuple(map(str, common_args))
    kept = {"y": y, "direction": direction, "fraction": fraction, "seeds_per_trial": seeds_per_trial}
    record = {"space": _space_record(space), **kept, "common_args": [*args]}
    study = _opened(folder, record)
    study.pruner = pruner or optuna.pruners.MedianPruner()
    table = GridTable(folder, file or sys.stdout)
    table.say(f"{n_begun(study)} of {n_trials} trials have begun in {folder}.")
    make = sampler or (lambda number: optuna.samplers.TPESampler(seed=number))
    trials = Trials(study, folder, space, n_trials, seeds_per_trial, y, fraction, make, seed, args, table.say)
    queue = Queue(trials, slots, path, retries, table)
    try:
        with signals_to(queue):
            queue.work()
    finally:
        trials.release()
    result = _result(study, folder, queue.exit_code())
    table.say(_report(study, result))
    return result


def load_search(path: str | os.PathLike[str]) -> optuna.Study:
    """Return the study of a search, for plots and tables of Optuna.

    Args:
        path: the folder of the search.

    Raises:
        FileNotFoundError: if there is no search.
        ImportError: if Optuna is missing.
    """
    optuna = optional_package("optuna", "A search", "search")
    journal = Path(path) / JOURNAL_FILE
    if not journal.is_file():
        raise FileNotFoundError(f"load_search: there is no journal {journal}; expected the folder of a search.")
    return optuna.load_study(study_name=_STUDY, storage=_storage(journal))


def _check_space(space: Space, config: Settings | None) -> None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if callable(space):
        return
    if not space:
        raise ValueError("A search: the space is empty; expected a distribution for each setting. Give some.")
    check_keys("A search", space, "Remove one.")
    for path, choices in space.items():
        if isinstance(choices, FloatDistribution | IntDistribution):
            first: object = choices.low
        elif not isinstance(choices, CategoricalDistribution):
            raise TypeError(
                f"A search: {'.'.join(path)} has {choices!r:.80}; expected a distribution of Optuna, such as "
                "FloatDistribution(1e-5, 1e-2, log=True) or CategoricalDistribution([16, 32])."
            )
        elif not all(isinstance(x, (bool, int, float, str, type(None))) for x in choices.choices):
            raise TypeError(
                f"A search: {'.'.join(path)} has {choices}; expected numbers and texts. Let space be a function that "
                "draws a name and puts the value into the variant."
            )
        else:
            first = choices.choices[0]
        if config is not None:
            with suppress(ValueError):  # a value that does not fit the other settings; the name is right
                update_config(config, nested([path], [first]))


def _space_record(space: Space) -> object:
    from optuna.distributions import distribution_to_json

    if callable(space):
        return "a function"
    return {".".join(path): json.loads(distribution_to_json(choices)) for path, choices in space.items()}


def _storage(journal: Path) -> optuna.storages.JournalStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(journal)))


def _opened(folder: Path, record: Mapping[str, object]) -> optuna.Study:
    """Return the study of a search, which is made if it is missing; another searcher may make it at the same time."""
    import optuna

    journal = folder / JOURNAL_FILE
    if not journal.exists() and any(folder.glob("trial_*")):
        raise ValueError(
            f"A search: {folder} has trials, but there is no journal {journal}. Choose another experiment_title, or "
            "remove that folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    direction = optuna.study.StudyDirection[str(record["direction"]).upper()]
    study = optuna.create_study(study_name=_STUDY, storage=_storage(journal), direction=direction, load_if_exists=True)
    _check_record(study, record, journal)
    return study


def _check_record(study: optuna.Study, record: Mapping[str, object], journal: Path) -> None:
    before = {**record, **study.user_attrs.get(_RECORD, {})}
    if not any(trial.intermediate_values for trial in study.trials):
        before["y"] = record["y"]  # a wrong one may be corrected
    old, new = _flat(before), _flat(record)
    differ = [
        f"{name} {old.get(name)} (now {new.get(name)})"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if differ:
        raise ValueError(
            f"A search: {journal} is of another search: {'; '.join(differ)}. Correct what differs, or choose "
            "another experiment_title."
        )
    if study.user_attrs.get(_RECORD) != record:
        study.set_user_attr(_RECORD, dict(record))


def _flat(record: Mapping[str, object]) -> dict[str, object]:
    space = record["space"]
    settings = {f"space {name}": x for name, x in space.items()} if isinstance(space, dict) else {"space": space}
    return {**settings, **{name: x for name, x in record.items() if name != "space"}}


def _result(study: optuna.Study, folder: Path, exit_code: int) -> SearchResult:
    states = [trial.state.name for trial in study.get_trials(deepcopy=False)]
    if exit_code == 0 and "FAIL" in states:
        exit_code = 1
    if "COMPLETE" not in states:
        return SearchResult(exit_code, len(states))
    best = study.best_trial
    return SearchResult(exit_code, len(states), best.number, best.value, load_variant(folder / f"trial_{best.number}"))


def _report(study: optuna.Study, result: SearchResult) -> str:
    """Return the table of the best trial."""
    from optuna.trial import TrialState

    counts = Counter(trial.state.name for trial in study.get_trials(deepcopy=False))
    named = ", ".join(f"{counts[state.name]} {state.name}" for state in TrialState if counts[state.name]) or "no trials"
    if result.best_number is None:
        return f"Search: {named}. No trial has a value."
    lines = [f"Search: {named}. Best: trial_{result.best_number} with {result.best_value:.6g}."]
    return "\n".join([*lines, *(f"  {name:32} {value}" for name, value in study.best_trial.params.items())])
