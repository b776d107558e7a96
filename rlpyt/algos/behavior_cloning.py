"""Behaviour cloning: a policy that is fitted to stored actions, to start a run from."""

from __future__ import annotations

import numpy as np
import torch

from rlpyt.algos.replay_rows import log_policy
from rlpyt.core import Agent, ChoiceAgent, PolicyAgent, QpgPolicyAgent
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays import StoredData
from rlpyt.types import StateDict
from rlpyt.utils.arrays import buffer_func, torchify_buffer
from rlpyt.utils.projection import projections_of

_MOST_UNITS = 0.99  # of a squashed action: at a bound the log-likelihood has no largest value


def clone_behavior(
    agent: Agent,
    data: StoredData,
    *,
    n_updates: int = 2_000,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> StateDict:
    """Fit the policy of a new agent to the actions of stored data, and return the weights for the agent of a run.

        weights = clone_behavior(SacAgent(), data)
        agent = SacAgent(initial_model_state_dict=weights)

    The log-likelihood of the actions is climbed by Adam, on the CPU. A deterministic policy goes down the squared error
    in units of the bounds, which is the likelihood of a Gaussian around it. For SAC, actions at the bounds count as
    0.99 of them. Value functions stay as they were drawn, as do features that only they train, of images.

    Args:
        agent: for policy gradients, SAC, DDPG or TD3; feed-forward. It is initialised here, and can `play` afterwards.
        data: of its environment.
        n_updates: gradient steps.
        batch_size: rows of each, drawn with replacement.
        learning_rate: of Adam.
        seed: of the weights that the agent starts with, and of the draws.

    Returns:
        The state of the agent.

    Raises:
        TypeError: if the agent has no policy, or is recurrent.
        ValueError: if an action lies outside of the bounds, or its row's mask forbids it.
    """
    if agent.recurrent or not isinstance(agent, PolicyAgent | QpgPolicyAgent):
        what = "is recurrent" if agent.recurrent else "has no policy"
        raise TypeError(
            f"clone_behavior: the agent, a {type(agent).__name__}, {what}; expected a feed-forward agent with a "
            "policy. Use one for PPO, A2C, SAC, DDPG or TD3."
        )
    data.check_actions(data.spaces)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        agent.initialize(data.spaces)
    agent.bind(1)
    agent.train_mode(0)
    rows, rng = torchify_buffer(data.rows), np.random.default_rng(seed)
    agent.networks.update_obs_rms(rows.observation, rows.valid)
    steps = np.flatnonzero(data.rows.valid)
    optimizer = torch.optim.Adam(agent.parameters(), lr=learning_rate)
    projections = projections_of(agent.networks.modules(), agent.parameters())
    for _ in range(n_updates):
        at = torch.from_numpy(rng.choice(steps, batch_size))
        observation, action = (buffer_func(x, lambda x, at=at: x[at]) for x in (rows.observation, rows.action))
        # The row before an episode's first one is a final row; before the very first one the last is taken, another.
        before = buffer_func((rows.action, rows.reward), lambda x, at=at: x[at - 1])
        loss = _loss(agent, (observation, *before), action)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for layer in projections:
                layer.project()
    return agent.state_dict()


def _loss(agent: Agent, inputs: tuple[Buffer, ...], action: Buffer) -> torch.Tensor:
    """Return the loss of the policy at rows [M], one number."""
    distribution = agent.distribution
    if not isinstance(agent, QpgPolicyAgent):
        loss: torch.Tensor = -distribution.log_prob(action, agent(*inputs)[0]).mean()
        return loss
    output, units = agent.pi(agent.features(*inputs)), distribution.encode(action)
    if isinstance(agent, ChoiceAgent):
        masks = agent.networks.masks
        log_prob = log_policy(output, None if masks is None else masks.legal(inputs[0]))
        loss = -distribution.log_prob(action, distribution.DistInfo(log_prob)).mean()
        return loss
    if isinstance(output, torch.Tensor):
        return (output - units).square().sum(-1).mean()
    inside = distribution.decode(units.clamp(-_MOST_UNITS, _MOST_UNITS))
    loss = -distribution.log_prob(inside, distribution.DistInfo(*output)).mean()
    return loss
