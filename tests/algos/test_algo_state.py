"""What an algorithm saved and loaded again does next is what it would have done."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

import pytest
import torch

from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DqnAgent,
    IqnAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    RecurrentIqnAgent,
)
from rlpyt.algos import A2C, DQN, IQN, PPO, QRDQN, R2D1, CategoricalDQN
from tests.algos.small_problems import RandomEnv, batches, check_parameters, parameters64, set_up

DQN_KWARGS: dict[str, Any] = dict(
    batch_size=16, replay_size=200, replay_ratio=2, min_steps_learn=64, target_update_interval=5
)
SEQUENCE_KWARGS: dict[str, Any] = dict(
    batch_T=4, batch_B=3, warmup_T=2, store_rnn_state_interval=2, replay_size=200, replay_ratio=1.5,
    min_steps_learn=64, n_step_return=3, target_update_interval=5,
)  # fmt: skip
SMALL: dict[str, Any] = dict(hidden_sizes=8)
CASES: dict[str, Any] = {
    "A2C": lambda: (A2C(), CategoricalPgAgent()),
    "A2C LSTM": lambda: (A2C(), RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=8))),
    "PPO": lambda: (PPO(epochs=2), CategoricalPgAgent(model_kwargs=dict(normalize_observation=True))),
    "PPO LSTM": lambda: (PPO(minibatches=2, epochs=2), RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=8))),
    "PPO SGD": lambda: (PPO(epochs=2, OptimCls=torch.optim.SGD, optim_kwargs=dict(momentum=0.9)), CategoricalPgAgent()),
    "PPO RMSprop": lambda: (PPO(epochs=2, OptimCls=torch.optim.RMSprop), CategoricalPgAgent()),
    "DQN": lambda: (DQN(**DQN_KWARGS), DqnAgent()),
    "DQN n-step soft": lambda: (
        DQN(**DQN_KWARGS, n_step_return=3, double_dqn=True, target_update_tau=0.1),
        DqnAgent(model_kwargs=dict(normalize_observation=True)),
    ),
    "DQN input priorities": lambda: (
        DQN(**DQN_KWARGS, n_step_return=3, prioritized_replay=True, input_priorities=True, pri_beta_steps=300),
        DqnAgent(model_kwargs=SMALL),
    ),
    "Rainbow": lambda: (
        CategoricalDQN(
            **DQN_KWARGS,
            n_step_return=3,
            double_dqn=True,
            prioritized_replay=True,
            pri_beta_steps=300,
            unique_draws=True,
        ),
        CatDqnAgent(n_atoms=11, model_kwargs=dict(**SMALL, dueling=True, noisy=True)),
    ),
    "QRDQN": lambda: (QRDQN(**DQN_KWARGS, prioritized_replay=True), QrDqnAgent(n_quantiles=5, model_kwargs=SMALL)),
    "IQN": lambda: (IQN(**DQN_KWARGS), IqnAgent(model_kwargs=dict(**SMALL, n_tau=4))),
    "R2D1": lambda: (R2D1(**SEQUENCE_KWARGS), R2d1Agent(model_kwargs=dict(**SMALL, rnn_size=8))),
    "IQN GRU": lambda: (
        IQN(**SEQUENCE_KWARGS),
        RecurrentIqnAgent(model_kwargs=dict(**SMALL, n_tau=4, rnn_size=8, recurrent="gru", noisy=True)),
    ),
}


def learn(algo: Any, collected: list[Any], itrs: range) -> list[dict[str, torch.Tensor]]:
    return [dict(algo.optimize_agent(itr, collected[itr])) for itr in itrs]


def on_disk(state: Any) -> Any:
    """As a snapshot has it: only what `weights_only` loading allows."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


WAYS: dict[str, Any] = {"disk": (on_disk, 8), "copy": (deepcopy, 1), "the thing itself": (lambda state: state, 8)}
OF_EVERY_KIND = ("A2C LSTM", "PPO", "DQN n-step soft", "Rainbow", "R2D1")


@pytest.mark.parametrize(
    ("case", "way"),
    [*((case, "disk") for case in CASES), *((case, way) for case in OF_EVERY_KIND for way in list(WAYS)[1:])],
)
def test_going_on_from_a_state(case, way):
    way, k = WAYS[way]
    algo, agent = CASES[case]()
    sampler = set_up(algo, agent, RandomEnv, n_itr=16)
    collected = batches(sampler, 16)
    learn(algo, collected, range(k))
    states = way(algo.state_dict()), way(agent.state_dict())

    other_algo, other_agent = CASES[case]()
    set_up(other_algo, other_agent, RandomEnv, n_itr=16, seed=1)
    other_algo.load_state_dict(states[0])
    other_agent.load_state_dict(states[1])
    assert other_algo.update_counter == algo.update_counter

    metrics = learn(algo, collected, range(k, 16))
    expected = parameters64(agent)
    other_metrics = learn(other_algo, collected, range(k, 16))
    check_parameters(other_agent, expected, rtol=0, atol=0)
    check_parameters(agent, expected, rtol=0, atol=0)
    for one, other in zip(metrics, other_metrics, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    for name, tensor in agent.model.state_dict().items():
        assert torch.equal(tensor, other_agent.model.state_dict()[name]), name
    if isinstance(algo, DQN):
        check_parameters_of(agent.target_model, other_agent.target_model)
    assert other_algo.update_counter == algo.update_counter > 0


def check_parameters_of(model: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


@pytest.mark.parametrize("case", CASES)
def test_a_state_that_is_not_loaded_makes_a_difference(case):
    """Every part of it is needed: without the algorithm's state, the same agent learns something else."""
    algo, agent = CASES[case]()
    collected = batches(set_up(algo, agent, RandomEnv, n_itr=16), 16)
    learn(algo, collected, range(8))
    agent_state = deepcopy(agent.state_dict())
    learn(algo, collected, range(8, 16))
    other_algo, other_agent = CASES[case]()
    set_up(other_algo, other_agent, RandomEnv, n_itr=16, seed=1)
    other_agent.load_state_dict(agent_state)

    def goes_on() -> None:
        learn(other_algo, collected, range(8, 16))
        check_parameters(other_agent, parameters64(agent), rtol=1e-6, atol=1e-7)

    with pytest.raises((AssertionError, RuntimeError)):  # RuntimeError where the empty replay has nothing to draw yet
        goes_on()


@pytest.mark.parametrize("case", CASES)
def test_the_same_seed_gives_the_same_and_another_another(case):
    def run(seed: int) -> Any:
        algo, agent = CASES[case]()
        sampler = set_up(algo, agent, RandomEnv, n_itr=6, seed=seed)
        for itr in range(6):
            algo.optimize_agent(itr, sampler.obtain_samples(itr)[0])
        return agent

    first, second, other = run(0), run(0), run(1)
    check_parameters(second, parameters64(first), rtol=0, atol=0)
    with pytest.raises(AssertionError):
        check_parameters(other, parameters64(first), rtol=1e-6, atol=1e-7)


def test_an_optimiser_may_start_from_a_given_state():
    algo, agent = CASES["A2C"]()
    collected = batches(set_up(algo, agent, RandomEnv), 4)
    learn(algo, collected, range(2))
    model, optimiser = deepcopy(agent.state_dict()["model"]), deepcopy(algo.optim_state_dict())
    learn(algo, collected, range(2, 4))
    other = CategoricalPgAgent(initial_model_state_dict=model)
    other_algo = A2C(initial_optim_state_dict=optimiser)
    set_up(other_algo, other, RandomEnv, seed=1)
    learn(other_algo, collected, range(2, 4))
    check_parameters(other, parameters64(agent), rtol=0, atol=0)
