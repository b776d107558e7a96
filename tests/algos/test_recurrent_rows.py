"""Recurrent training sees what sampling saw: over episodes that end anywhere, at the borders of batches too."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import PgAgent
from rlpyt.algos import A2C, PPO
from rlpyt.spaces import null_action
from rlpyt.types import AgentInputs, Samples
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from tests.algos.small_problems import RandomEnv, batches, joined, set_up, shake


class RecurrentPgAgent(PgAgent):
    recurrent = True


SPACES = {"discrete": spaces.Discrete(3), "continuous": spaces.Box(2.0, 5.0, (2,))}
CASES = pytest.mark.parametrize(
    ("kind", "space", "AlgoCls"), [("lstm", "discrete", PPO), ("gru", "discrete", A2C), ("lstm", "continuous", A2C)]
)
T, B = 5, 16


def make(kind: str, space: str, AlgoCls: Any, n: int, p_end: float = 0.3) -> tuple[Any, Any, list[Samples]]:
    """An algorithm, a recurrent agent whose state matters, and its batches."""
    algo = AlgoCls(**(dict(minibatches=2, epochs=2) if AlgoCls is PPO else {}))
    agent = RecurrentPgAgent(model_kwargs=dict(recurrent=kind, rnn_size=8, hidden_sizes=8))
    env_kwargs = dict(action_space=SPACES[space], p_end=p_end)
    sampler = set_up(algo, agent, RandomEnv, env_kwargs, T=T, B=B, n_itr=n)
    shake(agent, 0.5)
    return algo, agent, batches(sampler, n)


@CASES
def test_every_episode_stands_alone(kind, space, AlgoCls):
    """An episode run through the model by itself, from zero state and null inputs, gives what was recorded of it."""
    _, agent, collected = make(kind, space, AlgoCls, n=12)
    stream = joined(collected)
    env, recorded = stream.env, stream.agent.agent_info
    null = torch.as_tensor(null_action(agent.env_spaces.action))
    compared, across = 0, 0
    for b in range(B):
        finals = [-1, *(~env.valid[:, b]).nonzero().flatten().tolist()]
        for before, final in pairwise(finals):
            rows = slice(before + 1, final + 1)
            prev_action = null.expand_as(stream.agent.action[rows, b : b + 1]).clone()
            prev_action[1:] = stream.agent.action[before + 1 : final, b : b + 1]
            prev_reward = torch.zeros_like(env.reward[rows, b : b + 1])
            prev_reward[1:] = env.reward[before + 1 : final, b : b + 1]
            inputs = AgentInputs(env.observation[rows, b : b + 1], prev_action, prev_reward)
            zero = buffer_func(recorded.prev_rnn_state[0][b : b + 1], torch.zeros_like)
            dist_info, value = agent(*inputs, zero)
            torch.testing.assert_close(value, recorded.value[rows, b : b + 1], rtol=1e-5, atol=1e-5)
            recorded_params = recorded.dist_info.get(0)[rows, b : b + 1]
            torch.testing.assert_close(dist_info.get(0), recorded_params, rtol=1e-5, atol=1e-5)
            for state in buffer_leaves(recorded.prev_rnn_state[before + 1, b]):
                assert not state.any()
            compared += 1
            across += (before + 1) // T != final // T
    assert compared > 50
    assert across > 10


def test_every_way_to_meet_a_border_occurs():
    """What the tests above rest on: an episode's end in the last row, its final row last and first, its start first."""
    _, _, collected = make("lstm", "discrete", PPO, n=12)
    ends_last = final_last = final_first = start_first = one_step = 0
    for before, samples in pairwise(collected):
        ends_last += int(before.env.done[-1].sum())
        final_last += int((~before.env.valid[-1]).sum())
        final_first += int((~samples.env.valid[0]).sum())
        start_first += int((samples.env.valid[0] & ~before.env.valid[-1]).sum())
        one_step += int((~samples.env.valid[:-2] & samples.env.done[1:-1]).sum())
    assert min(ends_last, final_last, final_first, start_first, one_step) > 5
    assert (ends_last, final_last) == (final_first, start_first)
