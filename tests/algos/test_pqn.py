"""PQN: returns and updates against slow references, an agent without a target."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import PqnAgent
from rlpyt.algos import PQN
from rlpyt.functional import episode_start_from_valid
from rlpyt.types import Samples
from tests.algos.small_problems import (
    RandomEnv,
    batches,
    copied,
    optimize,
    set_up,
    shake,
)

WHOLE: dict[str, Any] = dict(minibatches=1, epochs=1, OptimCls=torch.optim.SGD, learning_rate=0.1, clip_grad_norm=1e9)
RNN: dict[str, Any] = dict(hidden_sizes=16, rnn_size=16)


def make_agent(recurrent: bool | str = False, **kwargs: Any) -> PqnAgent:
    model = dict(RNN) if recurrent else dict(hidden_sizes=(16, 16))
    return PqnAgent(recurrent=recurrent, model_kwargs=dict(model, layer_norm=True), **kwargs)


def prepare(algo: PQN, recurrent: bool | str = False, **kwargs: Any) -> tuple[PqnAgent, Samples]:
    """An agent and its second batch, which begins within episodes and has ends of both kinds."""
    agent = make_agent(recurrent)
    sampler = set_up(algo, agent, RandomEnv, T=9, B=6, n_itr=4, **kwargs)
    shake(agent)
    samples = batches(sampler, 2)[1]
    assert not samples.env.valid.all()
    assert samples.env.terminated.any()
    assert samples.env.truncated.any()
    return agent, samples


def q_of_rows(agent: PqnAgent, samples: Samples) -> torch.Tensor:
    """Q of every action at every row, [T, B, A], with gradient."""
    env, rows = samples.env, samples.agent
    inputs = env.observation, rows.prev_action, env.prev_reward
    if not agent.recurrent:
        return agent(*inputs)
    return agent(*inputs, rows.agent_info.prev_rnn_state[0], episode_start_from_valid(env.valid))


def q_lambda_return(q: np.ndarray, samples: Samples, t: int, b: int, discount: float, lambda_: float) -> float:
    """The return of a row, by its definition, one row after the other."""
    env = samples.env
    reward, last = env.reward[t, b].item(), len(q) - 1
    if env.terminated[t, b]:
        return reward
    best = samples.agent.bootstrap_value[0, b].item() if t == last else max(q[t + 1, b])
    if env.truncated[t, b] or t == last:
        return reward + discount * best
    longer = q_lambda_return(q, samples, t + 1, b, discount, lambda_)
    return reward + discount * ((1 - lambda_) * best + lambda_ * longer)


# ---- returns and updates ----


@pytest.mark.parametrize("recurrent", [False, "lstm", "gru"])
@pytest.mark.parametrize("q_lambda", [0.0, 0.6, 1.0])
def test_returns_are_mixtures_over_the_rows_of_an_episode(recurrent, q_lambda):
    algo = PQN(**WHOLE, discount=0.9, q_lambda=q_lambda)
    agent, samples = prepare(algo, recurrent)
    inputs, _ = algo.loss_inputs(samples, algo.hyper(0))
    q = q_of_rows(agent, samples).detach().double().numpy()
    for t, b in samples.env.valid.nonzero().tolist():
        expected = q_lambda_return(q, samples, t, b, 0.9, q_lambda)
        assert inputs.return_[t, b].item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("recurrent", [False, "lstm"])
def test_an_update_is_a_step_down_half_the_squared_error(recurrent):
    algo = PQN(**WHOLE, discount=0.9, q_lambda=0.6, reward_scale=0.5)
    agent, samples = prepare(algo, recurrent)
    scaled = copied(samples)
    scaled.env.reward.mul_(0.5)
    reference = deepcopy(agent)
    q = q_of_rows(reference, samples)
    errors = []
    for t, b in samples.env.valid.nonzero().tolist():
        goal = q_lambda_return(q.detach().numpy(), scaled, t, b, 0.9, 0.6)
        errors.append(goal - q[t, b, samples.agent.action[t, b]])
    loss = torch.stack(errors).square().mean() / 2
    loss.backward()
    metrics = optimize(algo, 0, samples)
    assert metrics["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
    assert metrics["tdAbsErr"].item() == pytest.approx(torch.stack(errors).abs().mean().item(), rel=1e-4)
    for own, other in zip(agent.parameters(), reference.parameters(), strict=True):
        assert other.grad is not None
        torch.testing.assert_close(own, other - 0.1 * other.grad, rtol=1e-3, atol=1e-5)
    assert set(metrics) == set(algo.opt_info_fields)


@pytest.mark.parametrize("recurrent", [False, "lstm"])
def test_what_final_rows_hold_beside_their_observation_reaches_nothing(recurrent):
    learned = []
    for garbage in (False, True):
        algo = PQN(**WHOLE | dict(minibatches=2, epochs=2))
        agent, samples = prepare(algo, recurrent)
        if garbage:
            final = ~samples.env.valid
            samples.env.reward[final] = 1e30
            after_termination = torch.zeros_like(final)
            after_termination[1:] = final[1:] & samples.env.terminated[:-1]
            samples.agent.agent_info.value[after_termination] = torch.nan
        optimize(algo, 0, samples)
        learned.append([x.detach() for x in agent.parameters()])
    for one, other in zip(*learned, strict=True):
        assert torch.equal(one, other)


# ---- the agent ----


@pytest.mark.parametrize("recurrent", [False, True])
def test_the_agent_records_the_value_of_its_best_action_and_has_no_target(recurrent):
    agent, samples = prepare(PQN(**WHOLE), recurrent)
    best = q_of_rows(agent, samples).max(-1).values
    torch.testing.assert_close(samples.agent.agent_info.value, best, rtol=1e-4, atol=1e-5)
    assert set(agent.state_dict()) == {"model", "annealed"}
    assert not list(agent.networks.learning)
    agent.networks.update_targets()  # none to move


def test_epsilon_and_the_learning_rate_follow_their_schedules():
    algo = PQN(minibatches=1, epochs=1, learning_rate="lin_0.4", eps_steps=64)
    agent = make_agent(eps_final=0.2)
    sampler = set_up(algo, agent, RandomEnv, T=8, B=4, n_itr=4)
    assert algo.row_numbers(0)["Epsilon"] == 1.0
    for itr, (rate, epsilon) in enumerate([(0.4, 0.6), (0.3, 0.2), (0.2, 0.2)]):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
        assert algo.row_numbers(itr + 1) == pytest.approx(dict(LearningRate=rate, Epsilon=epsilon))
        assert agent.epsilon().item() == pytest.approx(epsilon)


def test_a_copy_of_the_algorithm_goes_on_with_epsilon():
    algo = PQN(minibatches=1, epochs=1, eps_steps=64)
    agent = make_agent(eps_final=0.2)
    set_up(algo, agent, RandomEnv, n_itr=4)
    other: Any = deepcopy(algo)
    other.agent.train_mode(0)
    assert other.agent.epsilon().item() == pytest.approx(0.6)
    assert agent.epsilon().item() == 1.0


def test_a_run_that_stays_random_is_warned_of():
    algo = PQN(minibatches=1, eps_steps=1e6)
    set_up(algo, make_agent(), RandomEnv, n_itr=4)
    plan: Any = algo.plan()
    assert plan["updates an iteration"] == 2
    assert "at its end 100% of the actions are still random" in plan["warnings"][0]
