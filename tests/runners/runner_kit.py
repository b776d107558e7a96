"""Puts short runs together, and reads what they leave behind."""

from __future__ import annotations

import csv
import gc
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, DqnAgent, RecurrentCategoricalPgAgent
from rlpyt.algos import DQN, PPO
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl, MinibatchRlBase
from rlpyt.utils import processes
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import available_cpus
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


def wait_for(condition: Any, seconds: float, complaint: str | Path) -> None:
    """Wait until a condition holds; where it does not, fail with the complaint, or what a file says."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint.read_text() if isinstance(complaint, Path) else complaint
        time.sleep(0.02)


def named_memory(pid: int) -> list[str]:
    """Return the named shared memory that a process has mapped: a kill would leave it behind."""
    names = []
    for file in os.listdir(f"/proc/{pid}/map_files"):
        with suppress(OSError):
            names.append(os.readlink(f"/proc/{pid}/map_files/{file}"))
    return [name for name in names if name.startswith("/dev/shm")]


def anonymous_memory() -> int:
    """Return how many blocks of shared memory this process holds."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("/memfd:rlpyt") for link in links if os.path.islink(link))


# ---- fixtures, for `pytest.mark.usefixtures` ----


@pytest.fixture(scope="session")
def _forkserver() -> None:
    start_forkserver()


@pytest.fixture
def nothing_is_left(_forkserver: None) -> Iterator[None]:
    """Check that a test leaves no process, no group of replicas, and this process as it was."""
    before, cpus = children(), available_cpus()
    yield
    # The workers of a worker end a moment after it.
    wait_for(lambda: children() <= before, 15, "processes are left")
    assert not torch.distributed.is_initialized()
    assert available_cpus() == cpus


@pytest.fixture
def no_memory_is_left() -> Iterator[None]:
    """Check that a test leaves no shared memory."""
    blocks, named = anonymous_memory(), set(named_memory(os.getpid()))  # of vector environments, in other tests
    yield
    assert set(named_memory(os.getpid())) <= named
    gc.collect()  # a traceback holds the frames, and they hold the rows
    assert anonymous_memory() <= blocks


@pytest.fixture
def workers_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill workers that hang after half a second."""
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.5)
