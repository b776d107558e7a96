"""Command `rlpyt train`: the runner that the arguments describe, and its run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import tyro

from rlpyt.agents import BaseAgent
from rlpyt.algos import RlAlgorithm
from rlpyt.cli.algorithms import ALGORITHMS, algorithm, check_fits
from rlpyt.cli.arguments import joined
from rlpyt.cli.choices import (
    AgainChoices,
    ChoicesT,
    RunChoices,
    TrainChoices,
    affinity_of,
    choices_with,
    runner_of,
)
from rlpyt.cli.environment import Environment, environment
from rlpyt.cli.main import is_of_library
from rlpyt.cli.named import Tracking, recorded_trackers, tracking_of, with_hooks
from rlpyt.cli.next_steps import next_steps
from rlpyt.cli.options import PARTS, changes_of, options_class, values_for
from rlpyt.cli.settings_file import SettingsFile, taken_from
from rlpyt.cli.text import paragraphs
from rlpyt.cli.trained import reading_records, spaces_of
from rlpyt.cli.values import Values
from rlpyt.launching import update_config
from rlpyt.launching.smoke import smoke
from rlpyt.logging import Logger, RunDirectoryError, logger_context, silent_context
from rlpyt.run_records import VARIANT_FILE
from rlpyt.runners import MinibatchRlBase, SyncRl, SyncRlEval, runner_from_params
from rlpyt.runners.from_params import chose_settings, logger_settings, read_params
from rlpyt.samplers import BaseSampler
from rlpyt.samplers.buffer import example_of
from rlpyt.settings import all_settings
from rlpyt.spaces import EnvSpaces
from rlpyt.types import Run
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arguments import ELSEWHERE, argument_names, unknown_argument
from rlpyt.utils.compute import torch_threads
from rlpyt.utils.seeds import global_streams, set_global_streams

STAND_IN = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}
"""Environment whose settings the help shows where none is named."""
HELP = ("-h", "--help")
Change: TypeAlias = Callable[[MinibatchRlBase], MinibatchRlBase]


class Start(NamedTuple):
    """Run that is about to start."""

    runner: MinibatchRlBase
    name: str
    """Name of the experiment, for its records."""
    log_dir: str
    choices: RunChoices
    spaces: EnvSpaces | None = None
    """Of its environments, where one was built to see them."""
    has_recorded_trackers: bool = False
    """Whether the trackers are those of a record, which may come from elsewhere."""


def train(arguments: Sequence[str]) -> int:
    """Train an agent, or start a recorded run again."""
    if not arguments or arguments[0] in HELP:
        print(usage())
        return 0 if arguments else 2
    start = start_of(arguments)
    try:
        directory = run(start)
    except RunDirectoryError as error:
        raise ValueError(str(error)) from error
    if directory is not None:
        here = Path.cwd()
        path = directory.relative_to(here) if directory.is_relative_to(here) else directory
        print(*next_steps(directory, str(path)), sep="\n")
    return 0


def run(start: Start) -> Path | None:
    """Train in the directory of the run; return it, or None in a process that keeps no records."""
    run_id = start.choices.run_id
    if start.choices.resume == "auto" and run_id is None:
        run_id = "0"
    number: int | str | None = int(run_id) if run_id is not None and run_id.isdecimal() else run_id
    resume: Literal[False, "auto"] = "auto" if start.choices.resume == "auto" else False
    check_start(start.runner, start.spaces)
    with logging_of(start, start.log_dir, number, resume) as logger:
        start.runner.train()
        return logger.directory


def trackers_of(start: Start, log_dir: str | os.PathLike[str]) -> Tracking:
    """Return the trackers of a run, in the folder whose name is the group of its seeds there; none is opened yet."""
    group = Path(log_dir).resolve().name
    return tracking_of(start.choices.track, start.choices.name or start.name, group, start.has_recorded_trackers)


@contextmanager
def logging_of(
    start: Start, log_dir: str | os.PathLike[str], run_ID: int | str | None, resume: Literal[False, "auto"]
) -> Iterator[Logger]:
    """Log a run as its options say; what is wrong with them is refused before there is a directory."""
    choices, tracking = start.choices, trackers_of(start, log_dir)
    with logger_context(
        log_dir,
        run_ID,
        choices.name or start.name,
        snapshot_mode=choices.snapshot_mode,
        use_summary_writer=tracking.use_summary_writer,
        sinks=tracking.sinks,
        overwrite=choices.overwrite,
        snapshot_gap=choices.snapshot_gap,
        resume=resume,
        if_taken=choices.if_taken,
        verbosity=choices.verbosity,
        line_columns=choices.line_columns,
    ) as logger:
        if tracking.texts:
            logger.record_params({"track": tracking.texts})  # `rlpyt resume` goes on with them
        yield logger


def check_start(runner: MinibatchRlBase, spaces: EnvSpaces | None = None) -> None:
    """Build agent and algorithm of a run once, so that what they refuse is refused before there is a directory.

    With replicas, which share batches, the algorithm is left to the start of the run, and so is a replay in a file.
    Where there are no spaces, an environment is built to see them.
    """
    sampler, algo = vars(runner)["sampler"], vars(runner)["algo"]
    if not (isinstance(runner.agent, BaseAgent) and isinstance(sampler, BaseSampler) and isinstance(algo, RlAlgorithm)):
        return  # of the user's own
    agent, algo = runner.agent.replace(), algo.replace()
    streams = global_streams()
    try:
        with silent_context(), torch_threads(1):
            spaces = spaces or spaces_of(sampler.EnvCls, dict(sampler.env_kwargs or {}))
            agent.initialize(spaces)
            n_replicas = all_settings(runner).get("n_replicas")
            is_alone = not isinstance(runner, SyncRl | SyncRlEval) and n_replicas in (None, 1)
            if is_alone and all_settings(algo).get("replay_folder") is None:
                run = Run(
                    batch_spec=sampler.batch_spec,
                    n_itr=runner.get_n_itr(),
                    mid_batch_reset=sampler.resets_mid_batch,
                    final_rows=sampler.final_rows,
                    example=example_of(agent, spaces, None),
                    env_methods=sampler.env_methods,
                )
                algo.initialize(agent, run)
    except TypeError as error:
        if is_of_library(error):
            raise ValueError(str(error)) from error
        raise
    finally:
        set_global_streams(streams)


def start_of(arguments: Sequence[str]) -> Start:
    """Return the run that the arguments of `rlpyt train` describe."""
    arguments, file = taken_from(arguments)
    first = arguments[0]
    is_folder = Path(first).is_dir()
    if first.endswith(".json") or (is_folder and first not in ALGORITHMS):
        return _again(first, arguments[1:], file)
    chosen = algorithm(first)
    stand_in = STAND_IN["discrete" if "discrete" in chosen.actions else "continuous"]
    if len(arguments) < 2:
        folder = f" For the folder of that name write ./{first}" if is_folder else ""
        raise ValueError(
            f"there is no environment after {first}; expected one, such as rlpyt train {first} {stand_in}{folder}"
        )
    if arguments[1] in HELP:
        return _new(first, stand_in, arguments[1:], file)
    if arguments[1].startswith("-"):
        raise ValueError(f"got {arguments[1]!r} after {first}; expected the environment. Options come after it.")
    return _new(first, arguments[1], arguments[2:], file)


def _new(name: str, env_name: str, arguments: Sequence[str], file: SettingsFile) -> Start:
    of_file = choices_with(TrainChoices(), file.values, file.path)
    choices, settings = _read(f"{name} {env_name}", of_file, arguments)
    env = environment(env_name, {**of_file.env_kwargs, **choices.env_kwargs})
    return new_start(name, env, choices, lambda runner: settings(with_values(runner, file.values, choices, file.path)))


def new_start(name: str, env: Environment, choices: TrainChoices, change: Change) -> Start:
    """Return a run of an algorithm in an environment.

    `change` is given the runner with the settings of the table of algorithms, and returns one with others.
    """
    chosen = algorithm(name)
    check_fits(name, chosen, env)
    runner = _chosen(change(runner_of(chosen, env, choices)), choices)
    experiment = f"{name}_{env.name.rpartition('ALE/')[2].replace('/', '_').replace(':', '_')}"
    sampler = vars(runner)["sampler"]
    spaces = env.spaces if isinstance(sampler, BaseSampler) and sampler.env_kwargs == env.env_kwargs else None
    return Start(runner, experiment, choices.log_dir or f"data/{experiment}", choices, spaces)


def _again(path: str, arguments: Sequence[str], file: SettingsFile) -> Start:
    record = record_of_path(Path(path))
    with reading_records(()):
        params = read_params(record)
        logger, track = logger_settings(record.parent, params.get("logger", {})), recorded_trackers(params)
    kept = {name: logger[name] for name in ("snapshot_mode", "snapshot_gap", "verbosity", "line_columns")}
    recorded = choices_with(AgainChoices(), kept, f"{record}, under 'logger'")
    choices, settings = _read(path, choices_with(recorded, file.values, file.path), arguments)
    changes: Values = {}
    if choices.device is not None:
        changes["affinity"] = affinity = affinity_of(choices.device)
        if not chose_settings(params["runner"]):  # those that were given name a device, which counts more
            if isinstance(affinity, list):
                raise ValueError(f"--device: got {choices.device}, and the run has settings of one; expected one.")
            changes["settings"] = {"device": Affinity.from_mapping(affinity).device}
    with reading_records(choices.trust):
        runner = runner_from_params(record, trusted=choices.trust, **changes)
    runner = _chosen(settings(with_values(runner, file.values, choices, file.path)), choices)
    log_dir = choices.log_dir or str(record.resolve().parent.parent)
    name, has_own = Path(log_dir).resolve().name, bool(choices.track)
    return Start(runner, name, log_dir, replace(choices, track=choices.track or track), None, not has_own)


def _read(what: str, default: ChoicesT, arguments: Sequence[str]) -> tuple[ChoicesT, Change]:
    """Return the options that decide which runner there is, and what gives a runner those that its settings are."""
    Choices, prog, joint = type(default), f"rlpyt train {what}", joined(arguments)
    asked = [argument for argument in joint if argument in HELP]
    known = [argument for argument in joint if argument not in HELP]
    choices, rest = tyro.cli(Choices, prog=prog, args=known, default=default, return_unknown_args=True)

    def change(runner: MinibatchRlBase) -> MinibatchRlBase:
        Options = options_class(runner, Choices, left_out=("affinity", "settings", "n_replicas", "lag"))
        _refuse_names_of_others(rest, runner)
        options: object = tyro.cli(Options, prog=prog, args=[*rest, *asked], description=Choices.__doc__)
        return updated(runner, changes_of(options, runner))

    return choices, change


def _chosen(runner: MinibatchRlBase, choices: RunChoices) -> MinibatchRlBase:
    """Return the runner, with the hooks that were chosen, and small for a smoke run."""
    return with_hooks(smoke(runner) if choices.smoke else runner, choices.hooks)


def with_values(
    runner: MinibatchRlBase, given: Mapping[str, object], choices: RunChoices, place: str
) -> MinibatchRlBase:
    """Return the runner with the settings that a file gives beside the options."""
    options = [f.name for f in fields(choices)]
    settings = {name: value for name, value in given.items() if name not in options}
    try:
        check_names(runner, settings, options, place, "{part}.{name}")
        return updated(runner, values_for(runner, settings))
    except TypeError as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def check_names(
    runner: MinibatchRlBase, given: Iterable[str], options: Sequence[str], place: str, of_part: str
) -> None:
    """Refuse settings that are not the runner's, with the place of those that one of its parts has."""
    own = argument_names(type(runner))
    for name in given:
        part = next((part for part in PARTS if name in all_settings(vars(runner)[part])), None)
        if name not in own and part is not None:
            here = of_part.format(part=part, name=name)
            raise TypeError(f"{place}: {name} is a setting of the {part}; expected it there. Write {here}.")
        if name not in own:
            raise TypeError(unknown_argument(place, name, list(dict.fromkeys([*options, *own]))))


def record_of_path(path: Path) -> Path:
    """Return the params.json that a path of a run or a grid stands for."""
    if (path.is_file() and path.name != VARIANT_FILE) or not path.exists():
        return path
    folder = path if path.is_dir() else path.parent
    records = [folder / "params.json", *sorted(folder.glob("run_*/params.json"))]
    found = next((record for record in records if record.is_file()), None)
    if found is None:
        raise FileNotFoundError(
            f"there is no params.json in {folder}, nor in a run_<ID> of it; expected the directory of a run, or of the "
            "runs of a variant."
        )
    return found


def _refuse_names_of_others(arguments: Iterable[str], runner: MinibatchRlBase) -> None:
    """Refuse an option that has its name in another library, such as --algo.lr; the message has the name here."""
    parts = {"": runner, **{f"{part}.": vars(runner)[part] for part in ("sampler", "agent", "algo")}}
    known = [place + name for place, part in parts.items() for name in all_settings(part)]
    for option in (argument.partition("=")[0] for argument in arguments if argument.startswith("--")):
        name = option.removeprefix("--").replace("-", "_")
        here = ELSEWHERE.get(name.rpartition(".")[2])
        found = next((place for place in known if place.rpartition(".")[2] == here), None)
        if found and name not in known:
            raise ValueError(f"there is no option {option}; did you mean --{found.replace('_', '-')}?")


def updated(runner: MinibatchRlBase, changes: Values) -> MinibatchRlBase:
    """Return the runner with some settings changed."""
    sampler, changed = vars(runner)["sampler"], changes.get("sampler")
    if isinstance(sampler, BaseSampler) and isinstance(changed, Mapping):
        changes = {**changes, "sampler": _with_evaluation(sampler, changed)}
    try:
        return update_config(runner, changes)
    except (TypeError, KeyError) as error:
        raise ValueError(str(error.args[0]).removeprefix("update_config: ")) from error


def _with_evaluation(sampler: BaseSampler, changes: Mapping[str, object]) -> Mapping[str, object]:
    """Return changes of a sampler in which `eval_env_kwargs` names the entries that differ from training."""
    if "eval_env_kwargs" not in changes or all_settings(sampler)["eval_env_kwargs"] is not None:
        return changes
    entries, overrides = changes["eval_env_kwargs"], changes.get("eval_env_overrides")
    if not isinstance(entries, Mapping) or not entries:  # None is as training, and {} is without arguments
        return {"eval_env_overrides": None, **changes}
    own = {**overrides, **entries} if isinstance(overrides, Mapping) else entries
    return {**changes, "eval_env_kwargs": None, "eval_env_overrides": own}


def usage() -> str:
    """Return the help of the command without an algorithm."""
    lines = [
        "usage: rlpyt train ALGO ENV [OPTIONS]",
        "       rlpyt train FILE [OPTIONS]",
        "       rlpyt train RUN [OPTIONS]",
        "",
        "Train an agent, or start a recorded run again in a new directory.",
        "",
        "  ALGO  " + ", ".join(ALGORITHMS),
        "  ENV   an id of gymnasium; a game of Atari; dm_control/cheetah-run; module:Class of your own",
        "  FILE  study.yaml with algorithm, env and other options, or a JSON file",
        "  RUN   directory of a run, or its params.json; ./ppo for a folder that is named as an algorithm",
        "",
        "The options are the settings of the parts. rlpyt train ppo CartPole-v1 --help lists them.",
        "rlpyt algos and rlpyt envs tell more about both.",
    ]
    return paragraphs(lines)
