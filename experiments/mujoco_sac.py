"""SAC on MuJoCo, with the settings of Haarnoja et al. 2018: a learned weight of the entropy, two action values."""

from __future__ import annotations

import gymnasium

from experiments.configuration import Config, Renamed
from rlpyt.agents import SacAgent
from rlpyt.algos import SAC
from rlpyt.runners import MinibatchRlBase, MinibatchRlEval
from rlpyt.samplers import SerialSampler


def sac() -> MinibatchRlBase:
    """Return SAC with one update of 256 rows a step."""
    return MinibatchRlEval(
        algo=SAC(
            discount=0.99,
            batch_size=256,
            replay_ratio=256,
            target_update_tau=0.005,
            target_update_interval=1,
            learning_rate=3e-4,
            q_learning_rate=3e-4,
        ),
        agent=SacAgent(),
        sampler=SerialSampler(
            EnvCls=gymnasium.make,
            env_kwargs=dict(id="Hopper-v5"),
            eval_env_kwargs=dict(id="Hopper-v5"),
            batch_T=1,
            batch_B=1,
            max_decorrelation_steps=0,
            eval_n_envs=4,
            eval_max_steps=int(51e3),
            eval_max_trajectories=50,
        ),
        n_steps=1e6,
        log_interval_steps=1e4,
    )


CONFIGS: dict[str, Config] = {"sac_1M_serial": sac}

RENAMED = {
    "sac_serial_bstl": Renamed("sac_1M_serial", "every algorithm bootstraps where a time limit cut the episode"),
}
