from __future__ import annotations

import numpy as np
import pytest

from rlpyt.replays import UniformIndex


def reach(valid: np.ndarray, first: int, count: int) -> set[tuple[int, int]]:
    T, B = valid.shape
    return {((first + i) % T, b) for i in range(count) for b in range(B) if valid[(first + i) % T, b]}


@pytest.mark.parametrize("share_valid", [1.0, 0.5, 0.02])
def test_draws_all_valid_rows_in_reach_equally_often_and_no_other(share_valid):
    rng = np.random.default_rng(3)
    valid = rng.random((50, 4)) < share_valid
    valid[48, 2] = True
    rows = reach(valid, first=40, count=30)
    n = 400 * len(rows)
    drawn = UniformIndex(rng).draw(n, valid, first=40, count=30)
    counts = np.zeros(valid.shape)
    np.add.at(counts, drawn, 1)
    assert {(t, b) for t, b in np.argwhere(counts)} == rows
    chi_square = sum((counts[row] - 400) ** 2 / 400 for row in rows)
    degrees = len(rows) - 1
    assert abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees) + 1e-9


def test_finds_the_only_valid_row_of_many():
    valid = np.zeros((1000, 16), bool)
    valid[999, 15] = True
    T_idxs, B_idxs = UniformIndex(np.random.default_rng(0)).draw(32, valid, 500, 500)
    assert set(T_idxs) == {999}
    assert set(B_idxs) == {15}


def test_no_valid_row():
    valid = np.ones((10, 3), bool)
    valid[2:6] = False
    with pytest.raises(RuntimeError, match=r"got 12 rows in reach, none of them valid; expected at least one.*Append"):
        UniformIndex(np.random.default_rng(0)).draw(32, valid, 2, 4)


def test_batch_size_below_one():
    with pytest.raises(ValueError, match="got batch_size=0; expected at least 1"):
        UniformIndex(np.random.default_rng(0)).draw(0, np.ones((10, 3), bool), 0, 10)


def test_state_continues_the_stream():
    first, second = (UniformIndex(np.random.default_rng(seed)) for seed in (1, 2))
    valid = np.random.default_rng(0).random((20, 2)) < 0.5
    first.draw(7, valid, 3, 9)
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(first.draw(64, valid, 3, 9), second.draw(64, valid, 3, 9))
