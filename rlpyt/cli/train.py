"""Command `rlpyt train`: the runner that the arguments describe, and its run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import torch
import tyro

from rlpyt.cli.algorithms import ALGORITHMS, Algorithm, algorithm, check_fits, is_algorithm
from rlpyt.cli.arguments import Flag, Modules, Pairs, Steps, Text, Whole, joined
from rlpyt.cli.environment import Environment, environment
from rlpyt.cli.next_steps import next_steps
from rlpyt.cli.options import changes_of, options_class
from rlpyt.cli.text import paragraphs
from rlpyt.cli.trained import reading_records
from rlpyt.cli.values import Values, pairs_of, value_of
from rlpyt.launching import update_config
from rlpyt.launching.smoke import smoke
from rlpyt.logging import RunDirectoryError, current_logger, logger_context
from rlpyt.run_records import VARIANT_FILE
from rlpyt.runners import (
    AsyncRl,
    AsyncRlEval,
    MinibatchRl,
    MinibatchRlBase,
    MinibatchRlEval,
    SyncRl,
    SyncRlEval,
    runner_from_params,
)
from rlpyt.samplers import AlternatingSampler, BaseSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.types import Kwargs
from rlpyt.utils import ComputeSettings
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.processes import available_threads

SAMPLERS: dict[str, type[BaseSampler]] = {
    "serial": SerialSampler,
    "cpu": CpuSampler,
    "gpu": GpuSampler,
    "alternating": AlternatingSampler,
}
STAND_IN = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}
"""Environment whose settings the help shows where none is named."""
HELP = ("-h", "--help")
ChoicesT = TypeVar("ChoicesT", bound="RunChoices")


@dataclass(kw_only=True)
class RunChoices:
    """Start a run."""

    log_dir: Text = None
    """Folder of the run, which is run_<ID> in it."""
    run_id: Text = None
    """ID of the run; the default is the first number that is free."""
    resume: Literal["no", "auto"] = "no"
    """Whether a run with this ID goes on from its checkpoint, if it has one."""
    device: Text = None
    """Where networks learn: cpu, cuda:0, or one for each replica, as cuda:0,cuda:1."""
    smoke: Flag = False
    """Train for a few seconds only, to see that everything works."""


@dataclass(kw_only=True)
class TrainChoices(RunChoices):
    """Train an agent."""

    n_steps: Steps = None
    sampler_type: Literal["auto", "serial", "cpu", "gpu", "alternating"] = "auto"
    """Where environments step: here, in workers that act, or in workers for one network. auto: cpu for Atari games."""
    replicas: Whole = None
    """Processes that train one agent together, each with a sampler of its own."""
    lag: Text = None
    """Collect so many batches ahead in another process, or "free" for both at their own pace."""
    precision: Literal["auto", "fastest", "float32", "bfloat16"] = "auto"
    """Of the networks. auto: float32. fastest: the faster one, measured at the start."""
    compile: Flag = False
    """Compile the losses of updates, which takes up to minutes at first; float32 unless precision is bfloat16."""
    evaluate: Flag = False
    """Evaluate at every row of the log, in environments of its own."""
    env_kwargs: Pairs = ()
    """Further arguments of the environment, as key=value, or JSON; a text that looks like a number is quoted."""


@dataclass(kw_only=True)
class AgainChoices(RunChoices):
    """Start a recorded run again, in a new directory."""

    trust: Modules = ()
    """Modules of yours that the record may name, such as the one of an environment."""


class Start(NamedTuple):
    """Run that is about to start."""

    runner: MinibatchRlBase
    name: str
    """Name of the experiment, for its records."""
    log_dir: str
    choices: RunChoices


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
        sampler: object = start.runner.sampler
        made_by = (sampler.EnvCls, sampler.evaluation_kwargs) if isinstance(sampler, BaseSampler) else None
        print(*next_steps(directory, shown(directory), made_by), sep="\n")
    return 0


def run(start: Start) -> Path | None:
    """Train in the directory of the run; return it, or None in a process that keeps no records.

    Raises:
        RunDirectoryError: if the directory is taken.
    """
    run_id = start.choices.run_id
    if start.choices.resume == "auto" and run_id is None:
        run_id = "0"
    number: int | str | None = int(run_id) if run_id is not None and run_id.isdecimal() else run_id
    resume: Literal[False, "auto"] = "auto" if start.choices.resume == "auto" else False
    with logger_context(start.log_dir, number, start.name, resume=resume):
        start.runner.train()
        return current_logger().directory


def shape(
    algo: Annotated[Literal[tuple(ALGORITHMS)], tyro.conf.Positional],  # type: ignore[valid-type]
    env: Annotated[str, tyro.conf.Positional],
    choices: Annotated[TrainChoices, tyro.conf.OmitArgPrefixes],
) -> int:
    """Train an agent, or start a recorded run again."""
    raise AssertionError("a shell completes by the shape of a command, and runs the command itself")


def start_of(arguments: Sequence[str]) -> Start:
    """Return the run that the arguments of `rlpyt train` describe.

    Raises:
        ValueError: if they describe none.
    """
    first, arguments = arguments[0], joined(arguments)
    is_folder = Path(first).is_dir()
    if first.endswith(".json") or (is_folder and not is_algorithm(first)):
        return _again(first, arguments[1:])
    chosen = algorithm(first)
    if len(arguments) < 2 or arguments[1] in HELP:
        name = STAND_IN["discrete" if "discrete" in chosen.actions else "continuous"]
        if len(arguments) < 2:
            folder = f" For the folder of that name write ./{first}" if is_folder else ""
            raise ValueError(
                f"there is no environment after {first}; expected one, such as rlpyt train {first} {name}{folder}"
            )
        return _new(first, name, arguments[1:])
    if arguments[1].startswith("-"):
        raise ValueError(f"got {arguments[1]!r} after {first}; expected the environment. Options come after it.")
    return _new(first, arguments[1], arguments[2:])


def _new(name: str, env_name: str, arguments: Sequence[str]) -> Start:
    prog = f"rlpyt train {name} {env_name}"
    choices = _choices(TrainChoices, prog, arguments)
    env = environment(env_name, pairs_of(choices.env_kwargs))
    return new_start(name, env, choices, lambda runner: _with_options(runner, choices, prog, arguments))


def new_start(
    name: str, env: Environment, choices: TrainChoices, change: Callable[[MinibatchRlBase], MinibatchRlBase]
) -> Start:
    """Return a run of an algorithm in an environment.

    Args:
        name: of the algorithm.
        env: which the run is in.
        choices: which runner and sampler there are, and where the run goes.
        change: is given the runner with the settings of the table, and returns the one that runs.

    Raises:
        ValueError: if there is no such algorithm, or it does not take the actions of the environment.
    """
    chosen = algorithm(name)
    check_fits(name, chosen, env)
    runner = change(runner_of(chosen, env, choices))
    experiment = f"{name}_{_folder(env.name)}"
    return Start(runner, experiment, choices.log_dir or f"data/{experiment}", choices)


def _again(path: str, arguments: Sequence[str]) -> Start:
    prog, record = f"rlpyt train {path}", record_of_path(Path(path))
    choices = _choices(AgainChoices, prog, arguments)
    changes: Values = {} if choices.device is None else {"affinity": affinity_of(choices.device)}
    with reading_records(choices.trust):
        recorded = runner_from_params(record, trusted=choices.trust, **changes)
    runner = _with_options(recorded, choices, prog, arguments)
    log_dir = choices.log_dir or str(record.resolve().parent.parent)
    return Start(runner, Path(log_dir).resolve().name, log_dir, choices)


def record_of_path(path: Path) -> Path:
    """Return the params.json that a path of a run or a grid stands for.

    Raises:
        FileNotFoundError: if there is none.
    """
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


def _choices(Choices: type[ChoicesT], prog: str, arguments: Sequence[str]) -> ChoicesT:
    """Return the options that decide which runner there is; its settings decide the other options."""
    known = [argument for argument in arguments if argument not in HELP]
    return tyro.cli(Choices, prog=prog, args=known, return_unknown_args=True, add_help=False)[0]


def _with_options(runner: MinibatchRlBase, choices: RunChoices, prog: str, arguments: Sequence[str]) -> MinibatchRlBase:
    """Return the runner with the settings that the options give."""
    Options = options_class(runner, type(choices), left_out=("affinity", "settings", "n_replicas", "lag"))
    options: object = tyro.cli(Options, prog=prog, args=list(arguments), description=f"{type(choices).__doc__} {prog}")
    changed = updated(runner, changes_of(options, runner))
    return smoke(changed) if choices.smoke else changed


def updated(runner: MinibatchRlBase, changes: Values) -> MinibatchRlBase:
    """Return the runner with some settings changed.

    Raises:
        ValueError: if a setting is unknown or is refused.
    """
    sampler, changed = vars(runner)["sampler"], changes.get("sampler")
    if isinstance(sampler, BaseSampler) and isinstance(changed, Mapping):
        changes = {**changes, "sampler": _with_evaluation(sampler, changed)}
    try:
        return update_config(runner, changes)
    except (TypeError, KeyError) as error:
        raise ValueError(str(error.args[0])) from error


def _with_evaluation(base: BaseSampler, changes: Mapping[str, object]) -> Mapping[str, object]:
    """Return changes of a sampler, after which evaluation follows training in all that it has not of its own.

    Evaluation has of its own the arguments in which it has differed so far, and those that the changes name: on the
    command line a dictionary changes some entries of the old one.
    """
    asked = {name: changes[name] for name in ("eval_env_kwargs", "eval_env_overrides") if name in changes}
    train, evaluation = base.env_kwargs or {}, base.evaluation_kwargs
    if not (asked or "env_kwargs" in changes) or not train.keys() <= evaluation.keys():
        return changes  # overrides cannot say that evaluation lacks an argument of training
    if asked and not any(asked.values()):  # None is as training, and {} is without arguments
        return {"eval_env_overrides": None, **changes}
    # By their texts: a value may be an array, which has no one answer to !=.
    own = {key: value for key, value in evaluation.items() if key not in train or repr(train[key]) != repr(value)}
    whole = base.replace(eval_env_kwargs=evaluation, eval_env_overrides=None)
    for entries in asked.values():
        named = update_config(whole, {"eval_env_kwargs": entries}).evaluation_kwargs
        own |= {key: named[key] for key in entries or {}}  # type: ignore[attr-defined]
    return {**changes, "eval_env_kwargs": None, "eval_env_overrides": own or None}


def runner_of(chosen: Algorithm, env: Environment, choices: TrainChoices) -> MinibatchRlBase:
    """Return the runner of an algorithm in an environment."""
    parts = chosen.make(env)
    SamplerCls = SAMPLERS[_sampler_type(choices, env)]
    given: Values = {**parts.sampler, **(_evaluation(env) if choices.evaluate else {})}
    n_steps = parts.n_steps if choices.n_steps is None else choices.n_steps
    settings: Values = dict(
        algo=parts.algo,
        agent=parts.agent,
        sampler=SamplerCls(
            EnvCls=env.EnvCls,
            env_kwargs=env.env_kwargs,
            eval_env_overrides=env.eval_env_overrides or None,
            **given,
        ),
        n_steps=n_steps,
        log_interval_steps=max(1, n_steps // (50 if parts.n_steps > 500_000 else 10)),
        checkpoint_interval_minutes=10,
        affinity=affinity_of(choices.device or _default_device(env)),
        settings=_compute_settings(choices, env),
    )
    if choices.lag is not None:
        lag = value_of(choices.lag, frozenset([int, str]))  # AsyncRl refuses another text
        assert isinstance(lag, int | str)
        return (AsyncRlEval if choices.evaluate else AsyncRl)(**settings, n_replicas=choices.replicas, lag=lag)
    if choices.replicas is not None:
        return (SyncRlEval if choices.evaluate else SyncRl)(**settings, n_replicas=choices.replicas)
    return (MinibatchRlEval if choices.evaluate else MinibatchRl)(**settings)


def _sampler_type(choices: TrainChoices, env: Environment) -> str:
    if choices.sampler_type != "auto":
        return choices.sampler_type
    return "cpu" if env.kind == "atari" else "serial"


def _evaluation(env: Environment) -> Values:
    if env.has_images:
        return dict(eval_n_envs=2, eval_max_trajectories=10, eval_max_steps=125_000)
    return dict(eval_n_envs=10, eval_max_trajectories=20)


def _default_device(env: Environment) -> str:
    return "cuda:0" if env.has_images and torch.cuda.is_available() else "cpu"


def _compute_settings(choices: TrainChoices, env: Environment) -> ComputeSettings | Literal["fastest"] | None:
    """Return the settings that precision and compile give; None and "fastest" let the runner measure.

    Raises:
        ValueError: if there are several devices, or losses are compiled in a precision that is measured.
    """
    if choices.precision == "fastest":
        if choices.compile:
            raise ValueError("--compile: got it with --precision fastest; expected float32 or bfloat16. Name one.")
        return "fastest"
    if choices.precision == "auto" and not choices.compile:
        return None
    affinity = affinity_of(choices.device or _default_device(env))
    if isinstance(affinity, list):
        raise ValueError(f"--device: got {choices.device!r} with --precision or --compile; expected one device.")
    alone = env.has_images and choices.lag is None  # where it collects ahead, the workers have the other cores
    n_threads = available_threads() // (choices.replicas or 1) if alone else 1
    return ComputeSettings(
        device=Affinity.from_mapping(affinity).device,
        precision="bfloat16" if choices.precision == "bfloat16" else "float32",
        channels_last=env.has_images,
        torch_threads=max(1, n_threads),
        compile=choices.compile,
    )


def affinity_of(device: str) -> Kwargs | list[Kwargs] | None:
    """Return the affinity of a run on a device, or on one for each replica.

    Raises:
        ValueError: if the text names none.
    """
    found: list[Kwargs] = []
    for name in device.split(","):
        kind, _, index = name.partition(":")
        if kind not in ("cpu", "cuda") or (index and not index.isdecimal()) or (kind == "cpu" and index):
            raise ValueError(f"--device: got {name!r}; expected cpu, cuda, or cuda:0 and so on.")
        found.append({"cuda_idx": int(index or 0)} if kind == "cuda" else {})
    if len(found) > 1:
        return found
    return found[0] or None


def _folder(name: str) -> str:
    return name.rpartition("ALE/")[2].replace("/", "_").replace(":", "_")


def shown(path: Path) -> str:
    """Return a path as a user would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def usage() -> str:
    """Return the help of the command without an algorithm."""
    lines = [
        "usage: rlpyt train ALGO ENV [OPTIONS]",
        "       rlpyt train RUN [OPTIONS]",
        "",
        "Train an agent, or start a recorded run again in a new directory.",
        "",
        "  ALGO  " + ", ".join(ALGORITHMS),
        "  ENV   an id of gymnasium; a game of Atari; dm_control/cheetah-run; module:Class of your own",
        "  RUN   directory of a run, or its params.json; ./ppo for a folder that is named as an algorithm",
        "",
        "The options are the settings of the parts. rlpyt train ppo CartPole-v1 --help lists them.",
        "rlpyt algos and rlpyt envs tell more about both.",
    ]
    return paragraphs(lines)
