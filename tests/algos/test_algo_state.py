"""What an algorithm saved and loaded again does next is what it would have done."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DiscreteSacAgent,
    DqnAgent,
    IqnAgent,
    PqnAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    RecurrentIqnAgent,
    RecurrentSacAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import A2C, DDPG, DQN, IQN, PPO, PQN, QRDQN, R2D1, SAC, TD3, CategoricalDQN, QpgAlgo, VTrace
from rlpyt.core import example_inputs, hyper_parameters
from rlpyt.utils.arrays import buffer_leaves
from tests.algos.small_problems import RandomEnv, batches, check_parameters, learn_from, optimize, parameters64, set_up
from tests.pairs import others_nightly

DQN_KWARGS: dict[str, Any] = dict(
    batch_size=16, replay_size=200, replay_ratio=2, min_steps_learn=64, target_update_interval=5
)
SEQUENCE_KWARGS: dict[str, Any] = dict(
    batch_T=4, batch_B=3, warmup_T=2, store_rnn_state_interval=2, replay_size=200, replay_ratio=1.5,
    min_steps_learn=64, n_step_return=3, target_update_interval=5,
)  # fmt: skip
SMALL: dict[str, Any] = dict(hidden_sizes=8)
QPG_KWARGS: dict[str, Any] = dict(batch_size=16, replay_size=200, replay_ratio=1.5, min_steps_learn=64)
QPG_SEQUENCE_KWARGS = {k: x for k, x in SEQUENCE_KWARGS.items() if k not in ("target_update_interval", "n_step_return")}
BATCH_NORM: dict[str, Any] = dict(layers="batch_norm", hidden_sizes=(8, 8))
SPECTRAL: dict[str, Any] = dict(layers="spectral_norm", hidden_sizes=(8, 8))
RESIDUAL: dict[str, Any] = dict(layers="simba", hidden_sizes=(8,))
SPHERES: dict[str, Any] = dict(layers="simbav2", hidden_sizes=(8, 8))
UNITS: dict[str, Any] = dict(layers="xqc", hidden_sizes=(8, 8))
MU_AND_Q: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)


def sizes(step: int) -> float:
    return 8 + step / 40


def intervals(step: int) -> float:
    return 5 if step < 150 else 2


def epsilons(step: int) -> float:
    return 0.5 + 0.4 * (-1) ** (step // 40)


CASES: dict[str, Any] = {
    "A2C": lambda: (A2C(), CategoricalPgAgent()),
    "A2C LSTM": lambda: (A2C(), RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=8))),
    "PPO": lambda: (PPO(epochs=2), CategoricalPgAgent(model_kwargs=dict(normalize_observation=True))),
    "PPO LSTM": lambda: (PPO(minibatches=2, epochs=2), RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=8))),
    "PPO SGD": lambda: (PPO(epochs=2, OptimCls=torch.optim.SGD, optim_kwargs=dict(momentum=0.9)), CategoricalPgAgent()),
    "PPO RMSprop": lambda: (PPO(epochs=2, OptimCls=torch.optim.RMSprop), CategoricalPgAgent()),
    "VTrace": lambda: (VTrace(normalize_reward=True), CategoricalPgAgent(model_kwargs=SMALL)),
    "VTrace GRU": lambda: (
        VTrace(),
        RecurrentCategoricalPgAgent(
            model_kwargs=dict(**SMALL, rnn_size=8, recurrent="gru", normalize_observation=True)
        ),
    ),
    "PQN": lambda: (
        PQN(minibatches=2, eps_steps=200),
        PqnAgent(model_kwargs=dict(**SMALL, layer_norm=True, normalize_observation=True)),
    ),
    "PQN LSTM": lambda: (
        PQN(minibatches=2, OptimCls=torch.optim.Adam),
        PqnAgent(recurrent=True, model_kwargs=dict(**SMALL, rnn_size=8)),
    ),
    "PQN Adam": lambda: (
        PQN(minibatches=2, OptimCls=torch.optim.Adam),
        PqnAgent(model_kwargs=dict(**SMALL, layer_norm=True)),
    ),
    "DQN": lambda: (DQN(**DQN_KWARGS), DqnAgent()),
    "DQN n-step soft": lambda: (
        DQN(**DQN_KWARGS, n_step_return=3, double_dqn=True, target_update_tau=0.1),
        DqnAgent(model_kwargs=dict(normalize_observation=True)),
    ),
    "DQN Munchausen resets": lambda: (
        DQN(**DQN_KWARGS, munchausen=0.9, reset_interval=5, normalize_reward=True, return_limit=5.0),
        DqnAgent(model_kwargs=SMALL),
    ),
    "DQN scheduled": lambda: (
        DQN(**{**DQN_KWARGS, "batch_size": sizes, "target_update_interval": intervals}),
        DqnAgent(model_kwargs=SMALL, eps_train=epsilons),
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
    "CrossQ": lambda: (
        SAC(**QPG_KWARGS, joint_pass=True, policy_update_interval=2),
        SacAgent(has_targets=False, model_kwargs=BATCH_NORM, q_model_kwargs=BATCH_NORM),
    ),
    "SimbaV2": lambda: (
        SAC(**QPG_KWARGS),
        SacAgent(model_kwargs=SPHERES, q_model_kwargs=SPHERES, feature_kwargs=dict(normalize_observation=True)),
    ),
    "XQC": lambda: (
        SAC(**QPG_KWARGS, joint_pass=True, normalize_reward=True, policy_update_interval=2),
        SacAgent(model_kwargs=UNITS, q_model_kwargs=UNITS, value_head="c51:-5,5,11"),
    ),
    "SimBa": lambda: (
        TD3(**QPG_KWARGS, OptimCls=torch.optim.AdamW, optim_kwargs=dict(weight_decay=0.01)),
        Td3Agent(model_kwargs=RESIDUAL, q_model_kwargs=RESIDUAL, feature_kwargs=dict(normalize_observation=True)),
    ),
    "spectral norm": lambda: (SAC(**QPG_KWARGS), SacAgent(model_kwargs=SPECTRAL, q_model_kwargs=SPECTRAL)),
    "DDPG": lambda: (DDPG(**QPG_KWARGS), DdpgAgent(**MU_AND_Q)),
    # Five updates between those of the policy, three an iteration: where a run is in between is part of its state.
    "TD3": lambda: (TD3(**QPG_KWARGS, policy_update_interval=5, prioritized_replay=True), Td3Agent(**MU_AND_Q)),
    "SAC": lambda: (SAC(**QPG_KWARGS), SacAgent(**MU_AND_Q)),
    "PPO two-hot": lambda: (PPO(epochs=2), CategoricalPgAgent(value_head="two_hot:-3,4,8")),
    "DQN HL-Gauss": lambda: (DQN(**DQN_KWARGS), DqnAgent(model_kwargs=SMALL, value_head="hl_gauss:-3,4,8")),
    "SAC C51": lambda: (SAC(**QPG_KWARGS), SacAgent(**MU_AND_Q, value_head="c51:-3,4,8")),
    "discrete SAC": lambda: (
        SAC(**QPG_KWARGS, policy_update_interval=2),
        DiscreteSacAgent(**MU_AND_Q, feature_kwargs=dict(normalize_observation=True)),
    ),
    "SAC LSTM": lambda: (SAC(**QPG_SEQUENCE_KWARGS), RecurrentSacAgent(**MU_AND_Q, feature_kwargs=dict(rnn_size=8))),
    "DroQ": lambda: (
        SAC(**QPG_KWARGS, q_of_policy="mean", policy_update_interval=2),
        SacAgent(model_kwargs=SMALL, q_model_kwargs=dict(hidden_sizes=(16, 16), dropout=0.3, layer_norm=True)),
    ),
}


def started(algo: Any, agent: Any, n_itr: int = 16, seed: int = 0, **kwargs: Any) -> Any:
    """Wire the parts over random rows, with actions of the kind that the algorithm takes; return the sampler."""
    of_box = isinstance(algo, QpgAlgo) and not isinstance(agent, DiscreteSacAgent)
    action_space = spaces.Box(-1, 2, (2,)) if of_box else spaces.Discrete(3)
    return set_up(algo, agent, RandomEnv, dict(action_space=action_space), n_itr=n_itr, seed=seed, **kwargs)


def learn(algo: Any, collected: list[Any], itrs: range) -> list[dict[str, torch.Tensor]]:
    return [dict(optimize(algo, itr, collected[itr])) for itr in itrs]


def trained(case: str, n_itr: int = 6, settings: Any = None, **changes: Any) -> tuple[Any, Any, Any]:
    """Return algorithm, agent and metrics after some iterations, on batches that are the same in every call."""
    torch.manual_seed(0)
    algo, agent = CASES[case]()
    algo = algo.replace(**changes) if changes else algo
    collected = batches(started(algo, agent, settings=settings), n_itr)
    torch.manual_seed(1)
    return algo, agent, learn(algo, collected, range(n_itr))


WAYS: dict[str, Any] = {"copy": (deepcopy, 1), "the thing itself": (lambda state: state, 8)}
"""What a state may go through beside a file (`tests/runners/test_parts_go_on.py`), and iterations before that."""
ALL_KINDS = ("A2C LSTM", "PPO", "DQN scheduled", "Rainbow", "TD3", "DroQ")
OF_EVERY_KIND = ("A2C LSTM", "PPO", "DQN n-step soft", "Rainbow", "R2D1", "DroQ")


@pytest.mark.parametrize(
    ("case", "way"),
    others_nightly(
        [(case, way) for case in OF_EVERY_KIND for way in WAYS],
        [("PPO", "copy"), ("Rainbow", "copy"), ("R2D1", "the thing itself"), ("DroQ", "the thing itself")],
    ),
)
def test_going_on_from_a_state(case, way):
    way, k = WAYS[way]
    algo, agent = CASES[case]()
    collected = batches(started(algo, agent), 16)
    learn(algo, collected, range(k))
    states = way(algo.state_dict()), way(agent.state_dict())

    other_algo, other_agent = CASES[case]()
    started(other_algo, other_agent, seed=1)
    other_algo.load_state_dict(states[0])
    other_agent.load_state_dict(states[1])
    assert other_algo.update_counter == algo.update_counter

    metrics = learn(algo, collected, range(k, 16))
    expected = [deepcopy(module.state_dict()) for module in agent.networks.modules()]
    other_metrics = learn(other_algo, collected, range(k, 16))
    check_networks(other_agent, expected)
    check_networks(agent, expected)
    torch.testing.assert_close(metrics, other_metrics, rtol=0, atol=0)
    assert other_algo.update_counter == algo.update_counter > 0


def check_networks(agent: Any, expected: list[dict[str, torch.Tensor]]) -> None:
    """Hold all networks, targets and statistics to the expected ones, bit for bit."""
    for module, tensors in zip(agent.networks.modules(), expected, strict=True):
        for name, tensor in module.state_dict().items():
            assert torch.equal(tensor, tensors[name]), name


@pytest.mark.parametrize("case", others_nightly(CASES, ALL_KINDS))
def test_the_same_seed_gives_the_same_and_another_another(case):
    def run(seed: int) -> Any:
        algo, agent = CASES[case]()
        sampler = started(algo, agent, n_itr=6, seed=seed)
        learn_from(algo, sampler, 6)
        return agent

    first, second, other = run(0), run(0), run(1)
    check_parameters(second, parameters64(first), rtol=0, atol=0)
    with pytest.raises(AssertionError):
        check_parameters(other, parameters64(first), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", others_nightly(CASES, ALL_KINDS))
def test_a_second_run_of_the_same_object_is_that_of_a_fresh_one(case):
    """Whatever the first one left: its counter, its schedules, its replay, its running returns."""

    def run(algo: Any, agent: Any, seed: int, n_itr: int) -> tuple[Any, list[dict[str, torch.Tensor]]]:
        sampler = started(algo, agent, n_itr=n_itr, seed=seed)
        metrics = [dict(optimize(algo, itr, sampler.obtain_samples(itr)[0])) for itr in range(n_itr)]
        return [deepcopy(module.state_dict()) for module in agent.networks.modules()], metrics

    def given(algo: Any) -> dict[str, Any]:
        return deepcopy(hyper_parameters(algo))

    algo, agent = CASES[case]()
    as_given = given(algo)
    run(algo, agent, seed=1, n_itr=5)
    assert given(algo) == as_given
    _, agent = CASES[case]()
    _, metrics = run(algo, agent, seed=2, n_itr=7)
    fresh, fresh_agent = CASES[case]()
    expected, fresh_metrics = run(fresh, fresh_agent, seed=2, n_itr=7)
    check_networks(agent, expected)
    assert given(algo) == as_given == given(fresh)
    assert algo.update_counter == fresh.update_counter > 0
    torch.testing.assert_close(metrics, fresh_metrics, rtol=0, atol=0)


@pytest.mark.parametrize("case", ["A2C", "PPO LSTM", "VTrace", "DQN", "R2D1", "TD3", "SAC LSTM"])
def test_statistics_of_observations_take_in_valid_rows_once_and_targets_share_them(case):
    algo, agent = CASES[case]()
    settings = "feature_kwargs" if isinstance(algo, QpgAlgo) else "model_kwargs"
    agent = agent.replace(**{settings: {**(getattr(agent, settings) or {}), "normalize_observation": True}})
    collected = batches(started(algo, agent), 6)
    learn(algo, collected, range(6))
    seen = torch.cat([samples.env.observation[samples.env.valid] for samples in collected]).double()
    assert len(seen) < 6 * collected[0].env.valid.numel()
    for network in (agent.model, getattr(agent, "target_model", agent.model)):
        found = {name.split(".")[-1]: x for name, x in network.named_buffers() if "rms" in name}
        assert found["count"].item() == len(seen)
        torch.testing.assert_close(found["mean"], seen.mean(0))
        torch.testing.assert_close(found["var"], seen.var(0, correction=0))


@pytest.mark.parametrize("case", ["IQN", "Rainbow", "DroQ"])
def test_what_is_asked_of_the_networks_between_updates_moves_no_stream(case):
    algo, agent = CASES[case]()
    collected = batches(started(algo, agent), 8)
    learn(algo, collected, range(8))
    before, inputs = algo.generator.get_state(), example_inputs(agent.env_spaces, 2)
    for output in (agent(*inputs), agent(*inputs)):
        assert all(map(torch.equal, buffer_leaves(output), buffer_leaves(agent(*inputs))))
    assert torch.equal(algo.generator.get_state(), before)


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


def test_a_state_with_another_replay_is_refused_and_changes_nothing():
    algo, agent = DQN(**DQN_KWARGS), DqnAgent(model_kwargs=SMALL)
    learn(algo, batches(set_up(algo, agent, RandomEnv), 3), range(3))
    other = DQN(**{**DQN_KWARGS, "replay_size": 400})
    set_up(other, DqnAgent(model_kwargs=SMALL), RandomEnv)
    before = other.generator.get_state()
    with pytest.raises(ValueError, match=r"Loading a replay: got T=.*Build the algorithm with the replay_size"):
        other.load_state_dict(algo.state_dict())
    assert algo.update_counter > other.update_counter == 0
    assert torch.equal(other.generator.get_state(), before)
    assert not other.optim_state_dict()["state"]
