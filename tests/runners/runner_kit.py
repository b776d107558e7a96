"""Puts short runs together, and reads what they leave behind."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlpyt.agents import CategoricalPgAgent, DqnAgent, RecurrentCategoricalPgAgent
from rlpyt.algos import DQN, PPO
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl, MinibatchRlBase
from rlpyt.utils import processes
from rlpyt.utils.compute import ComputeSettings
from tests.samplers import sampler_kit
from tests.toy_envs import CountingEnv

TIMING = ("Time", "PerSecond")

nightly = partial(pytest.param, marks=pytest.mark.nightly)
"""Case for `parametrize` that `make nightly` runs, and the suite does not."""


def make_algo(name: str, **kwargs: Any) -> tuple[Any, Any]:
    """Return an algorithm and an agent for it: "ppo", "ppo lstm" or "dqn"."""
    if name == "dqn":
        defaults: dict[str, Any] = dict(batch_size=8, min_steps_learn=30, replay_size=1000, eps_steps=200)
        return DQN(**{**defaults, **kwargs}), DqnAgent(model_kwargs={"hidden_sizes": 8})
    algo = PPO(**{"minibatches": 2, "epochs": 2, **kwargs})
    if name == "ppo lstm":
        return algo, RecurrentCategoricalPgAgent(model_kwargs={"hidden_sizes": 8, "rnn_size": 8})
    return algo, CategoricalPgAgent(model_kwargs={"hidden_sizes": 8})


def make_sampler(kind: str = "serial", EnvCls: Any = CountingEnv, T: int = 5, B: int = 4, **kwargs: Any) -> Any:
    """Return a sampler of one of the kinds of `sampler_kit.make`."""
    return sampler_kit.make(kind, EnvCls, T, B, **{"env_kwargs": {}, "max_decorrelation_steps": 0, **kwargs})


def run(
    directory: Path, algo: str | tuple[Any, Any] = "ppo", sampler: Any = None, Runner: Any = MinibatchRl, **kwargs: Any
) -> MinibatchRlBase:
    """Train shortly in `directory/run_0`."""
    algorithm, agent = make_algo(algo) if isinstance(algo, str) else algo
    context = {k: kwargs.pop(k) for k in ("snapshot_mode", "snapshot_gap") if k in kwargs}
    options: dict[str, Any] = dict(n_steps=100, seed=3, log_interval_steps=40, settings=ComputeSettings())
    runner: MinibatchRlBase = Runner(
        algo=algorithm, agent=agent, sampler=sampler or make_sampler(), **{**options, **kwargs}
    )
    with logger_context(directory, run_ID=0, **context):
        runner.train()
    return runner


def rows_of(directory: Path) -> list[dict[str, str]]:
    """Return the rows of progress.csv as they stand there."""
    with open(directory / "run_0" / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def header_of(directory: Path) -> list[str]:
    with open(directory / "run_0" / "progress.csv", newline="") as file:
        return next(csv.reader(file))


def without_times(directory: Path) -> list[dict[str, str]]:
    """Return the rows of progress.csv less the columns that tell the time."""
    return [{k: v for k, v in row.items() if not any(t in k for t in TIMING)} for row in rows_of(directory)]


def status_of(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "run_0" / "status.json").read_text())


def children() -> set[int]:
    """Return the processes that this one and its descendants have started and that still run."""
    return {c.pid for c in psutil.Process().children(recursive=True) if c.status() != psutil.STATUS_ZOMBIE}


class _Nothing:
    """What a worker does that only starts the forkserver."""

    def __init__(self, *args: Any) -> None:
        pass

    def close(self) -> None:
        pass


def start_forkserver() -> None:
    """Start the forkserver, which takes seconds the first time, and is a child of this process from then on."""
    processes.stop_workers([processes.Worker(0, _Nothing, (), "forkserver")])


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs, and is no zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
