"""Rewards divided by the running scale of the returns, against a loop over rows: on policy, and of a replay."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlpyt.agents import DqnAgent, PgAgent
from rlpyt.algos import A2C, DQN, PPO
from rlpyt.algos.return_scale import ReturnScale
from rlpyt.types import Samples
from rlpyt.utils.arrays import torchify_buffer
from rlpyt.utils.replicas import Replicas
from tests.algos.small_problems import RandomEnv, batches, learn_from, optimize, set_up
from tests.algos.test_stored_rows import recorded

DISCOUNT = 0.8
SETTINGS: dict[str, Any] = dict(
    min_steps_learn=64, replay_size=600, batch_size=8, replay_ratio=1, n_step_return=2, discount=DISCOUNT
)
SMALL: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=8))


def sums_of(collected: list[Samples]) -> torch.Tensor:
    """Discounted sums up to every valid row, by a loop over rows."""
    names = ("reward", "terminated", "truncated", "valid")
    reward, terminated, truncated, valid = (torch.cat([x.env[name] for x in collected]) for name in names)
    sums = list[float]()
    for b in range(reward.shape[1]):
        running = 0.0
        for t in range(len(reward)):
            if valid[t, b]:
                running = float(reward[t, b]) + DISCOUNT * running
                sums.append(running)
            if not valid[t, b] or terminated[t, b] or truncated[t, b]:
                running = 0.0
    return torch.tensor(sums, dtype=torch.float64)


# ---- on policy ----


@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_rewards_are_divided_by_the_deviation_of_all_running_returns_so_far(AlgoCls):
    algo, agent = AlgoCls(discount=DISCOUNT, normalize_reward=True, reward_clip=0.8), PgAgent()
    collected = batches(set_up(algo, agent, RandomEnv), 5)
    seen, normalize = [], algo.reward_scale

    def watch(env: Any, hyper: Any) -> torch.Tensor:
        seen.append(normalize(env, hyper))
        return seen[-1]

    algo.reward_scale = watch
    for itr, samples in enumerate(collected):
        optimize(algo, itr, samples)
        sums = sums_of(collected[: itr + 1])
        expected = (samples.env.reward / sums.std(correction=0)).clamp(-0.8, 0.8)
        torch.testing.assert_close(seen[-1], expected.float(), rtol=1e-4, atol=1e-6)
        assert (expected.abs() == 0.8).any()
    assert agent.reward_rms.count.item() == len(sums)


def test_a_lost_episode_ends_the_running_return_too():
    algo, (T, B) = A2C(discount=1.0, normalize_reward=True), (8, 4)
    (samples,) = batches(set_up(algo, PgAgent(), RandomEnv, T=T, B=B), 1)
    flags = dict.fromkeys(("terminated", "truncated"), torch.zeros(T, B, dtype=torch.bool))
    steady = samples.env._replace(reward=torch.ones(T, B), valid=torch.ones(T, B, dtype=torch.bool), **flags)
    steady.valid[0, 0] = False  # of an environment that was put in place of a lost one
    steady.reward[0, 0] = 0.0
    assert algo.reward_scale is not None
    algo.reward_scale.running_return = torch.full((B,), 20.0)
    algo.reward_scale(steady, algo.hyper(0))
    assert algo.reward_scale.running_return.tolist() == [T - 1, *[20 + T] * (B - 1)]


# ---- of a replay ----


@pytest.mark.parametrize("limit", [None, 0.5])
def test_returns_of_a_batch_are_divided_by_the_scale_of_all_rows_so_far(limit: float | None) -> None:
    algo, plain = (DQN(**SETTINGS, normalize_reward=on, return_limit=limit if on else None) for on in (True, False))
    collected = batches(set_up(algo, DqnAgent(**SMALL), RandomEnv), 3)
    set_up(plain, DqnAgent(**SMALL), RandomEnv)
    for itr, samples in enumerate(collected):  # no update yet, so that both draw the same
        algo.append(itr, samples)
        plain.append(itr, samples)
    scaled, unscaled = (each.feed.sample_batch() for each in (algo, plain))
    sums = sums_of(collected)
    scale = float(sums.std(correction=0))
    if limit is not None:
        assert float(sums.abs().max()) / limit > scale, "the limit decides nothing"
        scale = float(sums.abs().max()) / limit
    torch.testing.assert_close(scaled.return_, unscaled.return_ / scale)
    assert torch.equal(scaled.action, unscaled.action)


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_stored_rewards_count_and_before_any_reward_nothing_is_scaled(fraction: float | None) -> None:
    class Unpaid(RandomEnv):
        def step(self, action: Any) -> Any:
            observation, _, *ends = super().step(action)
            return observation, 0.0, *ends

    data: Any = recorded(RandomEnv())
    settings = dict(SETTINGS, replay_size=2_000)
    algos: list[Any] = [
        DQN(**settings, normalize_reward=True),
        DQN(**settings, normalize_reward=True, stored_data=data, stored_fraction=fraction),
    ]
    for each in algos:
        (samples,) = batches(set_up(each, DqnAgent(**SMALL), Unpaid), 1)
        each.append(0, samples)
    assert algos[0].feed.parts[0].factor == 1.0
    # In the columns that the replay has: an episode that is cut between two begins anew.
    stored = torchify_buffer(data.columns(4 if fraction is None else 1, 1, 1)[1:])
    sums = torch.cat([sums_of([x]) for x in (samples._replace(env=stored), samples)])
    assert len(sums) == data.n_steps + int(samples.env.valid.sum())
    deviation = sums.std(correction=0)
    assert algos[1].feed.parts[0].factor == pytest.approx(1 / float(deviation), rel=1e-5)


def test_the_factor_is_a_metric_and_part_of_the_state() -> None:
    algo = DQN(**SETTINGS, normalize_reward=True)
    sampler = set_up(algo, DqnAgent(**SMALL), RandomEnv)
    metrics = learn_from(algo, sampler, 6)[-1]
    scale = algo.feed.parts[0]
    assert isinstance(scale, ReturnScale)
    assert float(metrics["rewardFactor"]) == pytest.approx(scale.factor)
    other = ReturnScale(4, None, Replicas())
    assert other.factor == 1.0
    other.load_state_dict(scale.state_dict())
    assert other.factor == scale.factor
    samples = sampler.obtain_samples(6)[0]
    for each in (scale, other):
        each.append(samples, algo.hyper(0))
    assert other.factor == scale.factor
    assert math.isfinite(scale.factor)
