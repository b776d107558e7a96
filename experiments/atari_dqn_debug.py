"""Variants of DQN on Atari that compare parts of the library: what a replay keeps."""

from __future__ import annotations

from experiments.atari_dqn import CONFIGS as ATARI_DQN
from experiments.atari_dqn import catdqn, dqn
from experiments.configuration import Config, Renamed, changed

CONFIGS: dict[str, Config] = {
    "dqn": dqn,
    "double_pri_duel": ATARI_DQN["double_pri_duel"],
    "catdqn": catdqn,
    # Less than atari_dqn's: neither double Q-learning nor priorities nor a dueling head.
    "ernbw": changed(catdqn, algo=dict(n_step_return=3, learning_rate=6.25e-5)),
    # It named the replay by a key that the algorithm did not know.
    "uniform_noframe": changed(dqn, algo=dict(frame_stack=1)),
}

RENAMED = {
    "reset_collector": Renamed("dqn", "an algorithm with a replay needs environments that go on inside a batch"),
    "monolithic_uniformframe": Renamed("dqn", "there is one replay buffer, and the settings choose its parts"),
}
