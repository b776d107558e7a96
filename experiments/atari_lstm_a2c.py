"""A2C on Atari with a recurrent network, of one frame or four."""

from __future__ import annotations

from experiments.atari_ff_a2c import a2c
from experiments.configuration import Config, Renamed, changed
from rlpyt.agents import AtariLstmAgent

lstm = changed(a2c, agent=dict(Cls=AtariLstmAgent), sampler=dict(batch_T=20, env_kwargs=dict(num_img_obs=1)))

four_frames = changed(
    lstm,
    algo=dict(learning_rate=1e-4),
    sampler=dict(batch_T=5, batch_B=16, env_kwargs=dict(num_img_obs=4)),
)

CONFIGS: dict[str, Config] = {
    "0": lstm,
    "4frame": four_frames,
    # 7e-4 was the rate of atari_ff_a2c when this was written; that has been 3e-4 since.
    "like_ff": changed(four_frames, algo=dict(learning_rate=7e-4), sampler=dict(batch_B=32)),
}

RENAMED: dict[str, Renamed] = {}
