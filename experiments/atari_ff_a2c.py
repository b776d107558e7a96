"""A2C on Atari with a feed-forward network."""

from __future__ import annotations

from experiments.configuration import Config, Renamed, changed
from rlpyt.agents import AtariFfAgent
from rlpyt.algos import A2C
from rlpyt.envs import AtariEnv
from rlpyt.runners import MinibatchRl, MinibatchRlBase, SyncRl
from rlpyt.samplers import GpuSampler


def a2c() -> MinibatchRlBase:
    """Return A2C with 32 environments and updates of 5 steps."""
    return MinibatchRl(
        algo=A2C(
            discount=0.99,
            learning_rate=3e-4,
            value_loss_coeff=0.5,
            entropy_loss_coeff=0.01,
            clip_grad_norm=1.0,
        ),
        agent=AtariFfAgent(),
        sampler=GpuSampler(
            EnvCls=AtariEnv,
            env_kwargs=dict(game="pong"),
            batch_T=5,
            batch_B=32,
            mid_batch_reset=False,
            max_decorrelation_steps=1000,
        ),
        n_steps=50e6,
    )


CONFIGS: dict[str, Config] = {
    "0": a2c,
    "lr_4e-4": changed(a2c, algo=dict(learning_rate=4e-4)),
    "2_replicas": changed(a2c, Cls=SyncRl, n_replicas=2, sampler=dict(batch_B=16)),
}

RENAMED = {
    "low_lr": Renamed("lr_4e-4", "4e-4 is higher than the 3e-4 of the base"),
    "2gpu": Renamed("2_replicas", "replicas run on any hardware"),
}
