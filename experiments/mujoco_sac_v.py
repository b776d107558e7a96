"""SAC on MuJoCo with a fixed weight of the entropy and scaled rewards, as in its first paper.

rlpyt 0.1 had a network of state values here. It is gone: the value is that of the two target action values.

Source: Haarnoja et al. 2018, arXiv:1801.01290.
"""

from __future__ import annotations

from experiments.configuration import Config, Renamed, changed
from experiments.mujoco_sac import sac
from rlpyt.runners import AsyncRlEval
from rlpyt.samplers import GpuSampler

fixed = changed(sac, algo=dict(reward_scale=5, fixed_alpha=1.0), sampler=dict(eval_n_envs=6))

CONFIGS: dict[str, Config] = {
    "sac_1M_serial": fixed,
    "async_gpu": changed(fixed, Cls=AsyncRlEval, sampler=dict(Cls=GpuSampler, batch_T=5, batch_B=3)),
}

RENAMED = {
    "sac_serial_bstl": Renamed("sac_1M_serial", "every algorithm bootstraps where a time limit cut the episode"),
}
