"""Replay buffers of three parts: a storage of rows, an index that draws start indexes, and a reading of batches."""

from rlpyt.replays.hindsight import GoalFunction, Hindsight, HindsightTransitions
from rlpyt.replays.index import Drawn, Index, UniformIndex
from rlpyt.replays.interface import SamplesToBuffer
from rlpyt.replays.mapped_file import mapped_file
from rlpyt.replays.minari import MinariDataset
from rlpyt.replays.mixed_replay import MixedReplay
from rlpyt.replays.observations import FrameArray, WholeArray
from rlpyt.replays.prioritized_index import PrioritizedIndex
from rlpyt.replays.reading import (
    RawRows,
    Reading,
    ReplayBatch,
    SamplesFromReplay,
    Sequences,
    SequencesFromReplay,
    Transitions,
    n_step_of_rows,
)
from rlpyt.replays.record_episodes import RecordEpisodes
from rlpyt.replays.replay_buffer import ReplayBuffer
from rlpyt.replays.storage import RowStorage, Storage
from rlpyt.replays.stored_data import Episode, StoredData
from rlpyt.replays.sum_tree import SumTree
from rlpyt.types import Places

__all__ = [
    "Drawn",
    "Episode",
    "FrameArray",
    "GoalFunction",
    "Hindsight",
    "HindsightTransitions",
    "Index",
    "MinariDataset",
    "MixedReplay",
    "Places",
    "PrioritizedIndex",
    "RawRows",
    "Reading",
    "RecordEpisodes",
    "ReplayBatch",
    "ReplayBuffer",
    "RowStorage",
    "SamplesFromReplay",
    "SamplesToBuffer",
    "Sequences",
    "SequencesFromReplay",
    "Storage",
    "StoredData",
    "SumTree",
    "Transitions",
    "UniformIndex",
    "WholeArray",
    "mapped_file",
    "n_step_of_rows",
]
