"""A2C on MuJoCo."""

from __future__ import annotations

import gymnasium

from experiments.configuration import Config, Renamed
from rlpyt.agents import MujocoFfAgent
from rlpyt.algos import A2C
from rlpyt.runners import MinibatchRl, MinibatchRlBase
from rlpyt.samplers import CpuSampler


def a2c() -> MinibatchRlBase:
    """Return A2C with 8 environments and updates of 100 steps."""
    return MinibatchRl(
        algo=A2C(
            discount=0.99,
            learning_rate=3e-5,
            clip_grad_norm=1e6,
            entropy_loss_coeff=0.0,
            value_loss_coeff=0.5,
            normalize_advantage=True,
        ),
        agent=MujocoFfAgent(model_kwargs=dict(normalize_observation=False)),
        sampler=CpuSampler(
            EnvCls=gymnasium.make,
            env_kwargs=dict(id="Hopper-v5"),
            batch_T=100,
            batch_B=8,
            max_decorrelation_steps=1000,
        ),
        n_steps=1e6,
        log_interval_steps=2e4,
    )


CONFIGS: dict[str, Config] = {"a2c_1M": a2c}

RENAMED: dict[str, Renamed] = {}
