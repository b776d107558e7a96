"""The memory of one sampler batch: allocated once, shared by environments (numpy) and agent (torch) without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.old_names import serve_old_names
from rlpyt.spaces import EnvSpaces, null_action, null_value
from rlpyt.types import AgentInputs, AgentSamples, EnvSamples, Samples
from rlpyt.utils.arrays import buffer_from_example, buffer_func, numpify_buffer, torchify_buffer

serve_old_names(__name__)


class Rows(NamedArrayTuple):
    """What is written while a batch is collected; every array has leading dimensions [T or T + 1, B].

    Observation, action and reward have one row more than the batch: row t of `action` and `reward` is what came
    BEFORE row t's observation, so `prev_action` and `action` are the same memory, one row apart.
    """

    observation: Any
    """[T + 1, B]; the last is the one after the batch."""
    action: Any
    """[T + 1, B]; the first is the last one of the batch before."""
    reward: Any
    """[T + 1, B] float32, likewise."""
    terminated: Any
    truncated: Any
    valid: Any
    env_info: Any
    agent_info: Any
    bootstrap_value: Any
    """[1, B] float32, or None."""
    resting: Any
    """[1, B] bool, True while an environment is not stepped: its rows are null and not valid."""


def allocate_rows(example: Samples, T: int, B: int, bootstrap_value: bool, share_memory: bool = False) -> Rows:
    """Allocate the rows of a batch, zero at first.

    Args:
        example: one row, without leading dimensions.
        T: time steps of a batch.
        B: environments.
        bootstrap_value: whether there is a place for the value after the last row.
        share_memory: whether workers write the rows.
    """

    def allocate(leaf: Any, length: int) -> Any:
        return buffer_from_example(leaf, (length, B), share_memory)

    return Rows(
        observation=allocate(example.env.observation, T + 1),
        action=allocate(example.agent.action, T + 1),
        reward=allocate(example.env.reward, T + 1),
        terminated=allocate(example.env.terminated, T),
        truncated=allocate(example.env.truncated, T),
        valid=allocate(example.env.valid, T),
        env_info=allocate(example.env.env_info, T),
        agent_info=allocate(example.agent.agent_info, T),
        bootstrap_value=allocate(np.float32(0), 1) if bootstrap_value else None,
        resting=allocate(np.bool_(False), 1),
    )


def example_of(agent: Any, spaces: EnvSpaces, env_info: Any) -> Samples:
    """Return one row of what the agent and an environment give, as numpy, to allocate rows from.

    Args:
        agent: initialised for the environment's spaces.
        spaces: of the environment.
        env_info: an example of what is recorded of its info, or None.
    """
    actor = agent.actor([0], 1, seed=0)
    actor.begin(0)
    observation = null_value(spaces.observation)
    inputs = buffer_func(
        (observation, null_action(spaces.action), np.float32(0)), lambda x: torch.as_tensor(np.asarray(x)[None])
    )
    # An own agent may give a plain pair.
    action, agent_info = buffer_func(numpify_buffer(actor.step(*inputs)), lambda x: x[0])
    flag, reward = np.bool_(False), np.float32(0)
    return Samples(
        agent=AgentSamples(action, action, agent_info, np.float32(0)),
        env=EnvSamples(
            observation=observation,
            reward=reward,
            prev_reward=reward,
            terminated=flag,
            truncated=flag,
            valid=flag,
            env_info=env_info,
        ),
    )


def samples_of(rows: Rows) -> Samples:
    """Return the batch as the algorithm sees it: torch views of the rows."""
    r = torchify_buffer(rows)
    return Samples(
        agent=AgentSamples(
            action=r.action[1:],
            prev_action=r.action[:-1],
            agent_info=r.agent_info,
            bootstrap_value=r.bootstrap_value,
        ),
        env=EnvSamples(
            observation=r.observation[:-1],
            reward=r.reward[1:],
            prev_reward=r.reward[:-1],
            terminated=r.terminated,
            truncated=r.truncated,
            valid=r.valid,
            env_info=r.env_info,
        ),
    )


def agent_inputs_of(rows: Rows) -> list[AgentInputs]:
    """Return the agent's inputs at every row 0..T as torch views, made once so that a step makes none."""
    inputs = AgentInputs(*torchify_buffer((rows.observation, rows.action, rows.reward)))
    return [inputs[t] for t in range(len(rows.reward))]
