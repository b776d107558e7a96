"""Options of `rlpyt train` beside the settings of the parts, and the runner that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, get_origin, get_type_hints

import torch

from rlpyt.cli.algorithms import Algorithm
from rlpyt.cli.arguments import Columns, Modules, Names, Pairs, Steps, Text, Whole
from rlpyt.cli.environment import Environment
from rlpyt.cli.values import Values, value_for, value_of
from rlpyt.logging import SnapshotMode, Verbosity
from rlpyt.runners import (
    AsyncRl,
    AsyncRlEval,
    Hook,
    MinibatchRl,
    MinibatchRlBase,
    MinibatchRlEval,
    SyncRl,
    SyncRlEval,
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
    overwrite: bool = False
    """Remove the records of an earlier run with this ID."""
    if_taken: Literal["next", "refuse"] = "next"
    """Where the ID belongs to another run: take the next free one, ID_1 and so on, or none."""
    name: Text = None
    """Of the experiment, for the records; the default is <algo>_<env>."""
    device: Text = None
    """Where networks learn: cpu, cuda:0, or one for each replica, as cuda:0,cuda:1."""
    smoke: bool = False
    """Train for a few seconds only, to see that everything works."""
    track: Names = ()
    """Send the rows to tensorboard, wandb, mlflow, trackio, or several; with settings: "wandb(project=mine)"."""
    verbosity: Verbosity = "table"
    """What is printed: table; lines, one for each row; quiet, warnings only."""
    line_columns: Columns = ()
    """What lines show of a row, in place of returns and losses."""
    snapshot_mode: SnapshotMode = "last"
    """Weights that are kept: none; last; all, of every row of the log; gap, of some rows; last+gap."""
    snapshot_gap: int = 1
    """Iterations between the snapshots of a mode with gap."""
    hooks: Names = ()
    """Stop early, or write more for TensorBoard: "StopOnReturn(475)", Histograms, EpisodeVideo."""


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
    """Of the networks. auto: float32. fastest: bfloat16 for images, where the processor has instructions for it."""
    compile: bool = False
    """Compile updates whole, which takes up to minutes at first; float32 unless precision is bfloat16."""
    evaluate: bool = False
    """Evaluate at every row of the log, in environments of its own."""
    env_kwargs: Pairs = field(default_factory=dict)
    """Further arguments of the environment, as key=value, or JSON; a text that looks like a number is quoted."""


@dataclass(kw_only=True)
class AgainChoices(RunChoices):
    """Start a recorded run again, in a new directory."""

    trust: Modules = ()
    """Modules of yours that the record may name, such as the one of an environment."""


def choices_with(choices: ChoicesT, given: Mapping[str, object], place: str) -> ChoicesT:
    """Return options with those that a file, a record or a script gives; None leaves one as it is."""
    found, hints = Values(), get_type_hints(type(choices))
    for name in hints.keys() & {name for name, value in given.items() if value is not None}:
        value = given[name]
        try:
            if get_origin(hints[name]) is tuple:  # of texts; a script may have objects among its hooks
                words = value if isinstance(value, list | tuple) else [value]
                found[name] = tuple(word if isinstance(word, Hook) else str(word) for word in words)
            else:
                found[name] = value_for(value, hints[name])
        except ValueError as error:
            raise ValueError(f"{place}: {name}: {error}") from error
    return replace(choices, **found)


def runner_of(chosen: Algorithm, env: Environment, choices: TrainChoices) -> MinibatchRlBase:
    """Return the runner of an algorithm in an environment."""
    parts = chosen.make(env)
    by_default = "cpu" if env.kind == "atari" else "serial"
    SamplerCls = SAMPLERS[by_default if choices.sampler_type == "auto" else choices.sampler_type]
    given: Values = {**parts.sampler}
    if choices.evaluate and env.has_images:
        given |= dict(eval_n_envs=2, eval_max_trajectories=10, eval_max_steps=125_000)
    elif choices.evaluate:
        given |= dict(eval_n_envs=10, eval_max_trajectories=20)
    n_steps = parts.n_steps if choices.n_steps is None else choices.n_steps
    affinity = affinity_of(choices.device or ("cuda:0" if env.has_images and torch.cuda.is_available() else "cpu"))
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
        affinity=affinity,
        settings=_compute_settings(choices, env, affinity),
    )
    if choices.lag is not None:
        lag = value_of(choices.lag, frozenset([int, str]))  # AsyncRl refuses another text
        assert isinstance(lag, int | str)
        return (AsyncRlEval if choices.evaluate else AsyncRl)(**settings, n_replicas=choices.replicas, lag=lag)
    if choices.replicas is not None:
        return (SyncRlEval if choices.evaluate else SyncRl)(**settings, n_replicas=choices.replicas)
    return (MinibatchRlEval if choices.evaluate else MinibatchRl)(**settings)


def _compute_settings(
    choices: TrainChoices, env: Environment, affinity: Kwargs | list[Kwargs] | None
) -> ComputeSettings | Literal["fastest"] | None:
    """Return the settings that precision and compile give; None and "fastest" are the runner's rule."""
    if choices.precision == "fastest":
        if choices.compile:
            raise ValueError("--compile: got it with --precision fastest; expected float32 or bfloat16. Name one.")
        return "fastest"
    if choices.precision == "auto" and not choices.compile:
        return None
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
    """Return the affinity of a run on a device, or on one for each replica."""
    found: list[Kwargs] = []
    for name in device.split(","):
        kind, _, index = name.partition(":")
        if kind not in ("cpu", "cuda") or (index and not index.isdecimal()) or (kind == "cpu" and index):
            raise ValueError(f"--device: got {name!r}; expected cpu, cuda, or cuda:0 and so on.")
        found.append({"cuda_idx": int(index or 0)} if kind == "cuda" else {})
    if len(found) > 1:
        return found
    return found[0] or None
