"""Small problems solved from a replay: memory, distributions, continuous actions, images."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from rlpyt.agents import (
    DdpgAgent,
    DqnAgent,
    R2d1Agent,
    RecurrentSacAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import DDPG, DQN, R2D1, SAC, TD3
from tests.algos.small_problems import ContinuousBandit, ContinuousCue, ContinuousSpot, Cue, end, train
from tests.pairs import others_nightly

pytestmark = pytest.mark.slow

# Every seed must do; more of them can be asked for when the margins are in doubt.
SEEDS = [0]
SEQUENCES: dict[str, Any] = dict(batch_T=6, batch_B=32, warmup_T=3, store_rnn_state_interval=3)
REPLAY: dict[str, Any] = dict(replay_size=4_000, min_steps_learn=500, learning_rate=3e-3, discount=0.9)
Q: dict[str, Any] = dict(**REPLAY, target_update_interval=50, eps_steps=1_500, n_step_return=2)
QPG: dict[str, Any] = dict(**REPLAY, q_learning_rate=3e-3, target_update_tau=0.02)
HIDDEN: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=32), q_model_kwargs=dict(hidden_sizes=32))
# Without much entropy, as the episodes that are judged are those of training.
SoftActorCritic = partial(SAC, alpha_learning_rate=3e-3, alpha_init=0.1, target_entropy=-2.5)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", SEEDS)
def test_r2d1_remembers_the_cue(seed):
    agent = R2d1Agent(eps_final=0.02, model_kwargs=dict(hidden_sizes=32, rnn_size=32))
    curve = train(R2D1(**SEQUENCES, **Q, replay_ratio=12), agent, Cue, dict(delay=2), n_itr=90, T=9, B=8, seed=seed)
    assert end(curve[:5], 5) < 0.7
    assert end(curve, 8) > 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_feed_forward_dqn_cannot(seed):
    agent = DqnAgent(eps_final=0.02, model_kwargs=dict(hidden_sizes=16))
    curve = train(DQN(**Q, batch_size=64), agent, Cue, dict(delay=2), n_itr=40, T=9, B=8, seed=seed)
    assert 0.35 < end(curve, 15) < 0.65


@pytest.mark.parametrize("seed", SEEDS)
def test_a_recurrent_policy_remembers_the_cue(seed):
    """Guessing costs 1 at best, on average over the two cues. TD3 does it too, in three times as many steps."""
    agent = RecurrentSacAgent(**HIDDEN, feature_kwargs=dict(rnn_size=16))
    algo = SoftActorCritic(**SEQUENCES, **QPG, replay_ratio=12)
    curve = train(algo, agent, ContinuousCue, dict(delay=2), n_itr=80, T=9, B=8, seed=seed)
    assert end(curve[:5], 5) < -0.9
    assert end(curve, 8) > -0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_a_feed_forward_policy_cannot(seed):
    algo = TD3(**QPG, batch_size=64, replay_ratio=12)
    curve = train(algo, Td3Agent(**HIDDEN), ContinuousCue, dict(delay=2), n_itr=40, T=9, B=8, seed=seed)
    assert end(curve, 15) < -0.9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("AlgoCls", "AgentCls"), others_nightly([(SoftActorCritic, SacAgent), (DDPG, DdpgAgent)], [(DDPG, DdpgAgent)])
)
def test_the_best_action_within_its_bounds_is_found(AlgoCls, AgentCls, seed):
    algo = AlgoCls(**QPG, batch_size=64, replay_ratio=12)
    curve = train(algo, AgentCls(**HIDDEN), ContinuousBandit, n_itr=25, T=16, B=8, seed=seed)
    assert end(curve[:3], 3) < -0.8
    assert end(curve, 5) > -0.35


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS)
def test_images_are_seen(seed):
    convolutions = dict(channels=(8, 16), kernel_sizes=(4, 3), strides=(2, 2), paddings=(0, 0))
    algo = TD3(**{**QPG, "learning_rate": 1e-3, "q_learning_rate": 1e-3}, batch_size=64, replay_ratio=8, random_shift=2)
    curve = train(algo, Td3Agent(**HIDDEN, feature_kwargs=convolutions), ContinuousSpot, n_itr=30, T=16, B=8, seed=seed)
    assert end(curve[:3], 3) < -0.8
    assert end(curve, 5) > -0.35
