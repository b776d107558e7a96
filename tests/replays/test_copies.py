"""A copy of a replay goes on as the replay does, and shares nothing with it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.replays import (
    PrioritizedIndex,
    Reading,
    ReplayBuffer,
    RowStorage,
    Sequences,
    Storage,
    Transitions,
    UniformIndex,
)
from tests.replays.replay_kit import STARTS, assert_same_batches, make_run


class EverySecond(Transitions):
    """Reading of one's own that begins at every second row, as a view of the storage says."""

    interval = 2

    def may_begin(self, storage: Storage) -> np.ndarray:
        return storage.rows.valid[::2]


READINGS: dict[str, Callable[[], Reading]] = {
    "transitions": lambda: Transitions(2),
    "own": lambda: EverySecond(2),
    "sequences": lambda: Sequences(4, 2, 1, 2),
}


def pickled(replay: ReplayBuffer) -> Any:
    return pickle.loads(pickle.dumps(replay))


@pytest.mark.parametrize("copy_of", [deepcopy, pickled])
@pytest.mark.parametrize("device", [None, torch.device("cpu")])
@pytest.mark.parametrize("n_frames", [1, 3])
@pytest.mark.parametrize("index", ["uniform", "prioritised", "input"])
@pytest.mark.parametrize("reading", READINGS)
def test_a_copy_goes_on_as_the_replay_does(reading, index, n_frames, device, copy_of):
    rows = make_run(3, 2, 90, n_frames=n_frames, starts=STARTS).rows
    rng = np.random.default_rng(0)
    replay = ReplayBuffer(
        RowStorage(rows[0, 0], 40, 2, n_frames, 2 if reading == "sequences" else 0, device=device),
        UniformIndex(rng) if index == "uniform" else PrioritizedIndex(rng),
        READINGS[reading](),
        discount=0.9,
        input_priorities=index == "input",
    )

    def append(to: ReplayBuffer, first: int, end: int) -> None:
        to.append_samples(rows[first:end], np.ones((end - first, 2)) if index == "input" else None)

    append(replay, 0, 50)
    copy, rest = copy_of(replay), copy_of(replay)
    before = rest.sample_batch(32)
    rest = copy_of(replay)
    for t in range(50, 90, 10):
        a, b = replay.sample_batch(32), copy.sample_batch(32)
        assert_same_batches(a, b)
        for each in (replay, copy):
            if index != "uniform":
                each.update_priorities(a.places, torch.arange(32) / 7)
            append(each, t, t + 10)
    assert_same_batches(replay.sample_batch(32), copy.sample_batch(32))
    assert_same_batches(rest.sample_batch(32), before)
