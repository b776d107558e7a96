"""Small problems, solved within a minute on one core; the agents in experiments/trained are theirs."""

from __future__ import annotations

import gymnasium

from experiments.configuration import Config, Renamed
from rlpyt.agents import CategoricalPgAgent, DqnAgent, SacAgent
from rlpyt.algos import DQN, PPO, SAC
from rlpyt.runners import MinibatchRl, MinibatchRlBase
from rlpyt.samplers import SerialSampler


def cartpole_ppo() -> MinibatchRlBase:
    """Return PPO on CartPole, whose return is 500 at most."""
    return MinibatchRl(
        algo=PPO(learning_rate=2.5e-3, gae_lambda=0.95, epochs=10, minibatches=4, ratio_clip=0.2, clip_grad_norm=0.5),
        agent=CategoricalPgAgent(model_kwargs=dict(hidden_sizes=(64, 64))),
        sampler=SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=64, batch_B=8),
        n_steps=5e4,
        log_interval_steps=5e3,
    )


def cartpole_dqn() -> MinibatchRlBase:
    """Return double DQN on CartPole with priorities and 3-step returns; the return is 500 at most."""
    return MinibatchRl(
        algo=DQN(
            learning_rate="lin_1e-3",
            batch_size=64,
            replay_ratio=32,
            replay_size=int(5e4),
            min_steps_learn=1000,
            eps_steps=5e3,
            target_update_interval=50,
            n_step_return=3,
            double_dqn=True,
            prioritized_replay=True,
            pri_beta_steps=3e4,
        ),
        agent=DqnAgent(eps_eval=0.0, model_kwargs=dict(hidden_sizes=(64, 64), normalize_observation=True)),
        sampler=SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=4, batch_B=4),
        n_steps=3e4,
        log_interval_steps=5e3,
    )


def pendulum_sac() -> MinibatchRlBase:
    """Return SAC on Pendulum, whose best mean return is about -150."""
    return MinibatchRl(
        algo=SAC(learning_rate=1e-3, q_learning_rate=1e-3, min_steps_learn=1000, batch_size=128, replay_ratio=128),
        agent=SacAgent(
            model_kwargs=dict(hidden_sizes=(64, 64)),
            q_model_kwargs=dict(hidden_sizes=(64, 64)),
        ),
        sampler=SerialSampler(gymnasium.make, dict(id="Pendulum-v1"), batch_T=1, batch_B=1),
        n_steps=8e3,
        log_interval_steps=2e3,
    )


CONFIGS: dict[str, Config] = {
    "cartpole_ppo": cartpole_ppo,
    "cartpole_dqn": cartpole_dqn,
    "pendulum_sac": pendulum_sac,
}

RENAMED: dict[str, Renamed] = {}
