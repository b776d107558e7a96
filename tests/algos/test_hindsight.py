"""Hindsight in the algorithms: what it changes in their batches, what refuses it, and that it is what learns."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    CatDqnAgent,
    DqnAgent,
    R2d1Agent,
    RecurrentSacAgent,
    SacAgent,
)
from rlpyt.algos import DQN, SAC, CategoricalDQN
from rlpyt.replays import Hindsight, HindsightTransitions
from rlpyt.runners import AsyncRl
from tests.algos.small_problems import batches, build, learn_from, optimize, set_up
from tests.pairs import others_nightly
from tests.runners.runner_kit import make_sampler, run

SMALL: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=8))
MU_AND_Q: dict[str, Any] = dict(**SMALL, q_model_kwargs=dict(hidden_sizes=8))
KWARGS: dict[str, Any] = dict(batch_size=16, replay_size=400, replay_ratio=1, min_steps_learn=64)


class Flip(gymnasium.Env[Any, Any]):
    """Flip one of the bits a step until they are those of the goal; with `ends` the episode terminates then."""

    def __init__(self, n_bits: int = 4, action_space: Any = None, ends: bool = True) -> None:
        bits = spaces.Box(0, 1, (n_bits,))
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, bits))
        self.action_space = deepcopy(action_space) or spaces.Discrete(n_bits)
        self.n_bits, self.ends = n_bits, ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(2, size=(2, self.n_bits)).astype(np.float32)
        self.t = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        bit = int(np.ravel(action)[0] * 3) % self.n_bits if isinstance(self.action_space, spaces.Box) else action
        self.bits[bit] = 1 - self.bits[bit]
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self._observation(), reward, self.ends and reward == 0, self.t == self.n_bits, {"is_success": not reward}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return (achieved == desired).all(-1) - 1.0

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self.ends and (achieved == desired).all(-1)

    def _observation(self) -> dict[str, np.ndarray]:
        return {"observation": self.bits.copy(), "achieved_goal": self.bits.copy(), "desired_goal": self.goal.copy()}


class Wrapped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays twice as much, for goals in hindsight too."""

    def step(self, action: Any) -> Any:
        observation, reward, *others = super().step(action)
        return observation, 2 * float(reward), *others

    def compute_reward(self, *goals: Any) -> Any:
        return 2 * self.env.unwrapped.compute_reward(*goals)  # type: ignore[attr-defined]


def wrapped() -> Any:
    return gymnasium.wrappers.TimeLimit(Wrapped(Flip()), 50)


CASES: dict[str, Any] = {
    "DQN": lambda **kwargs: (DQN(**KWARGS, **kwargs), DqnAgent(**SMALL)),
    "Rainbow": lambda **kwargs: (
        CategoricalDQN(**KWARGS, **kwargs, prioritized_replay=True, n_step_return=3, V_min=-5, V_max=0),
        CatDqnAgent(n_atoms=11, **SMALL),
    ),
    "SAC": lambda **kwargs: (SAC(**KWARGS, **kwargs), SacAgent(**MU_AND_Q)),
}


def env_kwargs(algo: Any) -> dict[str, Any]:
    return dict(action_space=spaces.Box(-1, 1, (1,)) if isinstance(algo, SAC) else None)


@pytest.mark.parametrize("case", CASES)
def test_algorithms_learn_from_goals_in_hindsight(case: str) -> None:
    algo, agent = CASES[case](hindsight="future")
    sampler = set_up(algo, agent, Flip, env_kwargs(algo))
    for itr, samples in enumerate(batches(sampler, 6)):
        metrics = optimize(algo, itr, samples)
    assert metrics
    assert all(torch.isfinite(value).all() for value in metrics.values())
    batch = algo.feed.sample_batch()
    before, after = batch.agent_inputs.observation, batch.target_inputs.observation
    assert torch.equal(before.desired_goal, after.desired_goal)
    reached = (after.achieved_goal == after.desired_goal).all(-1)
    assert reached.any()  # by chance hardly ever
    assert torch.equal(batch.terminated[reached], torch.ones(int(reached.sum()), dtype=torch.bool))
    if algo.n_step_return == 1:
        assert torch.equal(batch.return_, reached.float() - 1)


def test_functions_are_those_of_the_outermost_wrapper_and_may_be_handed_in() -> None:
    algo = build(DQN, **KWARGS, hindsight=Hindsight(strategy="final"))
    set_up(algo, DqnAgent(**SMALL), wrapped)
    goals = np.zeros((2, 4), np.float32)
    assert algo.goals.compute_reward(goals, goals + 1, {}).tolist() == [-2, -2]
    assert algo.goals.compute_terminated(goals, goals, {}).tolist() == [True, True]
    assert algo.hindsight.compute_reward is None

    def mine(achieved: Any, desired: Any, info: Any) -> Any:
        return np.zeros(len(achieved))

    algo = build(DQN, **KWARGS, hindsight=Hindsight(compute_reward=mine))
    set_up(algo, DqnAgent(**SMALL), Flip, dict(ends=False))
    assert algo.goals.compute_reward is mine
    assert algo.goals.compute_terminated is None  # the environment says False for all


def test_normalisers_take_in_the_goals_that_batches_are_given() -> None:
    class OneGoal(Flip):
        def reset(self, **kwargs: Any) -> Any:
            super().reset(**kwargs)
            self.goal = np.ones(self.n_bits, np.float32)
            return self._observation(), {}

    agent = DqnAgent(model_kwargs=dict(hidden_sizes=8, normalize_observation=True))
    algo = DQN(**KWARGS, hindsight="future")
    (samples,) = batches(set_up(algo, agent, OneGoal), 1)
    algo.append(0, samples)
    achieved = samples.env.observation.achieved_goal[samples.env.valid].mean(0)
    means = {name: x for name, x in agent.model.named_buffers() if name.endswith("mean")}
    assert len(means) == 3
    of_goals = list(means.values())[samples.env.observation._fields.index("desired_goal")]
    torch.testing.assert_close(of_goals.float(), (achieved + 1.0) / 2)


def test_a_recurrent_agent_and_an_environment_without_goals_are_refused() -> None:
    for algo, agent in ((DQN, R2d1Agent()), (SAC, RecurrentSacAgent())):
        made = build(algo, **KWARGS, hindsight="future")
        with pytest.raises(ValueError, match=f"hindsight is set, and the agent, a {type(agent).__name__}, is recurr"):
            set_up(made, agent, Flip, env_kwargs(made))
    with pytest.raises(ValueError, match="strategy is 'last'; expected one of future"):
        build(DQN, hindsight="last")
    with pytest.raises(TypeError, match="no dictionary; expected one with achieved_goal and desired_goal"):
        set_up(build(DQN, **KWARGS, hindsight="future"), DqnAgent(), gymnasium.make, dict(id="CartPole-v1"))


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_state_goes_on_alike(prefetch: bool) -> None:
    """Goals are drawn from the stream of the replay, also by the thread that draws ahead."""

    def started() -> Any:
        torch.manual_seed(0)
        algo, agent = CASES["Rainbow"](hindsight="episode", **dict(prefetch=prefetch, late_priorities=prefetch))
        algo = algo.replace(replay_ratio=4)
        return algo, batches(set_up(algo, agent, Flip), 8)

    (one, collected), (other, _) = started(), started()
    for itr in range(5):
        optimize(one, itr, collected[itr])
    other.load_state_dict(one.state_dict())
    other.agent.load_state_dict(one.agent.state_dict())
    for itr in range(5, 8):
        metrics = [optimize(algo, itr, collected[itr]) for algo in (one, other)]
        torch.testing.assert_close(dict(metrics[0]), dict(metrics[1]), rtol=0, atol=0)


@pytest.mark.parametrize("lag", [1, "free"])
def test_another_process_collects_or_appends(lag: Any, tmp_path: Path) -> None:
    algo, agent = CASES["DQN"](hindsight="future")
    made: Any = run(tmp_path, (algo, agent), make_sampler(EnvCls=Flip), partial(AsyncRl, lag=lag), n_steps=200)
    assert made.training.algo.update_counter > 0
    assert isinstance(made.training.algo.replay.reading, HindsightTransitions)


@pytest.mark.parametrize("hindsight", others_nightly(["future", None], ["future"]))
def test_hindsight_is_what_learns(hindsight: str | None) -> None:
    """After 2,000 steps with eight bits, DQN reaches most goals with it, and hardly any without."""
    algo = build(
        DQN,
        hindsight=hindsight,
        discount=0.95,
        learning_rate=3e-3,
        optim_kwargs=dict(eps=1e-8),
        batch_size=64,
        replay_ratio=16,
        replay_size=4000,
        min_steps_learn=200,
        eps_steps=1000,
        target_update_tau=0.05,
        double_dqn=True,
    )
    agent = DqnAgent(eps_init=0.5, eps_final=0.05, eps_eval=0.0, model_kwargs=dict(hidden_sizes=128))
    evaluation: dict[str, Any] = dict(eval_n_envs=8, eval_max_trajectories=40)
    sampler = set_up(algo, agent, Flip, dict(n_bits=8), B=8, n_itr=32, **evaluation)
    learn_from(algo, sampler, 32)
    success = float(np.mean([info["Success"] for info in sampler.evaluate_agent(32).traj_infos]))
    assert success > 0.6 if hindsight else success < 0.3
