"""Truncated episodes bootstrap from their final observation, terminated ones from zero: against closed forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, DqnAgent, PqnAgent
from rlpyt.algos import A2C, DQN, PPO, PQN, VTrace
from tests.algos.small_problems import (
    Metronome,
    TableModel,
    TableQModel,
    batches,
    metronome_values,
    optimize,
    set_up,
)
from tests.pairs import crossed

DISCOUNT = 0.9
CASES = [(1, True), (1, False), (5, True), (5, False), (40, True)]
"""Lengths of episodes, and whether they are truncated."""


def known(values: torch.Tensor) -> list[float]:
    """The values of a table; where the truth is of no consequence, a number that would be noticed."""
    return values.nan_to_num(1e4).tolist()


@pytest.mark.parametrize(("AlgoCls", "gae_lambda", "case"), crossed([A2C, PPO], [0.0, 0.7, 1.0], CASES))
def test_no_advantage_is_left_where_the_value_is_the_truth(AlgoCls, gae_lambda, case):
    length, truncates = case
    values = metronome_values(length, truncates, DISCOUNT)
    agent = CategoricalPgAgent(TableModel, model_kwargs=dict(values=known(values)))
    algo = AlgoCls(discount=DISCOUNT, gae_lambda=gae_lambda)
    sampler = set_up(algo, agent, Metronome, dict(length=length, truncates=truncates), T=7, B=4)
    for samples in batches(sampler, 5):
        inputs, _ = algo.loss_inputs(samples, algo.hyper(0))
        expected = values.float()[samples.env.observation]
        torch.testing.assert_close(inputs.return_[inputs.valid], expected[inputs.valid], rtol=1e-5, atol=1e-5)
        assert inputs.advantage[inputs.valid].abs().max() < 1e-4


@pytest.mark.parametrize(("double_dqn", "n_step_return", "case"), crossed([False, True], [1, 3], CASES))
def test_no_td_error_is_left_where_q_is_the_truth(double_dqn, n_step_return, case):
    length, truncates = case
    values = metronome_values(length, truncates, DISCOUNT)
    agent = DqnAgent(ModelCls=TableQModel, model_kwargs=dict(values=known(values)))
    algo = DQN(
        discount=DISCOUNT,
        n_step_return=n_step_return,
        double_dqn=double_dqn,
        batch_size=64,
        min_steps_learn=5 * 28,
        replay_size=200,
        replay_ratio=10,
    )
    sampler = set_up(algo, agent, Metronome, dict(length=length, truncates=truncates), T=7, B=4, n_itr=12)
    for itr in range(12):
        metrics = optimize(algo, itr, sampler.obtain_samples(itr)[0])
        if metrics:
            assert metrics["tdAbsErr"].abs().max() < 1e-4
    assert algo.update_counter == 8 * 4
    last_observation = 0 if truncates else length
    drawn = algo.replay.sample_batch(500)
    at_the_end = drawn.target_inputs.observation == last_observation
    assert at_the_end.any()
    assert (drawn.bootstrap_discount[at_the_end] > 0).all() == truncates


@pytest.mark.parametrize(("gae_lambda", "case"), crossed([0.0, 0.7, 1.0], CASES, strength=1))
def test_no_value_loss_of_v_trace_is_left_where_the_value_is_the_truth(gae_lambda, case):
    length, truncates = case
    values = known(metronome_values(length, truncates, DISCOUNT))
    agent = CategoricalPgAgent(TableModel, model_kwargs=dict(values=values))
    algo = VTrace(discount=DISCOUNT, gae_lambda=gae_lambda)
    sampler = set_up(algo, agent, Metronome, dict(length=length, truncates=truncates), T=7, B=4)
    collected = batches(sampler, 5)
    table: Any = agent.model
    with torch.no_grad():  # another policy, with the same values
        table.logits += torch.randn(table.logits.shape, generator=torch.Generator().manual_seed(0))
    for samples in collected:
        batch, _ = algo.vtrace_inputs(samples, algo.hyper(0))
        assert algo.loss(batch, None, algo.hyper(0))[1]["valueLoss"] < 1e-8
    samples = samples._replace(agent=samples.agent._replace(bootstrap_inputs=None))
    with pytest.raises(ValueError, match=r"VTrace: the batch has no agent.bootstrap_inputs; expected .*run.bootstrap"):
        optimize(algo, 0, samples)


@pytest.mark.parametrize(("q_lambda", "case"), crossed([0.0, 0.7, 1.0], CASES, strength=1))
def test_no_td_error_of_returns_on_policy_is_left_where_q_is_the_truth(q_lambda, case):
    length, truncates = case
    values = known(metronome_values(length, truncates, DISCOUNT))
    agent = PqnAgent(ModelCls=TableQModel, model_kwargs=dict(values=values))
    algo = PQN(minibatches=1, epochs=1, discount=DISCOUNT, q_lambda=q_lambda)
    sampler = set_up(algo, agent, Metronome, dict(length=length, truncates=truncates), T=14, B=2)
    metrics = optimize(algo, 0, sampler.obtain_samples(0)[0])
    assert metrics["tdAbsErr"].item() == pytest.approx(0.0, abs=1e-4)
