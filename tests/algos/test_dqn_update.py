"""DQN: its updates against a float64 reference over the raw rows, target network, replay ratio, exploration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.samplers import CpuSampler, SerialSampler
from tests.algos.small_problems import (
    RandomEnv,
    copied,
    optimize,
    set_up,
)

T, B = 8, 4


def small_agent(**kwargs: Any) -> DqnAgent:
    return DqnAgent(model_kwargs=dict(hidden_sizes=(16, 16)), **kwargs)


def small_dqn(**kwargs: Any) -> DQN:
    defaults = dict(
        batch_size=16, replay_size=1000, replay_ratio=2, min_steps_learn=5 * T * B, OptimCls=torch.optim.SGD
    )
    return DQN(**{**defaults, **kwargs})


def collect_and_learn(algo: DQN, n_itr: int) -> list[Any]:
    """Train; return the metrics of all iterations."""
    sampler = set_up(algo, small_agent(), RandomEnv, n_itr=n_itr, T=T, B=B)
    return [optimize(algo, itr, sampler.obtain_samples(itr)[0]) for itr in range(n_itr)]


@pytest.mark.parametrize("initial", [False, True])
def test_the_target_network_starts_from_given_weights_too(initial):
    first = small_agent()
    set_up(small_dqn(), first, RandomEnv, n_itr=10, seed=3)
    agent = small_agent(initial_model_state_dict=first.state_dict()["model"] if initial else None)
    set_up(small_dqn(), agent, RandomEnv, n_itr=10, seed=4)
    for name, tensor in agent.target_model.state_dict().items():
        assert torch.equal(tensor, agent.model.state_dict()[name])
        if initial:
            assert torch.equal(tensor, first.model.state_dict()[name])
    assert not any(parameter.requires_grad for parameter in agent.target_model.parameters())


@pytest.mark.parametrize(
    ("replay_ratio", "batch_size", "updates"), [(1, 32, 1), (8, 32, 8), (4, 16, 8), (0.5, 8, 2), (2, 24, 3)]
)
def test_replay_ratio_is_rows_consumed_by_rows_collected(replay_ratio, batch_size, updates):
    algo = small_dqn(replay_ratio=replay_ratio, batch_size=batch_size)
    metrics = collect_and_learn(algo, n_itr=8)
    assert [len(m["loss"]) if m else 0 for m in metrics] == [0] * 4 + [updates] * 4
    assert algo.update_counter == 4 * updates
    assert algo.plan()["updates an iteration"] == updates
    assert metrics[-1]["tdAbsErr"].shape == (updates, batch_size)
    if updates != 3:
        assert updates * batch_size / (T * B) == replay_ratio


@pytest.mark.parametrize(
    ("min_steps_learn", "first"), [(0, 1), (1, 1), (T * B, 1), (T * B + 1, 2), (5.5 * T * B, 6), (7 * T * B, 7)]
)
def test_the_first_update_waits_for_so_many_steps(min_steps_learn, first):
    algo = small_dqn(min_steps_learn=min_steps_learn)
    metrics = collect_and_learn(algo, n_itr=7)
    assert [bool(m) for m in metrics] == [itr + 1 >= first for itr in range(7)]
    assert algo.plan()["first update at step"] == first * T * B >= min_steps_learn


def test_adam_has_the_paper_s_epsilon_unless_it_is_given():
    for kwargs, eps in (({}, 0.01 / 16), (dict(optim_kwargs=dict(eps=1e-3)), 1e-3)):
        algo = small_dqn(OptimCls=torch.optim.Adam, **kwargs)
        set_up(algo, small_agent(), RandomEnv, n_itr=10)
        assert algo.optimizer.param_groups[0]["eps"] == eps


class Crowd(RandomEnv):
    """So many actions that one at random is hardly ever the greedy one."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(1000))


@pytest.mark.parametrize("SamplerCls", [SerialSampler, CpuSampler])
def test_epsilon_anneals_over_eps_steps_wherever_actions_are_chosen(SamplerCls):
    T, B, n_itr = 50, 8, 6
    algo = DQN(eps_steps=4 * T * B, min_steps_learn=5 * T * B, replay_size=10_000, batch_size=T * B, replay_ratio=1)
    agent = DqnAgent(eps_init=0.9, eps_final=0.1, model_kwargs=dict(hidden_sizes=4))
    kwargs: dict[str, Any] = dict(n_workers=2) if SamplerCls is CpuSampler else {}
    sampler = set_up(algo, agent, Crowd, T=T, B=B, n_itr=n_itr, SamplerCls=SamplerCls, **kwargs)
    try:
        for itr in range(n_itr - 1):  # none of these learns before the last
            samples = copied(sampler.obtain_samples(itr)[0])
            expected = 0.9 + (0.1 - 0.9) * min(itr / 4, 1)
            valid = samples.env.valid
            explored = samples.agent.action != samples.agent.agent_info.q.argmax(-1)
            share = explored[valid].float().mean().item()
            assert share == pytest.approx(expected, abs=4 * (0.25 / int(valid.sum())) ** 0.5), itr
            optimize(algo, itr, samples)
    finally:
        sampler.shutdown()


def test_the_frames_of_an_observation_may_be_given():
    found = []
    for frame_stack in (None, 1, 3):  # of the three numbers of an observation
        algo = small_dqn(frame_stack=frame_stack)
        set_up(algo, small_agent(), RandomEnv)
        replay: Any = algo.replay
        found.append(replay.storage.rows_before)
    assert found == [1, 1, 2]
