from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.replays import Drawn, Index, Places, PrioritizedIndex, SumTree, UniformIndex
from rlpyt.utils.arrays import buffer_from_example
from tests.replays.replay_kit import assert_frequencies


def over(IndexCls: type, valid: np.ndarray | None, first: int, end: int, seed: int = 0, **kwargs: Any) -> Any:
    """An index over a ring like `valid`, or of 4 x 1 places."""
    index = IndexCls(np.random.default_rng(seed), **kwargs)
    index.initialize(*((4, 1) if valid is None else valid.shape), valid, buffer_from_example)
    index.move(first, end, None)
    return index


def places_of(drawn: Drawn) -> Places:
    return Places(drawn.places, drawn.B_idxs)


def leaves_of(index: PrioritizedIndex) -> np.ndarray:
    """Return priority ** alpha of all places, in the order of the ring."""
    return index._tree.values.copy()


def reach(valid: np.ndarray, first: int, end: int) -> list[tuple[int, int]]:
    S, B = valid.shape
    return [(p % S, b) for p in range(first, end) for b in range(B) if valid[p % S, b]]


@pytest.mark.parametrize("IndexCls", [UniformIndex, PrioritizedIndex])
@pytest.mark.parametrize("share_valid", [1.0, 0.5, 0.02])
def test_draws_all_valid_places_in_reach_equally_often_and_no_other(IndexCls, share_valid):
    valid = np.random.default_rng(3).random((50, 4)) < share_valid
    valid[48, 2] = True
    places = reach(valid, 40, 70)
    drawn = over(IndexCls, valid, 40, 70).draw(400 * len(places))
    counts = np.zeros(valid.shape)
    np.add.at(counts, (drawn.places % 50, drawn.B_idxs), 1)
    assert counts.sum() == sum(counts[place] for place in places)
    assert_frequencies(np.array([counts[place] for place in places]), np.full(len(places), 1 / len(places)))


@pytest.mark.parametrize("IndexCls", [UniformIndex, PrioritizedIndex])
def test_no_valid_place(IndexCls):
    valid = np.ones((10, 3), bool)
    valid[2:6] = False
    with pytest.raises(RuntimeError, match=r"got 12 places in reach, none of them valid; expected at least one"):
        over(IndexCls, valid, 2, 6).draw(32)


def test_batch_size_below_one():
    with pytest.raises(ValueError, match="got batch_size=0; expected at least 1"):
        over(UniformIndex, np.ones((10, 3), bool), 0, 10).draw(0)


# ---- of one's own ----


class OwnIndex(Index):
    """Draws whatever it is told to."""

    places: Any = ()

    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return self.rng.choice(self.places, size), self.rng.integers(self.B, size=size)


@pytest.mark.parametrize("places", [range(40, 70), [41, 42]])
def test_an_own_index_never_gives_a_place_where_nothing_may_begin(places):
    """Though it does not look: they are drawn again, and where it gives no others evenly among all."""
    valid = np.random.default_rng(0).random((50, 2)) < 0.2
    valid[[41, 42]] = False
    index = over(OwnIndex, valid, 40, 70)
    index.places = places
    drawn = index.draw(2000)
    assert {*zip(drawn.places % 50, drawn.B_idxs, strict=True)} == set(reach(valid, 40, 70))
    assert drawn.is_weights is None


def among(places: Any, B_idxs: Any = (0,)) -> Any:
    """Return what draws among these places and environments, whatever is there."""
    return lambda self, size: (np.resize(places, size), np.resize(B_idxs, size))


@pytest.mark.parametrize(
    ("draw", "error", "said"),
    [
        (among([39, 50]), ValueError, r"gave 4 places .*expected 4 .* from 40 to 69"),
        (among([50, 70]), ValueError, r"gave 4 places .*expected 4 .* from 40 to 69"),
        (among([1_500_000_000]), ValueError, r"gave 4 places .*expected 4 .* from 40 to 69"),
        (among([40], [0, -1]), ValueError, "gave 4 environments from .*; expected 4 from 0 to 1"),
        (among([40], [0, 2]), ValueError, "gave 4 environments from .*; expected 4 from 0 to 1"),
        (lambda self, size: np.full(size, 40), TypeError, "gave an array int64 .*; expected a pair of arrays"),
        (
            among([40.5]),
            TypeError,
            r"gave a tuple of 2: an array float64 \[4\], an array int64 \[4\]; expected .* astype\(np.int64\)",
        ),
    ],
)
def test_what_an_own_index_draws_is_checked(draw: Any, error: Any, said: str):
    index = over(type("Own", (Index,), {"draw_places": draw}), np.ones((50, 2), bool), 40, 70)
    with pytest.raises(error, match=rf"Own.draw_places\(4\) {said}"):
        index.draw(4)


def test_weights_of_an_own_index_are_one_for_every_place():
    weigh = {"weigh": lambda self, places, B_idxs: np.ones(3, np.float32)}
    with pytest.raises(ValueError, match=r"Own.weigh gave weights \[3\]; expected \[8\], one for every place"):
        over(type("Own", (UniformIndex,), weigh), None, 0, 3).draw(8)


@pytest.mark.parametrize("name", ["draw", "may_begin", "update_priorities"])
def test_what_the_base_checks_cannot_be_overridden(name):
    with pytest.raises(TypeError, match=rf"Own.{name}: the base checks there .* Define "):
        type("Own", (UniformIndex,), {name: lambda self, *args: None})


def test_an_index_that_takes_priorities_defines_where_they_go():
    index = over(type("Own", (UniformIndex,), {"takes_priorities": True}), None, 0, 3)
    with pytest.raises(NotImplementedError, match="Own has takes_priorities=True and no set_priorities"):
        index.update_priorities(Places(np.zeros(1, np.int64), np.zeros(1, np.int64)), np.ones(1))


class InOrder(Index):
    """Gives views of an array that it keeps."""

    kept = np.arange(10)

    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return self.kept[:size], np.zeros(size, np.int64)


def test_the_arrays_of_an_own_index_stay_as_they_are():
    drawn = over(InOrder, np.array([[True], [False]] * 5), 0, 10).draw(10)
    assert not (drawn.places % 2).any()
    assert InOrder.kept.tolist() == list(range(10))
    assert not np.shares_memory(drawn.places, InOrder.kept)


# ---- prioritised ----


def with_priorities(priorities: list[float], **kwargs: Any) -> PrioritizedIndex:
    index = PrioritizedIndex(np.random.default_rng(1), **kwargs)
    index.initialize(len(priorities), 1, None, buffer_from_example)
    index.move(0, len(priorities), np.array(priorities)[:, None])
    return index


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_places_come_in_proportion_to_priority_to_the_alpha(alpha):
    priorities = [0.1, 2.0, 0.5, 0.5, 3.0, 0.9, 1.1]
    drawn = with_priorities(priorities, alpha=alpha).draw(20_000)
    odds = np.array(priorities) ** alpha
    assert_frequencies(np.bincount(drawn.places), odds / odds.sum())


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_are_those_of_the_paper(beta):
    priorities = np.array([0.1, 2.0, 0.5, 0.5, 3.0, 0.9, 1.1])
    index = with_priorities(priorities.tolist(), alpha=0.7, beta=0.5)
    index.beta = beta
    drawn = index.draw(5)
    P = priorities**0.7 / (priorities**0.7).sum()
    weights = (len(P) * P[drawn.places]) ** -beta
    assert drawn.is_weights is not None
    assert drawn.is_weights.dtype == np.float32
    np.testing.assert_allclose(drawn.is_weights, weights / weights.max(), rtol=1e-6)


def test_unique_draws_follow_the_odds_of_drawing_one_after_the_other():
    priorities = np.array([8.0, 1.0, 2.0, 4.0])
    index = with_priorities(priorities.tolist(), alpha=1.0, unique=True)
    p = priorities / priorities.sum()
    counts = np.zeros((4, 4))
    for _ in range(4000):
        i, j = index.draw(2).places
        counts[i, j] += 1
    exact = p[:, None] * p / (1 - p[:, None])
    others = ~np.eye(4, dtype=bool)
    assert counts[~others].sum() == 0
    assert_frequencies(counts[others], exact[others])


def test_unique_draws_take_all_there_are_and_refuse_more():
    index = with_priorities([1e-6, 5.0, 1e9, 0.2], alpha=1.0, unique=True)
    before = leaves_of(index)
    assert sorted(index.draw(4).places) == [0, 1, 2, 3]
    assert (leaves_of(index) == before).all()
    with pytest.raises(RuntimeError, match=r"4 of them to draw; expected at least batch_size=5"):
        index.draw(5)
    assert (leaves_of(index) == before).all()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    S=st.integers(1, 12),
    B=st.integers(1, 3),
    default=st.sampled_from([None, 0.5]),
    given_ones=st.booleans(),
    masked=st.booleans(),
    unique=st.booleans(),
)
def test_priorities_are_those_of_a_list(seed, S, B, default, given_ones, masked, unique):
    rng = np.random.default_rng(seed)
    index = PrioritizedIndex(rng, alpha=0.5, default_priority=default, unique=unique)
    valid = np.ones((S, B), bool)
    index.initialize(S, B, valid, buffer_from_example)
    reference: dict[tuple[int, int], float] = {}
    largest, first, end, dropped = 1.0, 0, 0, 0
    for _ in range(12):
        drawn = None
        if any(reference.values()):
            drawn = index.draw(min(5, sum(p > 0 for p in reference.values())) if unique else 5)
            places = [*zip(drawn.places.tolist(), drawn.B_idxs.tolist(), strict=True)]
            p = np.array([reference[place] for place in places]) ** 0.5
            assert p.min() > 0
            assert not unique or len(set(places)) == len(places)
            np.testing.assert_allclose(np.asarray(drawn.is_weights), (p.min() / p) ** 0.4, rtol=1e-6)
        # Up to one and a half rings at once, so that what was drawn may be out of reach, and its leaf another's.
        new_end = end + int(rng.integers(3 * S // 2 + 2))
        new_first = max(first, new_end - int(rng.integers(S + 1)))
        if masked:
            for place in range(max(end, new_first), new_end):
                valid[place % S] = rng.random(B) < 0.7
        fresh = rng.exponential(size=(new_end - end, B)) * (rng.random((new_end - end, B)) < 0.9)
        index.move(new_first, new_end, fresh[max(0, new_first - end) :] if given_ones else None)
        for place in range(end, new_end):
            for b in range(B):
                priority = fresh[place - end, b] if given_ones else default or largest
                reference[place, b] = max(priority, 1e-6) * valid[place % S, b]
        first, end = new_first, max(new_first, new_end)
        reference = {key: p for key, p in reference.items() if key[0] >= first}
        if drawn is not None:
            new = rng.exponential(size=len(places))
            index.update_priorities(places_of(drawn), new)
            kept = {place: p for place, p in zip(places, new, strict=True) if place in reference}
            dropped += sum(place not in reference for place in places)
            largest = max(largest, *(p for place, p in zip(places, new, strict=True) if place in reference), 0.0)
            reference |= kept
        assert index.n_priorities_dropped == dropped
        leaves = np.zeros((S, B))
        for (place, b), priority in reference.items():
            leaves[place % S, b] = priority**0.5
        np.testing.assert_allclose(leaves_of(index).reshape(S, B), leaves, rtol=1e-12)


def test_a_priority_whose_row_was_overwritten_is_dropped_and_counted():
    index = with_priorities([1.0] * 6, alpha=1.0)
    index.move(2, 8, np.full((2, 1), 3.0))  # 6 and 7 lie where 0 and 1 were
    index.update_priorities(Places(np.array([0, 1, 2, 7, 8, -1]), np.zeros(6, np.int64)), np.full(6, 5.0))
    assert leaves_of(index).tolist() == [3, 5, 5, 1, 1, 1]
    assert index.n_priorities_dropped == 4
    index.update_priorities(Places(np.array([0]), np.array([0])), np.array([9.0]))
    assert index.n_priorities_dropped == 5
    index.move(3, 9, None)
    assert leaves_of(index)[2] == 5, "the largest priority is one that was not dropped"
    other = with_priorities([1.0] * 6, alpha=1.0)
    other.set_range(3, 9)
    other.load_state_dict(index.state_dict())
    assert other.n_priorities_dropped == 5


@pytest.mark.parametrize(("old", "new"), [(0.6, 0.3), (1.0, 0.0), (0.0, 0.7), (0.5, 1.5)])
def test_another_alpha_counts_for_priorities_that_were_set_before(old, new):
    rng = np.random.default_rng(0)
    valid = rng.random((300, 7)) < 0.8
    changed, index = (PrioritizedIndex(np.random.default_rng(1), alpha=alpha) for alpha in (old, new))
    for each in (changed, index):
        each.initialize(300, 7, valid, buffer_from_example)
    for step in range(5):
        fresh = rng.exponential(size=(100, 7))
        changed.move(max(0, 100 * step - 200), 100 * step + 100, fresh)
        index.move(changed.first, changed.end, fresh)
        drawn = places_of(changed.draw(40))  # of both: they draw by different odds
        for each in (changed, index):
            each.update_priorities(drawn, np.arange(40) / 10)
    index.rng.bit_generator.state = changed.rng.bit_generator.state
    changed.alpha = new
    np.testing.assert_allclose(leaves_of(changed), leaves_of(index), rtol=1e-12)
    assert (leaves_of(changed) == 0).sum() == (~valid).sum()
    for a, b in zip(changed.draw(64), index.draw(64), strict=True):
        np.testing.assert_array_equal(a, b)
    loaded = PrioritizedIndex(np.random.default_rng(5), alpha=old)
    loaded.initialize(300, 7, valid, buffer_from_example)
    loaded.set_range(changed.first, changed.end)
    loaded.load_state_dict(changed.state_dict())
    assert (loaded.alpha, loaded.settings()) == (new, changed.settings())
    assert (leaves_of(loaded) == leaves_of(changed)).all()


def test_alpha_out_of_range_is_refused_at_any_time():
    index = with_priorities([1, 2, 3])
    for alpha in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"Setting alpha of a prioritised replay: got {alpha}; expected"):
            index.alpha = alpha
    assert index.alpha == 0.6


@pytest.mark.parametrize(
    ("priorities", "message"),
    [
        ([1.0, -0.5, 2.0], r"got \[-0.5\]; expected \(3,\) finite numbers from 0"),
        ([np.nan, 1.0, np.inf], r"got \[nan, inf\]; expected"),
        ([1.0, 1.0], r"got the shape \(2,\); expected \(3,\)"),
        ([[1.0], [1.0], [1.0]], r"got the shape \(3, 1\); expected \(3,\)"),
    ],
)
def test_priorities_that_are_none_are_refused_and_nothing_changes(priorities, message):
    index = with_priorities([1, 2, 3])
    places = places_of(index.draw(3))
    before = leaves_of(index)
    with pytest.raises(ValueError, match=message):
        index.update_priorities(places, np.array(priorities))
    assert (leaves_of(index) == before).all()
    index.update_priorities(places, np.ones(3))


@pytest.mark.parametrize("priorities", [[0.0, 0.0], [0.0, 1e-5]])
def test_a_place_whose_error_is_exactly_zero_is_drawn_again(priorities):
    index = with_priorities([1.0, 1.0])
    index.update_priorities(Places(np.arange(2), np.zeros(2, np.int64)), np.array(priorities))
    assert set(index.draw(200).places) == {0, 1}


@pytest.mark.parametrize("kwargs", [{"alpha": -0.1}, {"beta": 1.5}, {"beta": float("nan")}, {"default_priority": 0.0}])
def test_settings_out_of_range(kwargs):
    (name, value), *_ = kwargs.items()
    with pytest.raises(ValueError, match=f"got .*{name}={value}.*expected alpha from 0, beta in"):
        PrioritizedIndex(np.random.default_rng(0), **kwargs)


# ---- sums ----


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 70))
def test_sum_tree_finds_what_a_running_sum_finds(seed, size):
    rng = np.random.default_rng(seed)
    tree, numbers = SumTree(size), np.zeros(size)
    for _ in range(4):
        idxs = rng.integers(size, size=int(rng.integers(40)))
        # Whole numbers, whose sums are exact; most of them 0, and the last of two for one index counts.
        values = rng.integers(0, 5, size=len(idxs)) * (rng.random(len(idxs)) < 0.5)
        tree.set(idxs, values)
        for i, value in zip(idxs, values, strict=True):
            numbers[i] = value
        assert tree.total == numbers.sum()
        np.testing.assert_array_equal(tree.values, numbers)
        mass = np.arange(2 * int(numbers.sum())) / 2
        found = tree.find(mass) if len(mass) else np.zeros(0, int)
        np.testing.assert_array_equal(found, np.searchsorted(np.cumsum(numbers), mass, side="right"))


@pytest.mark.parametrize("size", [1, 31, 33, 1024, 5000])
def test_all_numbers_of_a_sum_tree_may_be_set_at_once(size):
    values = np.random.default_rng(0).random(size)
    tree, reference = SumTree(size), SumTree(size)
    tree.set(np.arange(size), np.full(size, 7.0))
    tree.set_all(values)
    reference.set(np.arange(size), values)
    assert tree.total == reference.total
    mass = np.random.default_rng(1).random(100) * tree.total
    np.testing.assert_array_equal(tree.find(mass), reference.find(mass))


def test_mass_that_rounding_carries_to_the_end_finds_no_zero():
    tree = SumTree(8)
    tree.set(np.arange(5), np.full(5, 0.1))
    assert tree.find(np.array([tree.total, np.nextafter(tree.total, 1)])).tolist() == [4, 4]
