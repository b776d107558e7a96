"""PPO on MuJoCo, with the settings of Schulman et al. 2017."""

from __future__ import annotations

import gymnasium

from experiments.configuration import Config, Renamed, changed
from rlpyt.agents import MujocoFfAgent
from rlpyt.algos import PPO
from rlpyt.runners import MinibatchRl, MinibatchRlBase
from rlpyt.samplers import CpuSampler, SerialSampler


def ppo() -> MinibatchRlBase:
    """Return PPO with batches of 2,048 rows, 32 minibatches and 10 epochs."""
    return MinibatchRl(
        algo=PPO(
            discount=0.99,
            learning_rate=3e-4,
            clip_grad_norm=1e6,
            entropy_loss_coeff=0.0,
            gae_lambda=0.95,
            minibatches=32,
            epochs=10,
            ratio_clip=0.2,
            normalize_advantage=True,
            linear_lr_schedule=True,
        ),
        agent=MujocoFfAgent(model_kwargs=dict(normalize_observation=False)),
        sampler=SerialSampler(
            EnvCls=gymnasium.make,
            env_kwargs=dict(id="Hopper-v5"),
            batch_T=2048,
            batch_B=1,
            max_decorrelation_steps=0,
        ),
        n_steps=1e6,
        log_interval_steps=2048 * 10,
    )


cpu = changed(ppo, sampler=dict(Cls=CpuSampler, batch_T=256, batch_B=8))

CONFIGS: dict[str, Config] = {
    "ppo_1M_serial": ppo,
    # It was one object with the next one, so that it had 1 minibatch and 32 epochs. It has 32 and 10, as its base.
    "ppo_1M_cpu": cpu,
    "ppo_32ep_1mb": changed(cpu, algo=dict(minibatches=1, epochs=32)),
}

RENAMED: dict[str, Renamed] = {}
