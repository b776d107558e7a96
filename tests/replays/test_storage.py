from __future__ import annotations

from itertools import pairwise
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.replays import RowStorage, SamplesToBuffer
from rlpyt.types import RingRows
from rlpyt.utils.arrays import torchify_buffer
from tests.replays.replay_kit import RnnState, make_rows

Observation = namedarraytuple("Observation", ["image", "vector"])


@settings(max_examples=100)
@given(T=st.integers(1, 12), B=st.integers(1, 3), chunks=st.lists(st.integers(0, 30), max_size=6))
def test_ring_holds_the_newest_steps(T, B, chunks):
    storage = RowStorage(make_rows(np.zeros(1, int), B)[0, 0], T, B)
    written: list[int] = []
    for t in chunks:
        numbers = np.arange(len(written), len(written) + t)
        storage.write(make_rows(numbers, B))
        written += numbers.tolist()
        assert storage.held == min(len(written), T)
        order = (storage.oldest + np.arange(storage.held)) % T
        expected = make_rows(np.array(written[-T:], int), B)
        for name, field in storage.rows.items():
            if field is not None:
                np.testing.assert_array_equal(field[order], expected[name])
        observation = storage.observation(order[:, None], np.arange(B))
        np.testing.assert_array_equal(observation, expected.observation)


def test_recurrent_state_is_kept_at_every_interval_round_the_end():
    T = 6
    rows = make_rows(np.arange(20), 2)
    rows = rows._replace(prev_rnn_state=RnnState(rows.reward[..., None, None], -rows.reward[..., None, None]))
    storage = RowStorage(rows[0, 0], T, 2, rnn_state_interval=3)
    for start, end in pairwise((0, 4, 5, 6, 13, 20)):
        storage.write(rows[start:end])
    state = storage.rnn_state(np.array([[0], [3]]), np.arange(2))  # steps 18 and 15
    assert state.h[..., 0, 0].tolist() == [[180, 181], [150, 151]]
    assert state.c[..., 0, 0].tolist() == [[-180, -181], [-150, -151]]


def test_size_no_multiple_of_the_interval():
    with pytest.raises(ValueError, match=r"T=8 time steps and rnn_state_interval=3; expected a multiple.*such as 9"):
        RowStorage(make_rows(np.zeros(1, int), 2)[0, 0], 8, 2, rnn_state_interval=3)


def test_agent_inputs_take_the_row_before_round_the_end():
    storage = RowStorage(make_rows(np.zeros(1, int), 2)[0, 0], 4, 2)
    storage.write(make_rows(np.arange(6), 2))  # time index 0 holds step 4, and 3 holds step 3
    inputs = storage.agent_inputs(np.array([0, 3]), np.array([1, 0]))
    assert inputs.observation.tolist() == [[41], [30]]
    assert inputs.prev_action.tolist() == [31, 20]
    assert inputs.prev_reward.tolist() == [31, 20]


def bad_rows() -> dict[str, tuple[SamplesToBuffer, str]]:
    rows = make_rows(np.arange(5), 2)
    nested = rows._replace(observation=Observation(rows.observation, rows.observation))
    return {
        "other B": (make_rows(np.arange(5), 3), r"of 2 environments: got .*'reward': \(5, 3\).*'reward': \('T', 2\)"),
        "B of one": (rows[:, :1], r"'reward': \(5, 1\)"),
        "no T": (rows[0], r"'reward': \(2,\)"),
        "no dims": (rows[0, 0], r"'reward': \(\)"),
        "other observation": (
            rows._replace(observation=np.zeros((5, 2, 7))),
            r"'observation': \(5, 2, 7\).*'observation': \('T', 2, 1\)",
        ),
        "unequal T": (rows._replace(action=rows.action[:4]), r"'action': \(4, 2\)"),
        "other fields": (nested, r"'observation.image': \(5, 2, 1\), 'observation.vector'"),
        "missing field": (rows._replace(valid=None), r"'truncated': \(5, 2\)}; expected .*'valid'"),
    }


@pytest.mark.parametrize("case", bad_rows())
@pytest.mark.parametrize("as_torch", [False, True])
def test_rows_unlike_the_example_are_refused_and_nothing_is_written(case, as_torch):
    rows, message = bad_rows()[case]
    storage = RowStorage(make_rows(np.zeros(1, int), 2)[0, 0], 8, 2)
    with pytest.raises(ValueError, match=message):
        storage.write(torchify_buffer(rows) if as_torch else rows)
    assert storage.held == 0
    assert not storage.observation(np.arange(8)[:, None], np.arange(2)).any()


def test_dtype_that_would_lose_what_it_is_is_refused():
    rows = make_rows(np.arange(5), 2)
    storage = RowStorage(rows[0, 0]._replace(observation=np.zeros(1, np.uint8)), 8, 2)
    with pytest.raises(TypeError, match="got observation of dtype float32; expected uint8"):
        storage.write(rows)
    storage.write(rows._replace(observation=rows.observation.astype(np.uint8), reward=rows.reward.astype(np.float64)))
    assert storage.rows.reward.dtype == np.float32


def test_flags_must_be_boolean():
    example = make_rows(np.zeros(1, int), 1)[0, 0]._replace(truncated=np.float32(0))
    with pytest.raises(TypeError, match=r"example: got truncated of dtype float32; expected bool"):
        RowStorage(example, 4, 1)


@pytest.mark.parametrize(("T", "B"), [(0, 1), (4, 0)])
def test_no_room_at_all(T, B):
    with pytest.raises(ValueError, match=f"T={T} time steps of B={B} environments; expected at least 1"):
        RowStorage(make_rows(np.zeros(1, int), 1)[0, 0], T, B)


def broken_storage() -> RowStorage:
    """Steps 2..7 in a ring of 6; step 5 ended an episode in environment 1, and step 6 holds its final observation."""
    rows = make_rows(np.arange(8), 2)
    rows = rows._replace(truncated=rows.truncated.copy())
    rows.truncated[5, 1], rows.valid[6, 1], rows.reward[6, 1] = True, False, 0
    storage = RowStorage(rows[0, 0], 6, 2)
    storage.write(torchify_buffer(rows))
    return storage


@pytest.mark.parametrize("as_torch", [False, True])
@pytest.mark.parametrize("T", [7, 3])
def test_a_loss_between_two_writes_truncates_the_row_before(T, as_torch):
    """Four environments go on, are lost, had ended (by termination), and had been lost in the row before as well."""
    storage = RowStorage(make_rows(np.zeros(1, int), 4)[0, 0], T, 4)
    first, second = make_rows(np.arange(3), 4), make_rows(np.arange(3, 5), 4)
    first = first._replace(terminated=first.terminated.copy())
    first.terminated[2, 2] = True
    first.valid[2, 3], first.reward[2, 3] = False, 0
    second.valid[0, 1:], second.reward[0, 1:] = False, 0
    storage.write(torchify_buffer(first) if as_torch else first)
    assert not storage.rows.truncated.any()  # the last row of a write says nothing of what follows
    storage.write(make_rows(np.zeros(0, int), 4))
    assert not storage.rows.truncated.any()
    storage.write(torchify_buffer(second) if as_torch else second)
    assert np.argwhere(storage.rows.truncated).tolist() == [[2, 1]]
    assert storage.check_valid() == (True, "")
    assert not first.truncated.any(), "the sampler's own rows were written to"
    storage.write(make_rows(np.arange(5, 7), 4))
    assert storage.rows.truncated.sum() == (T == 7)  # a ring of three has overwritten it
    assert storage.check_valid() == (True, "")


@pytest.mark.parametrize(
    ("field", "value", "row", "message"),
    [
        ("valid", True, (0, 1), "Row [0, 1] is valid, after a row that ended an episode."),
        ("terminated", True, (1, 1), "Row [1, 1] is not valid but ends an episode."),
        ("reward", 2.0, (0, 1), "Row [0, 1] is not valid but has a reward."),
        ("terminated", True, (0, 0), "Row [1, 0] is valid, after a row that ended an episode."),
        ("valid", False, (3, 0), "Row [3, 0] is not valid but has a reward."),
    ],
)
def test_check_valid_says_which_row_is_wrong(field, value, row, message):
    storage = broken_storage()
    assert storage.check_valid() == (True, "")
    storage.rows.valid[1, 1], storage.rows.reward[1, 1] = False, 0  # the newest row, so that nothing follows it
    storage.rows[field][row] = value
    assert storage.check_valid() == (False, message)


def test_check_valid_does_not_join_newest_and_oldest():
    storage = broken_storage()
    storage.rows.terminated[1, 0] = True  # the newest step; time index 2 holds the oldest
    assert storage.check_valid() == (True, "")


def test_rows_that_are_being_written_are_counted_as_written_now():
    """A checkpoint reads the ring beside the run: it must not take rows for whole that are half written over."""
    storage = RowStorage(make_rows(np.zeros(1, int), 1)[0, 0], 6, 1)
    storage.write(make_rows(np.arange(4), 1))
    state = storage.state_dict()
    assert cast(RingRows, state).now() == 4
    seen = []

    class Noting(type(storage.rows)):  # type: ignore[misc]
        def __setitem__(self, place, rows):
            seen.append(cast(RingRows, state).now())
            super().__setitem__(place, rows)

    storage.rows = Noting(*storage.rows)
    storage.write(make_rows(np.arange(3), 1))
    assert seen == [7]
    assert cast(RingRows, state).now() == 7
    storage.load_state_dict({**state, "written": 4})
    assert cast(RingRows, storage.state_dict()).now() == 4
