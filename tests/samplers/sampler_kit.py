"""Builds samplers and agents for the contract tests, and compares what they give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rlpyt.agents import CategoricalPgAgent, RecurrentCategoricalPgAgent
from rlpyt.samplers import BaseSampler, CpuSampler, SerialSampler
from rlpyt.types import TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from tests.toy_envs import CountingEnv, CountingModel

SAMPLERS = ("serial", "cpu1", "cpu2", "cpu3")


@contextmanager
def running(
    kind: str, agent: Any, EnvCls: Any = CountingEnv, T: int = 5, B: int = 3, seed: int = 7, **kwargs: Any
) -> Iterator[BaseSampler]:
    """Yield an initialised sampler: "serial", or "cpu" and the number of workers."""
    options: dict[str, Any] = {"env_kwargs": {}, "max_decorrelation_steps": 0, **kwargs}
    initialize = {
        k: options.pop(k) for k in ("bootstrap_value", "traj_info_kwargs", "world_size", "rank") if k in options
    }
    sampler: BaseSampler
    if kind == "serial":
        options.pop("worker_timeout", None)
        sampler = SerialSampler(EnvCls, batch_T=T, batch_B=B, **options)
    else:
        sampler = CpuSampler(EnvCls, batch_T=T, batch_B=B, n_workers=min(int(kind[3:]), B), **options)
    try:
        sampler.initialize(agent, seed=seed, **initialize)
        yield sampler
    finally:
        sampler.shutdown()


def counting_agent(recurrent: bool = False) -> Any:
    """Return an agent whose actions and values `row_reference` can tell."""
    AgentCls = RecurrentCategoricalPgAgent if recurrent else CategoricalPgAgent
    return AgentCls(ModelCls=CountingModel, model_kwargs={"recurrent": recurrent})


def random_agent(recurrent: bool = False) -> Any:
    """Return an agent with the default model, and weights that are always the same."""
    torch.manual_seed(0)
    convolution = {"channels": [2], "kernel_sizes": [2], "strides": [1], "paddings": [0]}
    sizes = {"hidden_sizes": 8, "fc_sizes": 8, **convolution}
    if recurrent:
        return RecurrentCategoricalPgAgent(model_kwargs={"rnn_size": 8, **sizes})
    return CategoricalPgAgent(model_kwargs=sizes)


def collect(sampler: BaseSampler, n_batches: int, first: int = 0) -> list[Any]:
    """Return copies of some batches, and their trajectories in the order in which they ended."""
    batches = []
    for itr in range(first, first + n_batches):
        samples, traj_infos = sampler.obtain_samples(itr)
        batches.append((buffer_func(samples, torch.clone), [info.statistics() for info in traj_infos]))
    return batches


def in_order(traj_infos: list[TrajInfo]) -> list[list[tuple[str, Any]]]:
    """Return statistics of trajectories in an order that does not depend on when they ended."""
    return sorted(sorted(info.statistics().items()) for info in traj_infos)


def assert_equal_batches(a: list[Any], b: list[Any], rtol: float = 0.0) -> None:
    """Compare batches field by field; integers and flags exactly, floats up to `rtol`."""
    assert len(a) == len(b)
    for (samples_a, infos_a), (samples_b, infos_b) in zip(a, b, strict=True):
        assert infos_a == infos_b
        for x, y in zip(buffer_leaves(samples_a), buffer_leaves(samples_b), strict=True):
            torch.testing.assert_close(x, y, rtol=rtol if x.is_floating_point() else 0, atol=rtol)
