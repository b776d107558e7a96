"""Puts short runs together, and reads what they leave behind."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from rlpyt.agents import CategoricalPgAgent, DqnAgent, RecurrentCategoricalPgAgent
from rlpyt.algos import DQN, PPO
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl, MinibatchRlBase
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.utils.compute import ComputeSettings
from tests.toy_envs import CountingEnv

TIMING = ("Time", "PerSecond")


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
    """Return a sampler: "serial", or "cpu" and the number of workers."""
    options: dict[str, Any] = {"env_kwargs": {}, "max_decorrelation_steps": 0, **kwargs}
    if kind == "serial":
        options.pop("worker_timeout", None)
        return SerialSampler(EnvCls, batch_T=T, batch_B=B, **options)
    return CpuSampler(EnvCls, batch_T=T, batch_B=B, n_workers=int(kind[3:]), **options)


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
