"""Command `rlpyt show`: what a run was and where it stands, from its records alone."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rlpyt.cli.arguments import Run
from rlpyt.cli.text import wrapped
from rlpyt.cli.values import text_of
from rlpyt.run_records import (
    PARAMS_FILE,
    STATUS_FILE,
    STEPS,
    VARIANT_FILE,
    Json,
    in_order,
    job_of,
    last_row,
    newest_checkpoint,
    printable,
    read_json,
    run_directories,
    run_status,
    runs_of_jobs,
)
from rlpyt.slurm import states_of

RETURN = "ReturnAverage"
PARTS = ("algo", "agent", "sampler")
UNKNOWN = object()
"""Recorded value that has no short text, such as a model."""
_TOLD = (
    *("n_steps", "seed", "EnvCls", "env_kwargs", "affinity", "settings", *PARTS),
    *("log_interval_steps", "checkpoint_interval_steps", "checkpoint_interval_minutes"),
    *("sampler.batch_T", "sampler.batch_B"),
)
"""Settings that the first lines tell, or that say nothing about what was learned."""


def show(run: Run) -> int:
    """Show what a run was and where it stands; of a grid, a line for each run.

    Args:
        run: directory of a run, such as data/ppo_CartPole-v1/run_0, or a folder of runs.
    """
    if not run.is_dir():
        close = sorted(str(path) for path in run.parent.glob(f"{run.name[:3]}*") if path.is_dir())[:3]
        hint = f" There are {', '.join(close)}." if close else ""
        raise FileNotFoundError(f"there is no directory {run}; expected that of a run, or of a folder of runs.{hint}")
    directories = run_directories(run)
    jobs = jobs_of(run, directories) if shutil.which("squeue") is not None else {}
    if not directories and not jobs:
        raise ValueError(f"there is no run in {run}; expected a directory run_<ID>, in it or below.")
    lines = run_lines(run, jobs) if directories == [run] else grid_lines(run, in_order({*directories, *jobs}), jobs)
    print("\n".join(map(printable, lines)))  # records may come from elsewhere
    return 0


# ---- one run ----


def run_lines(directory: Path, jobs: Mapping[Path, str]) -> list[str]:
    """Return what there is to tell of a run."""
    params, note = read_json(directory / PARAMS_FILE)
    facts = {**_what(params), **_where(directory, params)}
    if directory in jobs:
        facts["job"] = jobs[directory]
    if note:
        facts["record"] = note
    settings = _changed_settings(params)
    if settings:
        facts["settings"] = "those that differ from their defaults:"
    width = max(map(len, facts)) + 2
    lines = [str(directory), ""]
    for name, text in facts.items():
        lines += wrapped(f"{name.ljust(width)}{text}", width)
    for place, value in settings.items():
        lines += wrapped(f"{' ' * width}{place} = {value}", width + 4)
    return [*lines, "", *_next_steps(directory, params)]


def _what(params: Json) -> dict[str, str]:
    record = _dict(params, "runner")
    settings = _dict(record, "settings")
    if not settings:
        return {}
    collected = _dict(_dict(settings, "sampler"), "settings")
    plan = _dict(params, "plan")
    batch = f"{collected.get('batch_T')} steps of {collected.get('batch_B')} environments"
    return {
        "algorithm": f"{_class(settings, 'algo')}, {_class(settings, 'agent')}",
        "environment": _environment(collected),
        "collected by": f"{_class(settings, 'sampler')}, {batch} in a batch",
        "runner": f"{_name(record.get('class'))}, seed {plan.get('seed', settings.get('seed'))}"
        + (f", on {plan['device']}" if "device" in plan else ""),
    }


def _where(directory: Path, params: Json) -> dict[str, str]:
    state, note = run_status(directory)
    record, _ = read_json(directory / STATUS_FILE)
    times = [f"started {str(record['started'])[:16].replace('T', ' ')}"] if "started" in record else []
    seconds = record.get("seconds")
    times += [f"ended after {_duration(seconds)}"] if isinstance(seconds, int | float) else []
    row = last_row(directory)
    facts = {"status": ", ".join([state, *times]) + (f" ({note.splitlines()[0]})" if note else "")}
    facts["steps"] = _steps(row, params)
    if RETURN in row:
        facts["return"] = f"{_number(row[RETURN])} at the newest row of the log"
    trackers = params.get("track")
    if isinstance(trackers, list) and trackers:
        facts["tracked by"] = ", ".join(map(str, trackers))
    checkpoint = newest_checkpoint(directory)
    facts["checkpoint"] = f"at {_number(checkpoint)} steps" if checkpoint is not None else "none"
    return facts


def _steps(row: Mapping[str, str], params: Json) -> str:
    planned = _dict(params, "plan").get("steps")
    of = f" of {_number(planned)}" if planned is not None else ""
    return f"{_number(row[STEPS]) if STEPS in row else 'none yet'}{of}"


def _next_steps(directory: Path, params: Json) -> list[str]:
    state, _ = run_status(directory)
    lines, path = [], shlex.quote(str(directory))
    trust = trust_options(params)
    if newest_checkpoint(directory) is not None and state != "running":
        longer = " --n-steps N" if state == "finished" else ""
        lines.append(f"go on:        rlpyt resume {path}{longer}{trust}")
    if "settings" in _dict(params, "runner"):  # that of rlpyt 0.1 has none
        lines.append(f"start again:  rlpyt train {path}{trust}")
    return lines


def trust_options(params: Json) -> str:
    """Return the options by which a command is told to trust the modules of a record, after a space; "" for none."""
    modules = sorted(_modules(_dict(params, "runner")))
    return " ".join([" --trust", *map(shlex.quote, modules)]) if modules else ""


def _modules(recorded: object) -> set[str]:
    """Return the packages that a record names, other than those that it may name without `--trust`."""
    parts = recorded if isinstance(recorded, list) else list(recorded.values()) if isinstance(recorded, dict) else []
    found = set[str]().union(*map(_modules, parts))
    for key in ("class", "name", "id"):
        module, colon, _ = str(recorded.get(key)).partition(":") if isinstance(recorded, dict) else ("", "", "")
        if colon and all(word.isidentifier() for word in module.split(".")):
            found.add(module.partition(".")[0])
    return found - {"rlpyt", "gymnasium", "torch", "__main__"}  # the last is a script, which only Python can hand in


def _changed_settings(params: Json) -> dict[str, str]:
    record = _dict(params, "runner")
    changed = dict(_changed(record, ""))
    for part in PARTS:
        changed |= dict(_changed(_dict(_dict(record, "settings"), part), f"{part}."))
    return changed


def _changed(record: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    at_default = record.get("at_default")
    left_out = {*_TOLD, *(map(str, at_default) if isinstance(at_default, list) else ())}
    for name, recorded in _dict(record, "settings").items():
        if {name, f"{prefix}{name}"} & left_out or "state_dict" in name:
            continue
        if name == "hooks" and isinstance(recorded, list):
            yield name, ", ".join(map(_hook, recorded))
        elif (value := _plain(recorded)) is not UNKNOWN:
            yield f"{prefix}{name}", text_of(value)


def _hook(recorded: object) -> str:
    record = recorded if isinstance(recorded, dict) else {}
    settings = dict(_changed(record, ""))
    brackets = f"({','.join(f'{name}={value}' for name, value in settings.items())})" if settings else ""
    return f"{_name(record.get('class'))}{brackets}"


def _plain(value: object) -> object:
    """Return a recorded value; the name of a class or function; UNKNOWN for another one."""
    if isinstance(value, list):
        return [_part(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value or "unrecorded" in value:
        return UNKNOWN
    if "name" in value:
        return _name(value["name"])
    if "float" in value and str(value["float"]) in ("nan", "inf", "-inf"):
        return float(str(value["float"]))
    if "tuple" in value and isinstance(value["tuple"], list):
        return [_part(item) for item in value["tuple"]]
    return {key: _part(item) for key, item in value.items()}


def _part(value: object) -> object:
    plain = _plain(value)
    return "..." if plain is UNKNOWN else plain


def _environment(record: Mapping[str, object]) -> str:
    """Return the environment as a user names it."""
    kwargs = _plain(record.get("env_kwargs"))
    made_by = _name(_dict(record, "EnvCls").get("name", "?"))
    if not isinstance(kwargs, dict):
        return made_by
    name = str(kwargs.pop("id", kwargs.pop("game", made_by)))
    return f"{name} ({text_of(kwargs)})" if kwargs else name


# ---- a grid ----


def grid_lines(folder: Path, directories: Sequence[Path], jobs: Mapping[Path, str]) -> list[str]:
    """Return a line for each run, and how many stand how."""
    states = Counter(map(_state, directories))
    head = ("run", "status", "steps", "return", *(["job"] if jobs else []))
    rows = [head, *((*_row(run, folder), jobs.get(run, ""))[: len(head)] for run in directories)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    # Not wrapped, as another program may read them.
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    told = ", ".join(f"{n} {state}" for state, n in states.items())
    is_grid = any((directory.parent / VARIANT_FILE).exists() for directory in directories)
    hint = ["go on: start the grid again with the same command"] if is_grid and set(states) - {"finished"} else []
    hint += [f"one of them: rlpyt show {shlex.quote(str(run))}" for run in directories if run.is_dir()][:1]
    runs = "1 run" if len(directories) == 1 else f"{len(directories)} runs"
    return [str(folder), "", *lines, "", f"{runs}: {told}", *hint]


def _row(directory: Path, folder: Path) -> tuple[str, str, str, str]:
    params, _ = read_json(directory / PARAMS_FILE)
    row = last_row(directory)
    return str(directory.relative_to(folder)), _state(directory), _steps(row, params), _number(row.get(RETURN, ""))


def _state(directory: Path) -> str:
    return run_status(directory)[0] if directory.is_dir() else "not begun"


# ---- jobs ----


def jobs_of(root: Path, directories: Iterable[Path]) -> dict[Path, str]:
    """Return what SLURM says, asked once for all, of the jobs of runs in a folder that have not finished.

    Those that have not begun have no directory; their jobs are found there, too.
    """
    unfinished = [run for run in {*directories, *runs_of_jobs(root)} if _state(run) != "finished"]
    jobs = {run: job_id for run in unfinished if (job_id := job_of(run))}
    states = states_of(jobs.values()) if jobs else {}
    if states is None:
        return {run: f"{job_id} (SLURM does not answer)" for run, job_id in jobs.items()}
    return {run: f"{job_id} {states[job_id]}" for run, job_id in jobs.items()}


# ---- texts ----


def _dict(of: Mapping[str, object], name: str) -> dict[str, object]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _class(settings: Mapping[str, object], part: str) -> str:
    return _name(_dict(settings, part).get("class"))


def _name(path: object) -> str:
    return str(path).rpartition(":")[2]


def _number(value: object) -> str:
    try:
        return f"{float(str(value)):,.6g}" if abs(float(str(value))) < 1e6 else f"{float(str(value)):,.0f}"
    except ValueError:
        return str(value)


def _duration(seconds: float) -> str:
    if not abs(seconds) < 1e12:
        return f"{seconds!s:.20} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
