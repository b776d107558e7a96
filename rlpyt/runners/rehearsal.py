"""Rehearsals of a run: what an update costs in some settings, with copies of its parts and rows that are made up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np
import torch

from rlpyt.core import Agent, Algorithm, example_inputs, rows_per_update
from rlpyt.types import AgentInputs, Run, Samples
from rlpyt.utils.arrays import buffer_func, buffer_leaves, buffer_to, torchify_buffer
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.rw_lock import NoLock

Step = Callable[[], int]
"""Function that takes updates, or passes of a network, and returns how many."""


_SECONDS = 1.2  # that all rounds take, or _ROUNDS of them
_ROUNDS = 3
_ROUND_SECONDS = 0.01  # of one function, where two calls take less
_SLOW_SECONDS = 0.1  # of a call that a round makes once


class Update(NamedTuple):
    """Updates of an algorithm."""

    take: Step
    n_rows: int
    """Rows of one."""


def placed_copy(agent: Agent, settings: ComputeSettings) -> Agent:
    """Return a copy of an agent in some settings, which shares nothing with it."""
    copy = deepcopy(agent)
    copy.to_device(settings)
    return copy


def update_of(
    algo: Algorithm[Agent], agent: Agent, run: Run, settings: ComputeSettings, max_rows: int
) -> Update | None:
    """Return updates as an algorithm takes them; None if it has no rehearsal.

    Args:
        algo: stays as it is.
        agent: initialised; stays as it is.
        run: with the example of a row.
        settings: to compute in.
        max_rows: rows of an update at most.
    """
    made = algo.rehearsal(agent, run.batch_spec, max_rows)
    if made is None:
        return None
    own, spec = deepcopy(made)  # what is set may be objects that keep something
    alone = replace(
        run, batch_spec=spec, n_itr=ceil(run.n_steps / spec.size), replicas=Replicas(), lock=NoLock(), affinity={}
    )
    copy = placed_copy(agent, settings)
    own.initialize(copy, alone)
    samples = made_up(alone)
    copy.train_mode(0)
    own.optimize_agent(0, samples)
    own.append = lambda itr, samples: None  # type: ignore[method-assign]  # the batch is there: updates are timed

    def step() -> int:
        before = own.update_counter
        own.optimize_agent(0, samples)
        return own.update_counter - before

    return Update(step, rows_per_update(own))


def made_up(run: Run) -> Samples:
    """Return a batch whose rows are all as the example, but for random rewards; torch tensors on the CPU."""
    T, B = run.batch_spec

    def repeated(example: object, length: int) -> torch.Tensor:
        row = np.asarray(example)
        return torch.from_numpy(np.array(np.broadcast_to(row, (length, B, *row.shape)), order="C"))

    assert run.example is not None
    agent, env = run.example
    reward = np.random.default_rng(0).standard_normal((T, B), np.float32)
    value, after = None, None
    if run.bootstrap_value:
        value = repeated(np.float32(0), 1)
    if run.bootstrap_inputs:
        after = buffer_func(AgentInputs(env.observation, agent.prev_action, env.prev_reward), repeated, 1)
    rows = Samples(agent._replace(bootstrap_value=None, bootstrap_inputs=None), env)
    agent, env = buffer_func(rows, repeated, T)
    env = env._replace(reward=torchify_buffer(reward), valid=torch.ones(T, B, dtype=torch.bool))
    return Samples(agent._replace(bootstrap_value=value, bootstrap_inputs=after), env)


def network_pass_of(agent: Agent, settings: ComputeSettings, n_rows: int) -> Step:
    """Return a function that takes a forward and backward pass of a copy of an agent, over null rows."""
    copy = placed_copy(agent, settings)
    rows = buffer_to(example_inputs(copy.env_spaces, n_rows), settings.device)
    for module in copy.networks.modules():
        for layer in module.modules():
            if isinstance(layer, torch.nn.RNNBase):
                layer.train()  # without it cuDNN has no gradient; all others stay as they are

    def step() -> int:
        outputs = copy(*rows)
        sum(leaf.float().sum() for leaf in buffer_leaves(outputs) if leaf.requires_grad).backward()
        for parameter in copy.parameters():
            parameter.grad = None
        return 1

    return step


def seconds_of(steps: Sequence[Step], device: str) -> list[float]:
    """Return the seconds of an update by each function, the best of several rounds in which they take turns.

    Raises:
        RuntimeError: if one takes no update.
    """

    def taken(step: Step, n: int) -> float:
        start = time.perf_counter()
        updates = sum(step() for _ in range(n))
        if device != "cpu":
            torch.cuda.synchronize(device)
        if not updates:
            raise RuntimeError("no update was taken")
        return (time.perf_counter() - start) / updates

    for step in steps:
        taken(step, 1)  # to warm up
    start = time.perf_counter()
    first = [taken(step, 1) for step in steps]
    now = time.perf_counter()
    n, rounds, end = 1, [first], now + _SECONDS
    seconds = max((now - start) / len(steps), 1e-4)  # of one call, which may take several updates
    if seconds < _SLOW_SECONDS:  # an even number: the policy of TD3 is updated every second time
        n, rounds = 2 * max(1, round(_ROUND_SECONDS / 2 / seconds)), []
    while len(rounds) < _ROUNDS or time.perf_counter() < end:
        rounds.append([taken(step, n) for step in steps])
    return [min(times) for times in zip(*rounds, strict=True)]
