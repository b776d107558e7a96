"""Groups of the runs of a grid: runs with equal settings, labelled by what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from rlpyt.results.run_settings import text_of
from rlpyt.results.runs import ENDED_EARLY, RunResult, is_task

NO_RECORD = "no settings recorded"
NO_ROWS = "ended before the first row"
NEVER_DIFFER = (
    *("seed", "run_ID", "log_dir", "affinity", "resume", "log_interval_steps", "max_time", "replica_timeout"),
    *("checkpoint_interval_steps", "checkpoint_interval_minutes", "checkpoint_keep"),
)
"""Settings of the run itself that do not change its numbers; an environment may have its own of the same name."""
_PARTS_NEVER_DIFFER = (
    *("sampler.worker_timeout", "sampler.start_method", "sampler.worker_kind"),
    *("sampler.time_breakdown", "algo.replay_folder", "algo.log_loss_after"),
)
"""Settings of the parts that do not change the numbers."""
_CHOSEN = ("compute.device", "compute.channels_last", "compute.torch_threads")
"""Compute settings that the runner chooses for the machine where nobody gives them."""
_NOWHERE = ("slot_affinity_code", "initial_optim_state_dict")
"""Names that are no difference at any depth, as only the launcher and the runner use them."""
_CLASSES_FIRST = ("algo", "agent", "sampler", "runner")


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs with equal settings and task, such as the seeds of one point of a grid."""

    method: str
    """Label of the settings that differ between groups, the task aside; equal for one method on several tasks."""
    task: str
    """Name of the environment or game."""
    runs: tuple[RunResult, ...]
    """Runs of the group."""

    @property
    def finished(self) -> tuple[RunResult, ...]:
        """Runs that have come to their end."""
        return tuple(run for run in self.runs if run.finished)

    @property
    def replaced(self) -> tuple[RunResult, ...]:
        """Runs that have not finished while a later start has: without resume a second start is another run.

        A later start has the same seed, or the same folder and run_ID, where each start drew a seed. Another seed that
        is still running is drawn.
        """
        seeds = {run.seed for run in self.finished} - {None}
        starts = {run.start for run in self.finished} - {None}
        open_runs = [run for run in self.runs if not run.finished]
        return tuple(run for run in open_runs if run.seed in seeds or (run.status != "running" and run.start in starts))

    def remarks(self) -> list[str]:
        """Return what a reader must know of this group.

        That is runs that are not finished or ended early, equal seeds, what no record tells, and other code.
        """
        if self.method == NO_ROWS:
            return [f"not drawn, as there is no row: {', '.join(f'{run.name} ({run.status})' for run in self.runs)}"]
        where = f"{self.method}{f' on {self.task}' if self.task else ''}"
        found = [
            f"{run.name} ({where}): {run.status}" + (f", {shorten(run.note, 120)}" if run.note else "")
            for run in self.runs
            # Of a finished run, such as one that a hook has stopped; another remark says why it is not drawn.
            if not run.finished or (run.note and run.columns and run.settings)
        ]
        found += [
            f"{run.name} ({where}): not drawn, as a finished run has its seed or its run_ID" for run in self.replaced
        ]
        kept = [run for run in self.runs if run not in self.replaced]
        seeds = Counter(run.seed for run in kept if run.seed is not None)
        for seed in [seed for seed, n in seeds.items() if n > 1]:
            names = [run.name for run in kept if run.seed == seed]
            found.append(f"{', '.join(names)} ({where}): the same seed {seed}, so these runs are not independent")
        if len(kept) > 1 and (places := sorted({place for run in kept for place in _unrecorded(run)})):
            found.append(f"{where}: no record tells whether its runs differ in {', '.join(places)}")
        versions = {str((run.params.get("versions"), run.params.get("git_commit"))) for run in self.runs}
        if len(versions) > 1:
            found.append(f"{where}: its runs are from {len(versions)} versions of the code")
        return found


def group_runs(runs: Sequence[RunResult]) -> list[RunGroup]:
    """Group runs by what differs in their recorded settings, in the order in which the groups first come.

    What cannot change the numbers of a run is no difference: its seed, run_ID, log directory, affinity, intervals of
    rows and checkpoints, and compute settings that equal those that another run has chosen. The number of replicas is
    one. A setting of such a name elsewhere, such as `sampler.env_kwargs.seed`, is a difference unless every run has its
    own value there. Labels leave out what follows from another difference: settings that only one class has, and
    settings that change together with equal values. Runs without recorded settings are in a group of their own, and so
    are those that ended without a row, such as runs whose settings were refused.

    Args:
        runs: runs of any status.
    """
    without_rows = tuple(run for run in runs if run.settings and not run.columns and run.status in ENDED_EARLY)
    recorded = [run for run in runs if run.settings and run not in without_rows]
    differing = _differing(recorded)
    of_method = [key for key in differing if not is_task(key)]
    shown = _shown(recorded, of_method)
    names, texts = _short_names(shown), {key: _texts(recorded, key) for key in shown}
    tasks = _task_names(recorded, [key for key in differing if is_task(key)])
    found: dict[tuple[str, ...], list[RunResult]] = {}
    for run in recorded:
        found.setdefault(_point(run, differing), []).append(run)
    groups: list[RunGroup] = []
    labels: dict[str, tuple[str, ...]] = {}
    for members in found.values():
        named = [key for key in shown if key in members[0].settings]
        texts_of = {names[key]: texts[key][_compared(members[0], key)] for key in named}
        # A class needs no name before it.
        label = ", ".join(text if name in _CLASSES_FIRST else f"{name}={text}" for name, text in texts_of.items())
        label = label or text_of(members[0].settings.get("algo", "all runs"))
        label = _unique(label, _point(members[0], of_method), labels)
        groups.append(RunGroup(label, tasks[members[0].directory], tuple(members)))
    unknown = tuple(run for run in runs if not run.settings)
    return groups + [RunGroup(name, "", g) for name, g in ((NO_RECORD, unknown), (NO_ROWS, without_rows)) if g]


def _differing(runs: Sequence[RunResult]) -> list[str]:
    """Return the settings that differ, classes of parts first."""
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    keys.sort(key=lambda key: _CLASSES_FIRST.index(key) if key in _CLASSES_FIRST else len(_CLASSES_FIRST))
    return [key for key in keys if len({_compared(run, key) for run in runs}) > 1 and not _is_of_the_run(runs, key)]


def _is_of_the_run(runs: Sequence[RunResult], key: str) -> bool:
    """Return whether a setting does not change the numbers, or repeats such a one in every run that has the setting."""
    words = key.split(".")
    if not set(words).isdisjoint(_NOWHERE) or key in _PARTS_NEVER_DIFFER:
        return True
    if key in _CHOSEN:
        return len({_compared(run, key) for run in runs if run.gives_compute}) < 2
    if words[-1] == "log_interval_steps" and any(run.settings.get("hooks", "[]") != "[]" for run in runs):
        return False  # a hook may stop the run at a row
    # Variants of rlpyt 0.1 and of a grid may name the runner before its own settings.
    place = next((i for i, word in enumerate(words) if word in NEVER_DIFFER), None)
    if place is None or place == 0 or words[:place] == ["runner"]:
        return place is not None
    own = ".".join(words[place:])
    return all(str(run.settings[key]) == str(_of_the_run(run, own)) for run in runs if key in run.settings)


def _of_the_run(run: RunResult, name: str) -> object:
    """Return the value of a setting of the run itself; None where it has none."""
    logger = run.params.get("logger")
    given = {**logger, **run.settings} if isinstance(logger, dict) else run.settings
    return {**given, "run_ID": run.params.get("run_ID"), "seed": run.seed}.get(name)


def _compared(run: RunResult, key: str) -> str:
    """Return a setting in a form that is equal for equal values, 1 and 1.0 among them."""
    if key not in run.settings:
        return "absent"
    value = run.settings[key]
    if isinstance(value, float | int) and not isinstance(value, bool) and abs(value) < 1e300:
        return f"number {float(value)!r}"
    return f"{type(value).__name__} {value}"


def _unrecorded(run: RunResult) -> list[str]:
    """Return the places of the settings whose values could not be recorded, such as a function of a script."""
    return [place.removesuffix(".unrecorded") for place in run.settings if place.endswith(".unrecorded")]


def _point(run: RunResult, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(_compared(run, key) for key in keys)


def _shown(runs: Sequence[RunResult], differing: Sequence[str]) -> list[str]:
    """Return the settings for labels: those that do not follow from the ones before."""
    shown: list[str] = []
    classes: list[str] = []
    columns: set[tuple[str, ...]] = set()
    for key in differing:
        column = tuple(_compared(run, key) for run in runs)
        of_classes = [_point(run, classes) for run in runs]
        follows = len({*zip(of_classes, column, strict=True)}) == len({*of_classes})
        if column in columns or (classes and follows):
            continue
        columns.add(column)
        shown.append(key)
        if key in _CLASSES_FIRST or any(other.startswith(f"{key}.") for other in differing):
            classes.append(key)
    return shown


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return for each place its last words, as many as tell it from the others."""
    names = {}
    for key in keys:
        path = key.split(".")
        ends = [".".join(path[-n:]) for n in range(1, len(path) + 1)]
        others = [f".{other}" for other in keys if other != key]
        names[key] = next((end for end in ends if not any(o.endswith(f".{end}") for o in others)), key)
    return names


def _texts(runs: Sequence[RunResult], key: str) -> dict[str, str]:
    """Return the text of each value of a setting, as short as the values can be told apart."""
    values = {_compared(run, key): run.settings[key] for run in runs if key in run.settings}
    texts = {value: text_of(given) for value, given in values.items()}
    if len(set(texts.values())) < len(texts):
        texts = {value: text_of(given, short=False) for value, given in values.items()}
    return texts


def _task_names(runs: Sequence[RunResult], keys: Sequence[str]) -> dict[Path, str]:
    """Return the name of the task of each run: where two tasks have one name, with the settings that differ."""
    found: dict[str, dict[tuple[str, ...], list[RunResult]]] = {}
    for run in runs:
        found.setdefault(run.task, {}).setdefault(_point(run, keys), []).append(run)
    names: dict[Path, str] = {}
    taken: dict[str, tuple[str, ...]] = {}
    for name, tasks in found.items():
        differing = [key for key, values in zip(keys, zip(*tasks, strict=True), strict=True) if len(set(values)) > 1]
        for task, members in tasks.items():
            more = [text_of(members[0].settings.get(key), 200, short=False) for key in differing]
            unique = _unique(name + (f" ({', '.join(more)})" if more else ""), task, taken)
            names |= {run.directory: unique for run in members}
    return names


def _unique(label: str, method: tuple[str, ...], labels: dict[str, tuple[str, ...]]) -> str:
    """Return the label, with a number where another method has it: long values are cut in labels."""
    number, unique = 1, label
    while labels.setdefault(unique, method) != method:
        number += 1
        unique = f"{label} ({number})"
    return unique
