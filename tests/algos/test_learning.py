"""Small problems, solved in a second or two; each margin is wide of what ten seeds gave.

A run is about half as long again as the slowest of those seeds needed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, DqnAgent, GaussianPgAgent, PgAgent, RecurrentCategoricalPgAgent
from rlpyt.algos import A2C, DQN, PPO, VTrace
from rlpyt.samplers import (
    AlternatingSampler,
    CpuSampler,
    GpuSampler,
    NoOverlapAlternatingSampler,
    SerialSampler,
)
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import (
    Chain,
    ContinuousBandit,
    Cue,
    DictBandit,
    MultiDiscreteBandit,
    Spot,
    end,
    train,
)
from tests.pairs import others_nightly

pytestmark = pytest.mark.slow

# Every seed must do; more of them can be asked for when the margins are in doubt.
SEEDS = [0]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


CHAIN: dict[str, Any] = {  # number of iterations, algorithm, agent
    "PPO": (18, lambda: PPO(learning_rate=3e-3, gae_lambda=0.95), CategoricalPgAgent),
    "A2C": (30, lambda: A2C(learning_rate=5e-3), CategoricalPgAgent),
    "A2C LSTM": (
        50,
        lambda: A2C(learning_rate=5e-3),
        lambda: RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=16, hidden_sizes=16)),
    ),
    "VTrace": (30, lambda: VTrace(learning_rate=5e-3), CategoricalPgAgent),
    "VTrace LSTM": (
        50,
        lambda: VTrace(learning_rate=5e-3),
        lambda: RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=16, hidden_sizes=16)),
    ),
    "DQN": (
        40,
        lambda: DQN(
            discount=0.9,
            learning_rate=1e-3,
            min_steps_learn=500,
            eps_steps=3000,
            replay_size=5000,
            batch_size=64,
            target_update_interval=50,
        ),
        lambda: DqnAgent(model_kwargs=dict(hidden_sizes=(32, 32))),
    ),
    "DQN double, dueling, 3 steps": (
        40,
        lambda: DQN(
            discount=0.9,
            learning_rate=1e-3,
            min_steps_learn=500,
            eps_steps=3000,
            replay_size=5000,
            batch_size=64,
            target_update_interval=1,
            target_update_tau=0.02,
            double_dqn=True,
            n_step_return=3,
        ),
        lambda: DqnAgent(model_kwargs=dict(hidden_sizes=(32, 32), dueling=True)),
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", others_nightly(CHAIN, ("PPO", "A2C LSTM", "DQN double, dueling, 3 steps")))
def test_the_right_end_of_the_chain(case, seed):
    n_itr, make_algo, make_agent = CHAIN[case]
    curve = train(make_algo(), make_agent(), Chain, n_itr=n_itr, T=16, B=8, seed=seed)
    assert end(curve[:2], 2) < 0.8
    assert end(curve, 10) > 0.95


SAMPLERS: dict[str, Any] = {
    "serial": SerialSampler,
    "serial, resets wait": partial(SerialSampler, mid_batch_reset=False),
    "cpu": partial(CpuSampler, n_workers=2, start_method="here"),
    "gpu": partial(GpuSampler, n_workers=2),
    "gpu, resets wait": partial(GpuSampler, n_workers=2, mid_batch_reset=False, start_method="here"),
    "alternating": partial(AlternatingSampler, n_workers=2),
    "no overlap": partial(NoOverlapAlternatingSampler, n_workers=2, start_method="here"),
    "native": SerialSampler,
    "native halves": partial(SerialSampler, n_parts=2),
}
POLE: dict[str, Any] = {
    "PPO": lambda: PPO(
        learning_rate=3e-3,
        discount=0.98,
        gae_lambda=0.95,
        ratio_clip=0.2,
        epochs=4,
        minibatches=2,
        normalize_advantage=True,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.0,
    ),
    "A2C": lambda: A2C(learning_rate=5e-3, discount=0.98, gae_lambda=0.95, normalize_advantage=True),
    "VTrace": lambda: VTrace(learning_rate=5e-3, discount=0.98, gae_lambda=0.95, normalize_advantage=True),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("algo", "sampler"),
    others_nightly(
        [*(("PPO", name) for name in SAMPLERS), ("A2C", "serial"), ("A2C", "gpu"), ("VTrace", "cpu")],
        [("PPO", "gpu, resets wait"), ("PPO", "native halves"), ("A2C", "gpu"), ("VTrace", "cpu")],
    ),
)
def test_the_pole_is_balanced_through_every_sampler(algo, sampler, seed):
    n_itr, T = dict(PPO=(16, 32), A2C=(60, 16), VTrace=(60, 16))[algo]
    EnvCls = gymnasium.make_vec if "native" in sampler else gymnasium.make
    curve = train(
        POLE[algo](),
        CategoricalPgAgent(),
        EnvCls,
        dict(id="CartPole-v1"),
        n_itr=n_itr,
        T=T,
        B=16,
        seed=seed,
        SamplerCls=SAMPLERS[sampler],
    )
    assert end(curve[:4], 4) < 40
    assert end(curve, n_itr // 3) > 60


CUE: dict[str, Any] = dict(learning_rate=1e-2, minibatches=2, epochs=4, gae_lambda=0.95, normalize_advantage=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", others_nightly(["lstm", "gru"], ["gru"]))
def test_a_recurrent_agent_remembers_the_cue(kind, seed):
    agent = RecurrentCategoricalPgAgent(model_kwargs=dict(recurrent=kind, rnn_size=32, hidden_sizes=32))
    curve = train(PPO(**CUE), agent, Cue, n_itr=20, T=10, B=64, seed=seed)
    assert end(curve, 5) > 0.95


@pytest.mark.parametrize("seed", SEEDS)
def test_a_feed_forward_agent_cannot(seed):
    curve = train(PPO(**CUE), CategoricalPgAgent(), Cue, n_itr=20, T=10, B=64, seed=seed)
    assert 0.4 < end(curve, 10) < 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gaussian_finds_the_best_action_within_its_bounds(seed):
    agent = GaussianPgAgent()
    algo = PPO(learning_rate=1e-2, normalize_advantage=True, ratio_clip=0.2, entropy_loss_coeff=0.0)
    curve = train(algo, agent, ContinuousBandit, n_itr=40, T=16, B=8, seed=seed)
    one = torch.ones(1, 1)
    dist_info, _ = agent(one, torch.zeros(1, 1), torch.zeros(1))
    assert agent.distribution.mode(dist_info).item() == pytest.approx(ContinuousBandit.best, abs=0.15)
    assert end(curve, 5) > -0.1
    assert end(curve[:5], 5) < -0.8


BANDITS = {"multi-discrete": (MultiDiscreteBandit, 3 / 8), "Dict observation": (DictBandit, 1 / 3)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", BANDITS)
def test_bandits(case, seed):
    EnvCls, chance = BANDITS[case]
    algo = PPO(learning_rate=5e-3, normalize_advantage=True, ratio_clip=0.2)
    curve = train(algo, PgAgent(), EnvCls, n_itr=25, T=16, B=8, seed=seed)
    assert curve[0] < chance + 0.25
    assert end(curve, 5) > 0.9


SMALL_CONV = dict(channels=(8, 16), kernel_sizes=(4, 3), strides=(2, 2), paddings=(0, 0), fc_sizes=32)
DQN_BANDITS: dict[str, Any] = {
    "Dict observation": (DictBandit, 1 / 3, dict(hidden_sizes=32)),
    "image": (Spot, 1 / 4, SMALL_CONV),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", DQN_BANDITS)
def test_bandits_by_q_learning(case, seed):
    EnvCls, chance, model_kwargs = DQN_BANDITS[case]
    algo = DQN(learning_rate=2e-3, min_steps_learn=256, eps_steps=1500, replay_size=5000, replay_ratio=4, batch_size=64)
    curve = train(algo, DqnAgent(model_kwargs=model_kwargs), EnvCls, n_itr=24, T=16, B=8, seed=seed)
    assert end(curve[:3], 3) < chance + 0.2
    assert end(curve, 5) > 0.9


def spot_curve(settings: ComputeSettings, seed: int) -> Any:
    algo = PPO(learning_rate=5e-3, normalize_advantage=True, ratio_clip=0.2)
    agent = CategoricalPgAgent(model_kwargs=SMALL_CONV)
    return train(algo, agent, Spot, n_itr=15, T=16, B=8, seed=seed, settings=settings), agent


@pytest.mark.parametrize("seed", SEEDS)
def test_bfloat16_learns_as_float32_does(seed):
    curve, _ = spot_curve(ComputeSettings(), seed)
    low_curve, low_agent = spot_curve(ComputeSettings(precision="bfloat16", channels_last=True), seed)
    assert end(curve[:2], 2) < 0.5
    assert end(curve, 5) > 0.95
    assert end(low_curve, 5) == pytest.approx(end(curve, 5), abs=0.04)
    area, low_area = np.nanmean(curve), np.nanmean(low_curve)
    assert low_area == pytest.approx(area, abs=0.05)
    assert all(parameter.dtype == torch.float32 for parameter in low_agent.parameters())
