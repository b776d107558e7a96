"""Replay buffers from parts: a storage of rows, an index that draws among them, and what is read of them."""

from rlpyt.replays.index import Drawn, Index, PrioritizedIndex, UniformIndex
from rlpyt.replays.mapped_file import mapped_file
from rlpyt.replays.observations import FrameArray, WholeArray
from rlpyt.replays.reading import Reading, SamplesFromReplay, Sequences, SequencesFromReplay, Transitions
from rlpyt.replays.replay_buffer import ReplayBuffer
from rlpyt.replays.storage import RowStorage, SamplesToBuffer
from rlpyt.replays.sum_tree import SumTree

__all__ = [
    "Drawn",
    "FrameArray",
    "Index",
    "PrioritizedIndex",
    "Reading",
    "ReplayBuffer",
    "RowStorage",
    "SamplesFromReplay",
    "SamplesToBuffer",
    "Sequences",
    "SequencesFromReplay",
    "SumTree",
    "Transitions",
    "UniformIndex",
    "WholeArray",
    "mapped_file",
]
