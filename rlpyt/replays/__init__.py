"""Replay buffers from parts: a storage of rows, an index that draws among them, and what is read of them."""

from rlpyt.replays.index import UniformIndex
from rlpyt.replays.replay_buffer import ReplayBuffer, SamplesFromReplay
from rlpyt.replays.storage import SamplesToBuffer, TransitionStorage

__all__ = ["ReplayBuffer", "SamplesFromReplay", "SamplesToBuffer", "TransitionStorage", "UniformIndex"]
