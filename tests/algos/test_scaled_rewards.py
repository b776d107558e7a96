"""Rewards of a replay that are divided by the running scale of the returns."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.algos.return_scale import ReturnScale
from rlpyt.types import Samples
from rlpyt.utils.replicas import Replicas
from tests.algos.small_problems import RandomEnv, learn_from, set_up

SETTINGS: dict[str, Any] = dict(
    min_steps_learn=64, replay_size=600, batch_size=8, replay_ratio=1, n_step_return=2, discount=0.8
)
SMALL: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=8))


def sums_of(batches: list[Samples], discount: float) -> list[float]:
    """Discounted sums up to every valid row, by a loop over rows."""
    env = [torch.cat([getattr(samples.env, name) for samples in batches]) for name in ("reward", "valid")]
    done = torch.cat([samples.env.terminated | samples.env.truncated for samples in batches])
    reward, valid = env
    sums = list[float]()
    for b in range(reward.shape[1]):
        running = 0.0
        for t in range(len(reward)):
            if not valid[t, b]:
                running = 0.0
                continue
            running = float(reward[t, b]) + discount * running
            sums.append(running)
            running = 0.0 if done[t, b] else running
    return sums


@pytest.mark.parametrize("limit", [None, 0.5])
def test_returns_of_a_batch_are_divided_by_the_scale_of_all_rows_so_far(limit: float | None) -> None:
    algo, plain = (DQN(**SETTINGS, normalize_reward=on, return_limit=limit if on else None) for on in (True, False))
    batches, drawn = list[Samples](), []
    sampler = set_up(algo, DqnAgent(**SMALL), RandomEnv, n_itr=8)
    others = set_up(plain, DqnAgent(**SMALL), RandomEnv, n_itr=8)
    for itr in range(3):  # no update yet, so that both draw the same
        samples = sampler.obtain_samples(itr)[0]
        batches.append(samples._replace(env=samples.env._replace(**{
            name: getattr(samples.env, name).clone() for name in ("reward", "valid", "terminated", "truncated")
        })))  # fmt: skip
        algo.append(itr, samples)
        plain.append(itr, others.obtain_samples(itr)[0])
    drawn = [each.feed.sample_batch() for each in (algo, plain)]
    sums = torch.tensor(sums_of(batches, 0.8), dtype=torch.float64)
    scale = float(sums.var(correction=0).sqrt())
    if limit is not None:
        assert float(sums.abs().max()) / limit > scale, "the limit decides nothing"
        scale = float(sums.abs().max()) / limit
    torch.testing.assert_close(drawn[0].return_, drawn[1].return_ / scale)
    assert torch.equal(drawn[0].action, drawn[1].action)


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


@pytest.mark.parametrize(
    "settings",
    [
        dict(return_limit=5.0),
        dict(normalize_reward=True, return_limit=0.0),
        dict(normalize_reward=True, prioritized_replay=True, input_priorities=True),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"normalize_reward|return_limit is 0.0; expected above 0"):
        DQN(**settings)
