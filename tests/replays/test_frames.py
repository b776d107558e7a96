from __future__ import annotations

import numpy as np
import pytest

from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.replays import RowStorage, SamplesToBuffer
from tests.replays.replay_kit import STARTS, make_run

Eyes = namedarraytuple("Eyes", ["number", "left", "right"])


def snapshot(storage: RowStorage) -> dict[str, np.ndarray]:
    return {name: array.numpy().copy() for name, array in storage.state_dict()["arrays"].items()}


def with_two_eyes(rows: SamplesToBuffer) -> SamplesToBuffer:
    """Rows whose stacks come twice, the second time with other colours, and after an array that is kept whole."""
    return rows._replace(observation=Eyes(rows.reward, rows.observation, 2 * rows.observation), prev_rnn_state=None)


@pytest.mark.parametrize("held", [0, 8, 30])
@pytest.mark.parametrize("wrong", ["one old frame", "two frames swapped", "a frame left out"])
def test_a_stack_that_is_none_is_refused_and_nothing_is_written(held, wrong):
    rows = with_two_eyes(make_run(3, 2, 50, n_frames=4, starts=STARTS).rows)
    storage = RowStorage(rows[0, 0], 20, 2, n_frames=(1, 4, 4))
    storage.write(rows[:held])
    before = snapshot(storage)
    more = rows[held : held + 12]
    bad = more._replace(observation=more.observation._replace(right=more.observation.right.copy()))
    stack = bad.observation.right[7, 1]
    match wrong:
        case "one old frame":
            stack[1, 0, 0] += 1
        case "two frames swapped":
            stack[[0, 1]] = stack[[1, 0]]
            stack[0] += 1  # so that they differ even where an episode has just begun
        case "a frame left out":
            stack[:3] = 1 + np.arange(18).reshape(3, 2, 3)
    with pytest.raises(ValueError, match=r"observation 7 rows into .* environment 1 is no stack of 4.*frame_stack=1"):
        storage.write(bad)
    assert storage.written == held
    for name, array in snapshot(storage).items():
        np.testing.assert_array_equal(array, before[name])
    storage.write(more)
    T_idxs = np.arange(held, held + 12)[max(0, 3 - held) :]
    read = storage.observation(T_idxs[:, None] % 20, np.arange(2))
    np.testing.assert_array_equal(read.right, rows.observation.right[T_idxs])


def test_colours_are_no_frames():
    rows = make_run(3, 1, 12, k=3).rows  # three colours, each unlike the others
    storage = RowStorage(rows[0, 0], 20, 1, n_frames=3)
    with pytest.raises(ValueError, match="Are these colours instead of frames"):
        storage.write(rows)


def test_a_stack_longer_than_the_ring_is_read_from_what_is_kept():
    run = make_run(3, 2, 60, n_frames=3, starts=STARTS)
    storage = RowStorage(run.rows[0, 0], 10, 2, n_frames=3)
    storage.write(run.rows[:7])
    storage.write(run.rows[7:48])  # four rings at once
    storage.write(run.rows[48:49])
    T_idxs = np.arange(49 - 10 + 2, 49)
    read = storage.observation(T_idxs[:, None] % 10, np.arange(2))
    np.testing.assert_array_equal(read, run.rows.observation[T_idxs])


@pytest.mark.parametrize(("n_frames", "shape"), [(3, (4, 2, 2)), (0, (4, 2, 2)), (2, ()), (129, (129, 1))])
def test_frames_that_do_not_fit_the_observation(n_frames, shape):
    example = make_run(0, 1, 1).rows[0, 0]._replace(observation=np.zeros(shape, np.uint8))
    with pytest.raises(ValueError, match=f"shape .* and n_frames={n_frames}; expected the first dimension"):
        RowStorage(example, 8, 1, n_frames=n_frames)


def test_a_count_for_every_field():
    rows = make_run(0, 1, 1, nested=True).rows
    with pytest.raises(ValueError, match=r"n_frames=\(1, 1, 1\) for an observation of 2 fields"):
        RowStorage(rows[0, 0], 8, 1, n_frames=(1, 1, 1))
