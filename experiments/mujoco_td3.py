"""TD3 on MuJoCo, with the settings of Fujimoto et al. 2018."""

from __future__ import annotations

from experiments.configuration import Config, Renamed, changed
from experiments.mujoco_ddpg import ddpg
from rlpyt.agents import Td3Agent
from rlpyt.algos import TD3
from rlpyt.runners import AsyncRlEval
from rlpyt.samplers import CpuSampler

td3 = changed(
    ddpg,
    algo=dict(Cls=TD3, target_update_tau=0.005, target_update_interval=2, policy_update_interval=2),
    agent=dict(Cls=Td3Agent),
    sampler=dict(eval_n_envs=6),
)

CONFIGS: dict[str, Config] = {
    "td3_1M_serial": td3,
    "async_cpu": changed(td3, Cls=AsyncRlEval, sampler=dict(Cls=CpuSampler, batch_T=5, batch_B=3)),
}

RENAMED = {
    "td3_serial_bstl": Renamed("td3_1M_serial", "every algorithm bootstraps where a time limit cut the episode"),
}
