"""Command `rlpyt launch`: a grid of runs, of an algorithm or of a script of the user's."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from rlpyt.cli.arguments import OF_GRID, Count, Text, Whole, joined, named
from rlpyt.cli.launched import on_slot, runner_of
from rlpyt.cli.settings_file import taken_from
from rlpyt.cli.slurm import executor_of
from rlpyt.cli.text import paragraphs
from rlpyt.cli.train import HELP, Start, check_start, start_of, trackers_of, updated
from rlpyt.cli.values import Values, inner_value, list_of, value_of
from rlpyt.launching import ClusterSlots, Slots, VariantLevel, make_variants, quick_affinity_code, run_experiments
from rlpyt.launching.grid import GridRun
from rlpyt.run_records import PARAMS_FILE, inside, read_json
from rlpyt.runners import MinibatchRlBase
from rlpyt.runners.checkpointing import changes_of, may_change
from rlpyt.runners.record import at_default, plain_settings, settings_of

SCRIPT = Path(__file__).with_name("launched.py")
JOBS = "jobs"
"""Folder in that of the grid for what submitit writes of each job."""
JOBS_AT_ONCE = 20
"""Jobs that wait or run at once unless --runs-at-once says otherwise: below the limits of most sites."""
LONGEST = 200
"""Bytes of the name of a folder; files beside it have longer names."""
_SHOWN = 3  # differences in one message
OF_ONE_RUN = {
    "--seed": "the seed of each run is its number. Others are varied: --vary seed=5,6",
    "--log-dir": "the folder of a grid is --title in --data-dir",
    "--run-id": "the runs are numbered from 0. --seeds says how many",
    "--resume": "the same command goes on with a grid that was stopped",
    "--overwrite": "the same command goes on with a grid that was stopped",
    "--if-taken": "the same command goes on with a grid that was stopped",
}
"""Options of `rlpyt train` that a grid sets itself, and what to do instead."""
OF_THIS_MACHINE = {
    "--affinity": "a run uses the cores that SLURM gives its job. Ask for them by --slurm cpus_per_task=4",
    "--device": "a run uses the devices that SLURM gives its job. Ask for one by --slurm gpus_per_node=1",
}
"""Options that have no meaning beside --slurm, and what to do instead."""


@dataclass(kw_only=True)
class Grid:
    """Run a grid side by side, or go on with it."""

    vary: Annotated[tuple[str, ...], named("SETTING=VALUES ...")] = ()
    """Settings to cross: algo.epochs=4,10, or with brackets agent.model_kwargs.hidden_sizes=[64,64],[256]."""
    seeds: Count = 1
    """Runs of each setting; their seeds are 0, 1, and so on."""
    runs_at_once: Whole = None
    """Runs side by side; the default is one for each core or device, and 20 jobs with --slurm."""
    affinity: Text = None
    """Affinity code of the run slots, in place of --runs-at-once."""
    slurm: Annotated[tuple[str, ...] | None, named("KEY=VALUE ...")] = None
    """Run as jobs of SLURM that ask for partition=gpu,gpus_per_node=1, named as by sbatch, or by submitit."""
    title: Text = None
    """Folder of the grid; the default is <algo>_<env>_grid."""
    data_dir: Annotated[str, named("TEXT")] = "data"
    """Folder of all grids."""
    retries: Count = 1
    """How often a run that fails is started again."""
    dry_run: bool = False
    """List the runs and end."""


def launch(arguments: Sequence[str]) -> int:
    """Run a grid of runs side by side, or go on with it."""
    if not arguments or arguments[0] in HELP:
        print(usage())
        return 0 if arguments else 2
    if not set(HELP).isdisjoint(arguments):
        tyro.cli(Grid, prog=f"rlpyt launch {arguments[0]} ...", args=["--help"])
    if arguments[0].startswith("-"):
        raise ValueError(f"got {arguments[0]!r}; expected an algorithm or a script first. Options come after it.")
    grid, of_runs = options_of(arguments)
    numbers = (("--seeds", grid.seeds, 1), ("--runs-at-once", grid.runs_at_once, 1), ("--retries", grid.retries, 0))
    for name, number, least in numbers:
        if number is not None and number < least:
            raise ValueError(f"{name}: got {number}; expected a whole number from {least}.")
    variants, log_dirs = variants_of(grid.vary)
    script, title, on_slots = SCRIPT, grid.title, []
    if of_runs and of_runs[0].endswith(".py"):
        script, of_runs = Path(of_runs[0]), of_runs[1:]
        title = title or script.stem
    else:
        _refuse_options(of_runs, OF_ONE_RUN if grid.slurm is None else OF_ONE_RUN | OF_THIS_MACHINE)
        start = start_of(of_runs)
        runners = _checked(start, variants)
        on_slots = runners if start.choices.device is None else []
        title = title or f"{start.name}_grid"
        _refuse_finished_others(start, Path(grid.data_dir) / title, variants, log_dirs, grid.seeds)
    folder = Path(grid.data_dir) / title
    try:
        jobs = None if grid.slurm is None else _jobs(grid, grid.slurm, folder, on_slots)
        if grid.dry_run:
            print("\n".join(listing(folder, log_dirs, grid.seeds, jobs)))
            return 0
        place = jobs or _shares_of_machine(grid, on_slots)
        return run_experiments(
            script,
            place,
            title,
            grid.seeds,
            variants,
            log_dirs,
            common_args=of_runs,
            data_dir=grid.data_dir,
            retries=grid.retries,
        )
    except (TypeError, RuntimeError) as error:
        raise ValueError(str(error)) from error


def _jobs(grid: Grid, asked: Sequence[str], folder: Path, runners: Sequence[MinibatchRlBase]) -> ClusterSlots:
    """Return the place of runs that are jobs of SLURM, which gives each of them its cores and devices."""
    if grid.affinity is not None:
        raise ValueError(f"got --affinity beside --slurm; {OF_THIS_MACHINE['--affinity']}.")
    executor = executor_of(asked, folder / JOBS)
    slots = ClusterSlots(executor, grid.runs_at_once or JOBS_AT_ONCE)
    n_gpus = executor.parameters.get("gpus_per_node", 0)
    for runner in runners if n_gpus > 1 else ():
        on_slot(runner, [{} for _ in range(n_gpus)])  # else each job would refuse them after its time in the queue
    return slots


def _shares_of_machine(grid: Grid, runners: Sequence[MinibatchRlBase]) -> str:
    """Return the affinity code by which runs share this machine; what a runner refuses is refused here."""
    code = grid.affinity or quick_affinity_code(grid.runs_at_once)
    for runner in runners:
        on_slot(runner, replace(Slots.from_code(code), run_slot=0).affinity())
    return code


def _checked(start: Start, variants: Sequence[Values]) -> list[MinibatchRlBase]:
    """Return the runner of each variant; what one of them refuses is refused before anything starts."""
    trackers_of(start, start.log_dir)
    runners = [updated(start.runner, variant) for variant in variants]
    for runner in runners:
        check_start(runner)
    return runners


def _refuse_finished_others(
    start: Start, folder: Path, variants: Sequence[Values], log_dirs: Sequence[str], seeds: int
) -> None:
    """Refuse a grid of which a run has finished with other settings: it would be left out as if it had these."""
    for variant, log_dir in zip(variants, log_dirs, strict=True):
        for run in (GridRun(folder / log_dir, run_ID, log_dir) for run_ID in range(seeds)):
            for directory in run.finished_directories:
                record = inside(read_json(directory / PARAMS_FILE)[0], "runner")
                if not isinstance(record, dict):
                    continue
                runner = runner_of(start, run.run_ID, variant)
                changes = changes_of(plain_settings(record), settings_of(runner), at_default(runner))
                said = [text for name, text in changes.items() if name == "n_steps" or not may_change(name)]
                if said:
                    longer = f" rlpyt resume {directory} --n-steps N lets it go on." if "n_steps" in changes else ""
                    raise ValueError(
                        f"{directory} has finished with other settings: {'; '.join(said[:_SHOWN])}. Expected those it "
                        f"had, as finished runs are left out. Choose another --title, or remove that folder.{longer}"
                    )


def options_of(arguments: Sequence[str]) -> tuple[Grid, list[str]]:
    """Return the options of the grid, and the arguments of each run."""
    args = joined(arguments, OF_GRID)
    return tyro.cli(Grid, prog="rlpyt launch", args=args, return_unknown_args=True)


def _refuse_options(arguments: Sequence[str], refused: Mapping[str, str]) -> None:
    arguments, file = taken_from(arguments)
    names = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    for name in [*names, *(f"--{name}".replace("_", "-") for name in file.values)]:
        if name in refused:
            beside = " beside --slurm" if name in OF_THIS_MACHINE else ""
            raise ValueError(f"got {name}{beside}; {refused[name]}.")


def variants_of(texts: Sequence[str]) -> tuple[list[dict[str, object]], list[str]]:
    """Return the changes of each setting of a grid, and its folder; the first of the texts is the outermost."""
    return make_variants(*map(_level, texts)) if texts else ([{}], ["."])


def _level(text: str) -> VariantLevel:
    place, equals, values = text.partition("=")
    if not equals or not values:
        raise ValueError(f"--vary: got {text!r}; expected a setting and its values, as algo.learning_rate=1e-3,3e-4.")
    # In the values of another setting than a dictionary, such as a text, an = is a letter.
    found = list_of(f"[{values}]", value_of if place.endswith(("kwargs", "overrides")) else inner_value)
    names = [_name(place.rpartition(".")[2], value) for value in found]
    twice = {name for name, n in Counter(names).items() if n > 1}  # as those of 1 and "1"
    names = [_hashed(name, value) if name in twice else name for name, value in zip(names, found, strict=True)]
    return VariantLevel([tuple(place.split("."))], [(value,) for value in found], names)


def _name(setting: str, value: object) -> str:
    """Return the name of the folder of a value: short enough for a file system, for which 255 bytes are too long."""
    text = "_".join(map(str, value)) if isinstance(value, tuple) else str(value)
    name = f"{setting}_{text}".replace(os.sep, "_")
    return name if len(name.encode()) <= LONGEST else _hashed(name[: LONGEST // 4], value)


def _hashed(name: str, value: object) -> str:
    """Return a name with a mark of the value, which no other value has."""
    return f"{name}_{hashlib.sha256(repr(value).encode()).hexdigest()[:8]}"


def listing(folder: Path, log_dirs: Sequence[str], seeds: int, jobs: ClusterSlots | None = None) -> list[str]:
    """Return a line for each run of a grid, after one that counts them and says where they go on if not here."""
    runs = [f"  {Path(log_dir) / f'run_{run_ID}'}" for run_ID in range(seeds) for log_dir in log_dirs]
    where = f", {jobs.n_slots} at once as jobs of SLURM, whose logs are in {folder / JOBS}" if jobs is not None else ""
    return [f"{len(runs)} runs in {folder}{where}:", *runs]


def usage() -> str:
    """Return the help of the command."""
    lines = [
        "usage: rlpyt launch ALGO ENV [--vary SETTING=VALUES ...] [--seeds N] [--runs-at-once N] [OPTIONS]",
        "       rlpyt launch FILE.yaml [--vary SETTING=VALUES ...] [OPTIONS]",
        "       rlpyt launch SCRIPT.py [--vary SETTING=VALUES ...] [OPTIONS]",
        "",
        "Run a grid of runs side by side, or go on with it. ALGO, ENV and all other options are those of rlpyt train. "
        "A script of yours takes its run from rlpyt.launching.launched_run.",
        "",
        "  rlpyt launch ppo CartPole-v1 --vary algo.learning_rate=1e-3,3e-4 --seeds 2",
        "",
        "With --slurm each run is a job of SLURM, and the same command goes on with the grid after any end:",
        "",
        "  rlpyt launch ppo CartPole-v1 --seeds 8 --slurm partition=gpu,account=me,gpus_per_node=1,mem_gb=16",
        "",
        "rlpyt launch ppo CartPole-v1 --help lists the options of the grid.",
    ]
    return paragraphs(lines)
