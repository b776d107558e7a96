"""PPO on Atari with a feed-forward network."""

from __future__ import annotations

from experiments.configuration import Config, Renamed
from rlpyt.agents import AtariFfAgent
from rlpyt.algos import PPO
from rlpyt.envs import AtariEnv
from rlpyt.runners import MinibatchRl, MinibatchRlBase
from rlpyt.samplers import GpuSampler


def ppo() -> MinibatchRlBase:
    """Return PPO with 32 environments, 64 steps, and 4 epochs of 4 minibatches."""
    return MinibatchRl(
        algo=PPO(
            discount=0.99,
            learning_rate=1e-3,
            value_loss_coeff=1.0,
            entropy_loss_coeff=0.01,
            clip_grad_norm=1.0,
            gae_lambda=0.98,
            linear_lr_schedule=True,
            minibatches=4,
            epochs=4,
        ),
        agent=AtariFfAgent(),
        sampler=GpuSampler(
            EnvCls=AtariEnv,
            env_kwargs=dict(game="pong"),
            batch_T=64,
            batch_B=32,
            mid_batch_reset=False,
            max_decorrelation_steps=1000,
        ),
        n_steps=50e6,
    )


CONFIGS: dict[str, Config] = {"0": ppo}

RENAMED: dict[str, Renamed] = {}
