"""Progress of a worker: what one process notes by name, another reads."""

from __future__ import annotations

import pickle

import numpy as np

from rlpyt.utils.progress import Progress
from rlpyt.utils.shared_memory import dumps, shared_array


def test_nothing_is_noted_at_first():
    progress = Progress()
    assert (progress.env_rank, progress.step, progress.row, progress.episodes) == (0, 0, None, 0)
    assert not any(progress.numbers())


def test_numbers_are_noted_by_name_and_the_first_row_is_one():
    progress = Progress()
    progress.env_rank, progress.step, progress.row, progress.episodes = 3, 17, 0, 5
    assert (progress.env_rank, progress.step, progress.row, progress.episodes) == (3, 17, 0, 5)
    before = progress.numbers()
    progress.row = None
    assert progress.row is None
    assert progress.numbers() != before, "a watcher would see no change"
    progress.step += 1
    assert progress.step == 18


def test_a_copy_stands_still():
    progress = Progress()
    copy = progress.copy()
    progress.step = 4
    assert (copy.step, progress.step) == (0, 4)


def test_a_copy_in_another_process_is_the_same_memory():
    progress = Progress(shared_array(Progress.SIZE, np.int64))
    other = pickle.loads(dumps(progress))
    other.row = 7
    assert progress.row == 7
