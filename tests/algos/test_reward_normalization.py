"""Rewards normalised by running statistics, against a plain loop over the rows of each environment."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import PgAgent
from rlpyt.algos import A2C, PPO
from tests.algos.small_problems import RandomEnv, learn_from, set_up

T, B, DISCOUNT = 8, 3, 0.9


def batches(algo: Any, agent: Any, n: int = 5, **settings: Any) -> list[Any]:
    """Samples, copied, and the rewards that the algorithm learned from."""
    sampler = set_up(algo, agent, RandomEnv, T=T, B=B, **settings)
    seen, normalize = [], algo.reward_scale

    def watch(env: Any, hyper: Any) -> torch.Tensor:
        seen.append((deepcopy(env), normalize(env, hyper)))
        return seen[-1][1]

    algo.reward_scale = watch
    try:
        learn_from(algo, sampler, n)
    finally:
        sampler.shutdown()
        algo.reward_scale = normalize
    return seen


@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_rewards_are_divided_by_the_deviation_of_all_running_returns_so_far(AlgoCls):
    agent = PgAgent()
    returns: list[float] = []
    running = np.zeros(B)
    n_done = 0
    for env, normalized in batches(AlgoCls(discount=DISCOUNT, normalize_reward=True, reward_clip=0.8), agent):
        for t in range(T):
            for b in range(B):
                if env.valid[t, b]:
                    running[b] = env.reward[t, b] + DISCOUNT * running[b]
                    returns.append(running[b])
                if env.terminated[t, b] or env.truncated[t, b]:
                    running[b], n_done = 0.0, n_done + 1
        expected = np.clip(env.reward.numpy() / np.std(returns), -0.8, 0.8)
        np.testing.assert_allclose(normalized.numpy(), expected, rtol=1e-4, atol=1e-6)
        assert (np.abs(expected) == 0.8).any()
    assert n_done > 3
    assert agent.reward_rms.count.item() == len(returns)


def test_a_lost_episode_ends_the_running_return_too():
    algo, agent = A2C(discount=1.0, normalize_reward=True), PgAgent()
    env = batches(algo, agent)[-1][0]
    steady = env._replace(
        reward=torch.ones(T, B),
        terminated=torch.zeros(T, B, dtype=torch.bool),
        truncated=torch.zeros(T, B, dtype=torch.bool),
        valid=torch.ones(T, B, dtype=torch.bool),
    )
    steady.valid[0, 0] = False  # of an environment that was put in place of a lost one
    steady.reward[0, 0] = 0.0
    assert algo.reward_scale is not None
    algo.reward_scale.running_return = torch.full((B,), 20.0)
    algo.reward_scale(steady, algo.hyper(0))
    assert algo.reward_scale.running_return.tolist() == [T - 1, *[20 + T] * (B - 1)]
