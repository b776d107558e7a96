"""Observations that are read from a copy on a device: they are those in memory, whatever was written or loaded.

The device is the CPU here; `tests/gpu` has others.
"""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.replays import RowStorage, SamplesToBuffer, observations
from rlpyt.runners import AsyncRl
from rlpyt.utils.arrays import buffer_leaves
from tests.replays.replay_kit import STARTS, make_run, saved_and_loaded
from tests.runners.runner_kit import make_sampler

CPU = torch.device("cpu")
Both = namedarraytuple("Both", ["number", "image"])
T, B = 10, 2


def rows_and_frames(kind: str) -> tuple[SamplesToBuffer, Any]:
    """Return rows, and n_frames."""
    n_frames = 1 if kind == "whole" else 3
    rows = make_run(3, B, 80, n_frames=n_frames, starts=STARTS).rows._replace(prev_rnn_state=None)
    if kind != "nested":
        return rows, n_frames
    return rows._replace(observation=Both(rows.reward, rows.observation)), (1, 3)


def storage_of(rows: SamplesToBuffer, n_frames: Any, device: torch.device | None = CPU) -> RowStorage:
    return RowStorage(rows[0, 0], T, B, n_frames, device=device)


def check(storage: RowStorage, rows: SamplesToBuffer, written: int) -> None:
    """Compare all rows that may be read, with nothing left of them in memory."""
    T_idxs = np.arange(max(written - T, 0) + storage.rows_before, written)
    for keeper in buffer_leaves(storage._observations):
        keeper.flat[:] = 0
    read = storage.observation(T_idxs[:, None] % T, np.arange(B))
    for leaf, expected in zip(buffer_leaves(read), buffer_leaves(rows.observation[T_idxs]), strict=True):
        assert isinstance(leaf, torch.Tensor)
        assert leaf.numpy().dtype == expected.dtype
        np.testing.assert_array_equal(leaf.numpy(), expected)


@pytest.mark.parametrize("kind", ["whole", "frames", "nested"])
@pytest.mark.parametrize("pieces", [(1,) * 27, (7, 7, 7), (10, 10, 3), (4, 41, 1), (33,)])
def test_what_is_read_is_what_was_written(kind, pieces):
    rows, n_frames = rows_and_frames(kind)
    storage, written = storage_of(rows, n_frames), 0
    for n in pieces:
        storage.write(rows[written : written + n])
        written += n
    check(storage, rows, written)


@pytest.mark.parametrize("kind", ["whole", "frames", "nested"])
@pytest.mark.parametrize("written", [4, 25])
@pytest.mark.parametrize("load_bytes", [1, 100, 1 << 20])
def test_what_was_loaded_is_read_too(kind, written, load_bytes, monkeypatch):
    monkeypatch.setattr(observations, "_LOAD_BYTES", load_bytes)
    rows, n_frames = rows_and_frames(kind)
    saved, storage = storage_of(rows, n_frames, device=None), storage_of(rows, n_frames)
    saved.write(rows[:written])
    storage.write(rows[50:57])
    storage.load_state_dict(saved_and_loaded(saved)[0])  # type: ignore[arg-type]
    storage.write(rows[written : written + 3])
    state = saved_and_loaded(storage)[0]  # type: ignore[arg-type]
    check(storage, rows, written + 3)
    other = storage_of(rows, n_frames, device=None)
    other.load_state_dict(state)
    other.write(rows[written + 3 : written + 5])
    T_idxs = np.arange(max(written + 5 - T, 0) + other.rows_before, written + 5)
    read = other.observation(T_idxs[:, None] % T, np.arange(B))
    for leaf, expected in zip(buffer_leaves(read), buffer_leaves(rows.observation[T_idxs]), strict=True):
        np.testing.assert_array_equal(leaf, expected)


@pytest.mark.parametrize("copy_of", [deepcopy, lambda storage: pickle.loads(pickle.dumps(storage))])
@pytest.mark.parametrize("kind", ["whole", "frames", "nested"])
def test_what_a_copy_has_on_the_device_comes_from_memory(kind, copy_of):
    """A copy on the device would be made in the stream of the updates, which appending does not wait for."""
    rows, n_frames = rows_and_frames(kind)
    storage = storage_of(rows, n_frames)
    storage.write(rows[:13])
    for of_device in buffer_leaves(storage._copies):
        of_device._on_device.zero_()
    copy = copy_of(storage)
    plain = storage_of(rows, n_frames, device=None)
    assert len(pickle.dumps(storage)) < len(pickle.dumps(plain)) + 500
    check(copy, rows, 13)


def test_rows_that_are_no_stacks_are_refused_and_nothing_changes():
    rows, n_frames = rows_and_frames("frames")
    storage = storage_of(rows, n_frames)
    storage.write(rows[:T])
    wrong = rows[T : T + 3]
    wrong.observation[1, 0, 0] += 1
    with pytest.raises(ValueError, match="is no stack of 3 frames"):
        storage.write(wrong)
    check(storage, rows, T)


def test_a_replay_to_which_another_process_appends_is_refused():
    algo = DQN(batch_size=8, min_steps_learn=64, replay_size=200, replay_ratio=1.0, replay_on_device=True)
    runner = AsyncRl(algo, DqnAgent(), make_sampler(), n_steps=200, lag="free")
    with pytest.raises(ValueError, match="replay_on_device is True, and another process appends"):
        runner.train()
