"""Contract of an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rlpyt.core import Agent
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, null_value, to_env
from rlpyt.testing.expect import expect, expect_close, random_batch, reloaded, seeded
from rlpyt.types import AgentInputs, AgentStep
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer

Prepare = Callable[[Any], object]
"""What is called with every new agent, of its own class."""


def check_agent(
    make_agent: Callable[[], Agent],
    env_spaces: EnvSpaces,
    *,
    prepare: Prepare | None = None,
    B: int = 3,
    seed: int = 0,
) -> None:
    """Act with actors of an agent, and check what samplers, runners and algorithms rely on.

    Actions are in their space and in row form. The same seed gives the same actions. A deterministic evaluation repeats
    itself. A loaded agent or actor acts as the saved one.

    Args:
        make_agent: an agent class, or any callable that returns a new agent.
        env_spaces: of an environment that the agent serves.
        prepare: called with every agent after `initialize`, to tell it what an algorithm would, such as the range of
            the atoms by `give_V_min_max`.
        B: environments to act in.
        seed: of the actors, and of the weights by torch's global generator, which is left as it was.

    Raises:
        AssertionError: if the contract is broken.
        TypeError: if the agent does not serve the spaces.
    """
    inputs = _inputs(env_spaces, B, seed)
    agent, twin, other = (_made(make_agent, env_spaces, prepare, s) for s in (seed, seed, seed + 1))
    name = type(agent).__name__
    steps, again = (_sampled(one, B, inputs, seed) for one in (agent, twin))
    for step in steps:
        _check_step(name, step, env_spaces, B)
    expect_close(f"{name}: steps of two agents with seed {seed}", tuple(again), tuple(steps), "the same")
    _check_actor_state(name, agent, B, inputs, seed)
    first, second = _deterministic(agent, B, inputs)
    expect_close(f"{name}: two deterministic evaluations", second, first, "the same actions from fresh episodes")
    agent.train_mode(0)
    parameters = list(agent.parameters())
    expect(len(parameters) > 0, f"{name}.parameters() after train_mode", "none", "what an optimiser updates")
    n_modules = len(list(agent.networks.modules()))
    expect(n_modules > 0, f"{name}.networks.modules()", n_modules, "all networks, targets included")
    other.load_state_dict(reloaded(agent.state_dict()))
    expect_close(
        f"{name}: deterministic actions after state_dict went through a file",
        _deterministic(other, B, inputs)[0],
        first,
        "the same",
        1e-5,
    )


def _made(make_agent: Callable[[], Agent], env_spaces: EnvSpaces, prepare: Prepare | None, seed: int) -> Agent:
    with seeded(seed):
        agent = make_agent()
        agent.initialize(env_spaces)
        if prepare is not None:
            prepare(agent)
    return agent


def _inputs(env_spaces: EnvSpaces, B: int, seed: int) -> AgentInputs:
    rng = np.random.default_rng(seed)
    observation, action = (random_batch(space, (B,), rng) for space in env_spaces)
    inputs: AgentInputs = torchify_buffer(AgentInputs(observation, action, rng.normal(size=B).astype(np.float32)))
    return inputs


def _sampled(agent: Agent, B: int, inputs: AgentInputs, seed: int, n: int = 6) -> list[AgentStep]:
    """Return steps of an actor in environments of training."""
    actor = agent.actor(range(B), B, seed)
    actor.begin(0)
    return [buffer_func(actor.step(*inputs), torch.clone) for _ in range(n)]


def _check_actor_state(name: str, agent: Agent, B: int, inputs: AgentInputs, seed: int) -> None:
    actor, loaded = (agent.actor(range(B), B, seed) for _ in range(2))
    for one in (actor, loaded):
        one.begin(0)
        one.step(*inputs)
    actor.step(*inputs)
    loaded.load_state_dict(reloaded(actor.state_dict()))
    steps, again = ([buffer_func(one.step(*inputs), torch.clone) for _ in range(3)] for one in (actor, loaded))
    expect_close(f"{name}: steps of an actor that loaded a state", tuple(again), tuple(steps), "those of the saved one")


def _check_step(name: str, step: AgentStep, env_spaces: EnvSpaces, B: int) -> None:
    space = env_spaces.action
    parts, nulls = buffer_leaves(step.action), [np.asarray(leaf) for leaf in buffer_leaves(null_value(space))]
    expect(len(parts) == len(nulls), f"{name}.step: parts of the actions", len(parts), f"{len(nulls)}")
    for action, null in zip(parts, nulls, strict=True):
        shape = (B, *null.shape)
        expect(tuple(action.shape) == shape, f"{name}.step: shape of the actions", tuple(action.shape), f"{shape}")
        is_float = null.dtype.kind == "f"
        expect(action.is_floating_point() == is_float, f"{name}.step: dtype of actions", action.dtype, f"{null.dtype}")
    for b in range(B):
        row = buffer_func(step.action, lambda x, b=b: x[b].numpy())
        expect(_is_in(space, row), f"{name}.step: an action", row, f"one of {space}")
    for leaf in buffer_leaves(step.agent_info):
        expect(leaf.shape[:1] == (B,), f"{name}.step: shape in agent_info", tuple(leaf.shape), f"[{B}, ...]")
        finite = not leaf.is_floating_point() or bool(leaf.isfinite().all())
        expect(finite, f"{name}.step: agent_info", "numbers that are not finite", "finite ones")


def _is_in(space: Space, row: Buffer) -> bool:
    try:
        return bool(space.contains(to_env(space)(row)))
    except ValueError:
        return False


def _deterministic(agent: Agent, B: int, inputs: AgentInputs, n: int = 3) -> list[tuple[Buffer, ...]]:
    """Return the actions of two deterministic evaluations by one actor, each from fresh episodes."""
    actor = agent.actor(range(B), B, 0, evaluation=True)
    evaluations = []
    for itr in (1, 2):
        actor.begin(itr, deterministic=True)
        evaluations.append(tuple(buffer_func(actor.step(*inputs).action, torch.clone) for _ in range(n)))
    return evaluations
