"""DDPG on MuJoCo, with the settings that Fujimoto et al. 2018 compare TD3 with."""

from __future__ import annotations

import gymnasium

from experiments.configuration import Config, Renamed, changed
from rlpyt.agents import DdpgAgent
from rlpyt.algos import DDPG
from rlpyt.runners import AsyncRlEval, MinibatchRlBase, MinibatchRlEval
from rlpyt.samplers import SerialSampler


def ddpg() -> MinibatchRlBase:
    """Return DDPG with one update of 100 rows a step."""
    return MinibatchRlEval(
        algo=DDPG(
            discount=0.99,
            batch_size=100,
            replay_ratio=100,
            target_update_tau=0.01,
            target_update_interval=1,
            policy_update_interval=1,
            learning_rate=1e-3,
            q_learning_rate=1e-3,
        ),
        agent=DdpgAgent(),
        sampler=SerialSampler(
            EnvCls=gymnasium.make,
            env_kwargs=dict(id="Hopper-v5"),
            eval_env_kwargs=dict(id="Hopper-v5"),
            batch_T=1,
            batch_B=1,
            max_decorrelation_steps=0,
            eval_n_envs=5,
            eval_max_steps=int(51e3),
            eval_max_trajectories=50,
        ),
        n_steps=1e6,
        log_interval_steps=1e4,
    )


CONFIGS: dict[str, Config] = {
    "ddpg_from_td3_1M_serial": ddpg,
    "async_serial": changed(ddpg, Cls=AsyncRlEval, sampler=dict(batch_T=5)),
}

RENAMED = {
    "ddpg_from_td3_serial_bstl": Renamed(
        "ddpg_from_td3_1M_serial", "every algorithm bootstraps where a time limit cut the episode"
    ),
}
