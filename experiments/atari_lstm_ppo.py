"""PPO on Atari with a recurrent network of one frame; its minibatches are whole sequences."""

from __future__ import annotations

from experiments.atari_ff_ppo import ppo
from experiments.configuration import Config, Renamed, changed
from rlpyt.agents import AtariLstmAgent

CONFIGS: dict[str, Config] = {
    "0": changed(ppo, agent=dict(Cls=AtariLstmAgent), sampler=dict(env_kwargs=dict(num_img_obs=1))),
}

RENAMED: dict[str, Renamed] = {}
