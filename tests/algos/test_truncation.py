"""Truncated episodes bootstrap from their final observation, terminated ones from zero: against closed forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, DqnAgent
from rlpyt.algos import A2C, DQN, PPO
from tests.algos.small_problems import (
    Metronome,
    TableModel,
    TableQModel,
    batches,
    metronome_values,
    optimize,
    set_up,
    train,
)

DISCOUNT = 0.9
CASES = pytest.mark.parametrize(("length", "truncates"), [(1, True), (1, False), (5, True), (5, False), (40, True)])


def known(values: torch.Tensor) -> list[float]:
    """The values of a table; where the truth is of no consequence, a number that would be noticed."""
    return values.nan_to_num(1e4).tolist()


@CASES
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_no_advantage_is_left_where_the_value_is_the_truth(AlgoCls, gae_lambda, length, truncates):
    values = metronome_values(length, truncates, DISCOUNT)
    agent = CategoricalPgAgent(TableModel, model_kwargs=dict(values=known(values)))
    algo = AlgoCls(discount=DISCOUNT, gae_lambda=gae_lambda)
    sampler = set_up(algo, agent, Metronome, dict(length=length, truncates=truncates), T=7, B=4)
    for samples in batches(sampler, 5):
        inputs, _ = algo.loss_inputs(samples, algo.hyper(0))
        expected = values.float()[samples.env.observation]
        torch.testing.assert_close(inputs.return_[inputs.valid], expected[inputs.valid], rtol=1e-5, atol=1e-5)
        assert inputs.advantage[inputs.valid].abs().max() < 1e-4


@CASES
@pytest.mark.parametrize("n_step_return", [1, 3])
@pytest.mark.parametrize("double_dqn", [False, True])
def test_no_td_error_is_left_where_q_is_the_truth(double_dqn, n_step_return, length, truncates):
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


DQN_RUN: dict[str, Any] = dict(
    n_itr=60, min_steps_learn=500, batch_size=96, replay_size=5000, target_update_interval=20, delta_clip=None
)
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "A2C": (A2C, dict(n_itr=100, gae_lambda=0.8, value_loss_coeff=1.0, entropy_loss_coeff=0.0)),
    "PPO": (PPO, dict(n_itr=25, gae_lambda=0.8, linear_lr_schedule=False, entropy_loss_coeff=0.0)),
    "DQN": (DQN, dict(DQN_RUN, n_step_return=3)),
}


@pytest.mark.parametrize("truncates", [True, False])
@pytest.mark.parametrize("name", RUNS)
def test_a_table_learns_the_closed_form(name, truncates):
    """From zeros; the discount is low, as what is left of the zeros shrinks by that factor with every bootstrap."""
    discount, (AlgoCls, settings) = 0.7, RUNS[name]
    Model, Agent = (TableQModel, DqnAgent) if AlgoCls is DQN else (TableModel, CategoricalPgAgent)
    agent = Agent(ModelCls=Model, model_kwargs=dict(values=[0.0] * 6, trained=True))
    settings = dict(settings)
    n_itr = settings.pop("n_itr")
    algo = AlgoCls(discount=discount, learning_rate=0.5, clip_grad_norm=100, OptimCls=torch.optim.SGD, **settings)
    train(algo, agent, Metronome, dict(length=5, truncates=truncates), n_itr=n_itr, T=12, B=8)
    truth = metronome_values(5, truncates, discount)[:5].float()
    torch.testing.assert_close(agent.model.state_dict()["values"][:5], truth, rtol=0.02, atol=0.02)
