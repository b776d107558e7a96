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

from rlpyt.agents import (
    CategoricalPgAgent,
    DdpgAgent,
    DqnAgent,
    GaussianPgAgent,
    PgAgent,
    PqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import A2C, DDPG, DQN, PPO, PQN, R2D1, SAC, TD3, VTrace
from rlpyt.samplers import CpuSampler, GpuSampler, SerialSampler
from tests.algos.small_problems import (
    Chain,
    CompositeBandit,
    ContinuousBandit,
    ContinuousSpot,
    Cue,
    Spot,
    end,
    train,
)
from tests.pairs import others_nightly

pytestmark = pytest.mark.slow


CHAIN_DQN: dict[str, Any] = dict(
    discount=0.9, learning_rate=1e-3, min_steps_learn=500, eps_steps=3000, replay_size=5000, batch_size=64
)
SOFT: dict[str, Any] = dict(target_update_interval=1, target_update_tau=0.02, double_dqn=True, n_step_return=3)
RNN_16: dict[str, Any] = dict(rnn_size=16, hidden_sizes=16)
CHAIN: dict[str, Any] = {  # number of iterations, algorithm, agent
    "PPO": (18, lambda: PPO(learning_rate=3e-3, gae_lambda=0.95), CategoricalPgAgent),
    "A2C": (30, lambda: A2C(learning_rate=5e-3), CategoricalPgAgent),
    "A2C LSTM": (50, lambda: A2C(learning_rate=5e-3), lambda: RecurrentCategoricalPgAgent(model_kwargs=RNN_16)),
    "VTrace": (30, lambda: VTrace(learning_rate=5e-3), CategoricalPgAgent),
    "PQN": (
        30,
        lambda: PQN(discount=0.9, learning_rate=3e-3, q_lambda=0.9, minibatches=4, epochs=4, eps_steps=2000),
        lambda: PqnAgent(eps_final=0.02, model_kwargs=dict(hidden_sizes=(16, 16), layer_norm=True)),
    ),
    "DQN double, dueling, 3 steps": (
        40,
        lambda: DQN(**CHAIN_DQN, **SOFT),
        lambda: DqnAgent(model_kwargs=dict(hidden_sizes=(32, 32), dueling=True)),
    ),
}


@pytest.mark.parametrize("case", others_nightly(CHAIN, ("PPO", "DQN double, dueling, 3 steps")))
def test_the_right_end_of_the_chain(case):
    n_itr, make_algo, make_agent = CHAIN[case]
    curve = train(make_algo(), make_agent(), Chain, n_itr=n_itr, T=16, B=8)
    assert end(curve[:2], 2) < 0.8
    assert end(curve, 10) > 0.95


POLE: dict[str, Any] = dict(discount=0.98, gae_lambda=0.95, normalize_advantage=True)
OF_PPO: dict[str, Any] = dict(ratio_clip=0.2, epochs=4, minibatches=2, value_loss_coeff=0.5, entropy_loss_coeff=0.0)


@pytest.mark.parametrize(
    ("algo", "EnvCls", "SamplerCls"),
    [
        (PPO(learning_rate=3e-3, **POLE, **OF_PPO), gymnasium.make, partial(GpuSampler, mid_batch_reset=False)),
        (PPO(learning_rate=3e-3, **POLE, **OF_PPO), gymnasium.make_vec, partial(SerialSampler, n_parts=2)),
        pytest.param(A2C(learning_rate=5e-3, **POLE), gymnasium.make, GpuSampler, marks=pytest.mark.nightly),
        (VTrace(learning_rate=5e-3, **POLE), gymnasium.make, CpuSampler),
    ],
)
def test_the_pole_is_balanced_through_every_sampler(algo, EnvCls, SamplerCls):
    n_itr, T = (16, 32) if isinstance(algo, PPO) else (60, 16)
    workers = {} if EnvCls is gymnasium.make_vec else dict(n_workers=2, start_method="here")
    problem = dict(id="CartPole-v1")
    curve = train(algo, CategoricalPgAgent(), EnvCls, problem, n_itr=n_itr, T=T, B=16, SamplerCls=SamplerCls, **workers)
    assert end(curve[:4], 4) < 40
    assert end(curve, n_itr // 3) > 60


CUE: dict[str, Any] = dict(learning_rate=1e-2, minibatches=2, epochs=4, gae_lambda=0.95, normalize_advantage=True)


@pytest.mark.parametrize("recurrent", others_nightly([True, False], [True]))
def test_a_recurrent_agent_remembers_the_cue_and_another_cannot(recurrent):
    agent: Any = CategoricalPgAgent()
    if recurrent:
        agent = RecurrentCategoricalPgAgent(model_kwargs=dict(recurrent="gru", rnn_size=32, hidden_sizes=32))
    curve = train(PPO(**CUE), agent, Cue, n_itr=20, T=10, B=64)
    assert end(curve, 5) > 0.95 if recurrent else 0.4 < end(curve, 10) < 0.6


def test_a_gaussian_finds_the_best_action_within_its_bounds():
    agent = GaussianPgAgent()
    algo = PPO(learning_rate=1e-2, normalize_advantage=True, ratio_clip=0.2, entropy_loss_coeff=0.0)
    curve = train(algo, agent, ContinuousBandit, n_itr=40, T=16, B=8)
    one = torch.ones(1, 1)
    dist_info, _ = agent(one, torch.zeros(1, 1), torch.zeros(1))
    assert agent.distribution.mode(dist_info).item() == pytest.approx(ContinuousBandit.best, abs=0.15)
    assert end(curve, 5) > -0.1
    assert end(curve[:5], 5) < -0.8


SMALL_CONV: dict[str, Any] = dict(channels=(8, 16), kernel_sizes=(4, 3), strides=(2, 2), paddings=(0, 0), fc_sizes=32)


def test_the_corner_of_an_image_is_found():
    replay: dict[str, Any] = dict(min_steps_learn=256, replay_size=5000, replay_ratio=4, batch_size=64)
    algo, agent = DQN(learning_rate=2e-3, eps_steps=1500, **replay), DqnAgent(model_kwargs=SMALL_CONV)
    curve = train(algo, agent, Spot, n_itr=25, T=16, B=8)
    assert curve[0] < 1 / 4 + 0.25
    assert end(curve, 5) > 0.9


STEPS: dict[str, Any] = dict(entropy_loss_coeff=0.0, normalize_advantage=True)
COMPOSITE: dict[str, Any] = {  # number of iterations, algorithm, whether recurrent
    "PPO": (20, lambda: PPO(learning_rate=1e-2, ratio_clip=0.2, linear_lr_schedule=False, **STEPS), False),
    "PPO LSTM": (20, lambda: PPO(learning_rate=1e-2, ratio_clip=0.2, linear_lr_schedule=False, **STEPS), True),
    "A2C LSTM": (60, lambda: A2C(learning_rate=3e-2, **STEPS), True),
}


@pytest.mark.parametrize("case", others_nightly(COMPOSITE, ("PPO",)))
def test_all_parts_of_a_composite_action_are_learned(case):
    """At random four choices give 0.46 on average, and the aim costs about 1."""
    n_itr, algo, recurrent = COMPOSITE[case]
    agent = PgAgent(recurrent=recurrent, model_kwargs=RNN_16 if recurrent else {})
    curve = train(algo(), agent, CompositeBandit, n_itr=n_itr, T=16, B=8)
    assert end(curve[:2], 2) < -0.2
    assert end(curve, 5) > 0.6
    infos = agent.play(CompositeBandit(), 6)
    assert np.mean([info.Return for info in infos]) > 0.85


# ---- from a replay: memory, continuous actions, images ----

SEQUENCES: dict[str, Any] = dict(batch_T=6, batch_B=32, warmup_T=3, store_rnn_state_interval=3, replay_ratio=12)
REPLAY: dict[str, Any] = dict(replay_size=4_000, min_steps_learn=500, learning_rate=3e-3, discount=0.9)
Q: dict[str, Any] = dict(**REPLAY, target_update_interval=50, eps_steps=1_500, n_step_return=2)
QPG: dict[str, Any] = dict(**REPLAY, q_learning_rate=3e-3, target_update_tau=0.02)
HIDDEN: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=32), q_model_kwargs=dict(hidden_sizes=32))
# Without much entropy, as the episodes that are judged are those of training.
SoftActorCritic = partial(SAC, alpha_learning_rate=3e-3, alpha_init=0.1, target_entropy=-2.5)


def test_r2d1_remembers_the_cue():
    agent = R2d1Agent(eps_final=0.02, model_kwargs=dict(hidden_sizes=32, rnn_size=32))
    curve = train(R2D1(**SEQUENCES, **Q), agent, Cue, dict(delay=2), n_itr=90, T=9, B=8)
    assert end(curve[:5], 5) < 0.7
    assert end(curve, 8) > 0.8


CONVOLUTIONS: dict[str, Any] = dict(channels=(8, 16), kernel_sizes=(4, 3), strides=(2, 2), paddings=(0, 0))
IMAGES: dict[str, Any] = QPG | dict(learning_rate=1e-3, q_learning_rate=1e-3, random_shift=2, replay_ratio=8)


@pytest.mark.parametrize(
    ("algo", "agent", "EnvCls"),
    [
        (SoftActorCritic(**QPG, batch_size=64, replay_ratio=12), SacAgent(**HIDDEN), ContinuousBandit),
        pytest.param(
            *(DDPG(**QPG, batch_size=64, replay_ratio=12), DdpgAgent(**HIDDEN), ContinuousBandit),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            SoftActorCritic(**QPG, batch_size=64, replay_ratio=12),
            SacAgent(**HIDDEN, value_head="hl_gauss:-8,2,51"),
            ContinuousBandit,
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *(TD3(**IMAGES, batch_size=64), Td3Agent(**HIDDEN, feature_kwargs=CONVOLUTIONS), ContinuousSpot),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_the_best_action_within_its_bounds_is_found(algo, agent, EnvCls):
    curve = train(algo, agent, EnvCls, n_itr=30, T=16, B=8)
    assert end(curve[:3], 3) < -0.8
    assert end(curve, 5) > -0.35
