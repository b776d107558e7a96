"""Evaluations that take the best action: the same whatever the stream of the actions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlpyt.agents import QpgAgent
from rlpyt.utils.arrays import torchify_buffer
from tests.agents.agent_kinds import KINDS, Q_LEARNERS, make_agent, random_inputs, spaces_of

B, STEPS = 6, 4


def actions(agent: Any, kind: str, seed: int, itr: int, **options: Any) -> torch.Tensor:
    """Return the actions [STEPS, B, ...] of an evaluation whose noise has this seed."""
    inputs = torchify_buffer(random_inputs(spaces_of(kind), STEPS, B))
    actor = agent.actor(range(B), B, seed, evaluation=True)
    actor.begin(itr, **options)
    return torch.stack([actor.step(*inputs[t]).action for t in range(STEPS)])


@pytest.mark.parametrize("kind", KINDS)
def test_deterministic_evaluations_do_not_depend_on_the_noise(kind):
    agent = make_agent(kind)
    if isinstance(agent, QpgAgent):
        agent.anneal_exploration(0.0)  # nothing was learned: before the first iteration it explores
    else:
        agent.eps_eval = 1.0
    first = actions(agent, kind, 1, itr=1, deterministic=True)
    for itr in (0, 1):
        assert torch.equal(actions(agent, kind, 2 + itr, itr, deterministic=True), first)
    # The noise is taken away by that alone: without it the same agent draws.
    assert not torch.equal(actions(agent, kind, 2, itr=0), first)
    if not kind.startswith(Q_LEARNERS):
        assert not torch.equal(actions(agent, kind, 2, itr=1), actions(agent, kind, 3, itr=1))
    agent.eval_mode(1, deterministic=True)
    agent.sample_mode(1)
    assert not agent.deterministic
