from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.functional import sequence_priority
from rlpyt.replays import PrioritizedIndex, ReplayBuffer, RowStorage, SamplesToBuffer, Sequences, UniformIndex
from tests.replays.replay_kit import (
    STARTS,
    Row,
    action,
    assert_equal,
    assert_frequencies,
    assert_goes_on_alike,
    before,
    expected_transition,
    make_run,
    observations,
    places_in_reach,
    rnn_state,
)


def make_replay(
    rows: SamplesToBuffer, reading: Sequences, T: int, discount: float = 0.9, seed: int = 0, index: Any = None,
    rnn_state_interval: int | None = None, n_frames: Any = 1, **kwargs: Any,
) -> ReplayBuffer:  # fmt: skip
    interval = reading.interval if rnn_state_interval is None else rnn_state_interval
    storage = RowStorage(rows[0, 0], T, rows.reward.shape[1], n_frames, interval)
    index = UniformIndex(np.random.default_rng(seed)) if index is None else index
    return ReplayBuffer(storage, index, reading, discount=discount, **kwargs)


def room_for(reading: Sequences, rows_before: int, slack: int) -> int:
    least = rows_before + reading.interval + reading.rows_after
    return (-(-least // reading.interval) + slack) * reading.interval


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    B=st.integers(1, 3),
    warmup_T=st.integers(0, 6),
    blocks=st.integers(1, 3),
    n=st.integers(1, 5),
    interval=st.sampled_from([0, 1, 2, 5]),
    slack=st.integers(0, 4),
    chunks=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    discount=st.sampled_from([0.5, 0.99]),
    nested=st.booleans(),
    padding=st.sampled_from([0, 2]),
    n_frames=st.integers(1, 4),
)
def test_every_sequence_that_can_be_drawn_equals_the_episodes(
    seed, B, warmup_T, blocks, n, interval, slack, chunks, discount, nested, padding, n_frames
):
    n_rows, rows_before = sum(chunks), max(1, n_frames - 1)
    reading = Sequences(blocks * max(1, interval), warmup_T, n, interval)
    T = room_for(reading, rows_before, slack)
    starts = ("black", "repeat") if padding and n_frames > 1 else STARTS
    run = make_run(seed, B, n_rows + 1, nested, padding=padding, n_frames=n_frames, starts=starts)
    counts = (n_frames, 1) if nested else n_frames
    replay = make_replay(run.rows, reading, T, discount, seed, rnn_state_interval=interval, n_frames=counts)
    written, full = 0, False
    for t in chunks:
        replay.append_samples(run.rows[written : written + t])
        written += t
        places = places_in_reach(written, T, rows_before, reading.rows_after, reading.interval)
        in_reach = range(replay.index.first, replay.index.end)
        assert [place * reading.interval for place in in_reach] == places
        full = full or bool(places)
        assert bool(places) == full, "once something could be drawn, something always can"
    if not places:
        with pytest.raises(RuntimeError, match=rf"got {min(written, T)} rows .*expected at least \d+.*Append more"):
            replay.sample_batch(4)
        return
    pairs = [(p, b) for p in places for b in range(B)]
    T_idxs, B_idxs = np.array(pairs).T
    batch = replay.extract_batch(T_idxs % T, B_idxs)
    check_sequences(batch, run.lists, pairs, reading, discount, nested, interval)
    drawn = replay.sample_batch(20)
    assert drawn.return_.shape == (len(reading.trained), 20)


def check_sequences(
    batch: Any, lists: list[list[Row]], pairs: list[tuple[int, int]], reading: Sequences, discount: float,
    nested: bool, interval: int,
) -> None:  # fmt: skip
    length, M = reading.length, len(pairs)
    table = [[lists[b][p + s] for p, b in pairs] for s in range(length)]
    everything = [row for rows in table for row in rows]
    steps = [row.step for row in everything]
    assert_equal(batch.all_inputs.observation, observations(steps, nested, 1, (length, M)))
    # What is given to the agent in rows of rest is of no account, but it is what was stored.
    previous = [[lists[b][p + s - 1].step for p, b in pairs] for s in range(length)]
    assert_equal(batch.all_inputs.prev_action, action([[s.action or 0 for s in row] for row in previous], nested))
    assert_equal(batch.all_inputs.prev_reward, np.array([[s.reward for s in row] for row in previous], np.float32))
    for row, stored in zip(everything, (s for rows in previous for s in rows), strict=True):
        if row.i >= -1:
            assert (before(row).action or 0, before(row).reward) == (stored.action or 0, stored.reward)
    starts = np.array([[row.i == 0 for row in rows] for rows in table])
    starts[0] = False
    assert_equal(batch.episode_start, starts)
    if interval:
        assert_equal(batch.init_rnn_state, rnn_state(table[0], (M,)))
    else:
        assert batch.init_rnn_state is None

    trained = table[reading.trained.start : reading.trained.stop]
    valid = np.array([[row.i >= 0 for row in rows] for rows in trained])
    assert_equal(batch.valid, valid)
    assert_equal(batch.action, action([[row.step.action or 0 for row in rows] for rows in trained], nested))
    expected = [
        expected_transition(row, reading.n_step_return, discount) for rows in trained for row in rows if row.i >= 0
    ]
    for name in ("return_", "bootstrap_discount"):
        assert batch[name].dtype == torch.float32
        np.testing.assert_allclose(batch[name].numpy()[valid], [e[name] for e in expected], rtol=1e-5, atol=1e-6)
    for name in ("terminated", "steps"):
        assert batch[name].numpy()[valid].tolist() == [e[name] for e in expected]
    # The bootstrap row of every row to train on lies within the sequence, and is the one that its steps led to.
    numbers = np.array([[row.step.number for row in rows] for rows in table])
    s, m = np.nonzero(valid)
    led_to = numbers[reading.trained.start + s + batch.steps.numpy()[valid], m]
    assert led_to.tolist() == [e["target"].number for e in expected]


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    B=st.integers(1, 3),
    warmup_T=st.integers(0, 4),
    n=st.integers(1, 5),
    interval=st.sampled_from([0, 1, 2, 5]),
    slack=st.integers(0, 4),
    chunks=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    as_torch=st.booleans(),
)
def test_input_priorities_are_those_of_the_rows_to_train_on(seed, B, warmup_T, n, interval, slack, chunks, as_torch):
    rng = np.random.default_rng(seed)
    reading = Sequences(2 * max(1, interval), warmup_T, n, interval)
    T, n_rows = room_for(reading, 1, slack), sum(chunks)
    run = make_run(seed, B, n_rows + 1, padding=2)
    errors = rng.exponential(size=(n_rows + 1, B)).astype(np.float32)
    errors[~run.rows.valid] = np.nan  # as the formula gives where nothing is defined
    index = PrioritizedIndex(rng, alpha=0.5)
    replay = make_replay(run.rows, reading, T, index=index, rnn_state_interval=interval, input_priorities=True, eta=0.7)
    written = 0
    for t in chunks:
        rows = np.arange(written - n, written - n + t)
        known = np.where((rows >= 0)[:, None], errors[np.maximum(rows, 0)], np.nan)
        replay.append_samples(run.rows[written : written + t], torch.from_numpy(known) if as_torch else known)
        written += t
    leaves = np.zeros((T // reading.interval, B))
    for p in places_in_reach(written, T, 1, reading.rows_after, reading.interval):
        trained = p + np.array(reading.trained)
        for b in range(B):
            own = errors[trained, b][run.rows.valid[trained, b]]
            priority = 0.7 * own.max() + 0.3 * own.mean() if len(own) else 0
            leaves[p // reading.interval % len(leaves), b] = max(priority, 1e-6) ** 0.5
            parts = torch.from_numpy(errors[trained]), torch.from_numpy(run.rows.valid[trained])
            assert abs(priority - sequence_priority(*parts, 0.7)[b].item()) < 1e-5
    np.testing.assert_allclose(index._tree.values.reshape(leaves.shape), leaves, rtol=1e-5)


def test_sequences_come_in_proportion_to_their_priorities():
    run = make_run(0, 2, 60)
    index = PrioritizedIndex(np.random.default_rng(0), alpha=1.0, beta=1.0)
    replay = make_replay(run.rows, Sequences(5, 5, 1, 5), 60, index=index)
    replay.append_samples(run.rows)
    number = {observation: i for i, observation in enumerate(run.rows.observation[..., 0, 0, 0].ravel().tolist())}
    given: dict[int, float] = {}
    for i in range(200):  # until every sequence has been given a priority
        batch: Any = replay.sample_batch(1)
        place = number[int(batch.all_inputs.observation[0, 0, 0, 0, 0])]
        given[place] = 0.5 + i % 7 / 7
        replay.update_priorities(batch.places, torch.tensor([given[place]]))
    assert len(given) == 2 * len(places_in_reach(60, 60, 1, 10, 5))
    batch = replay.sample_batch(10_000)
    places = [number[int(x)] for x in batch.all_inputs.observation[0, :, 0, 0, 0]]
    counts = np.array([places.count(place) for place in given])
    p = np.array([*given.values()])
    assert_frequencies(counts, p / p.sum())
    weights = np.array([given[place] for place in places]) ** -1.0
    assert batch.is_weights.dtype == torch.float32
    np.testing.assert_allclose(batch.is_weights, weights / weights.max(), rtol=1e-5)


@pytest.mark.parametrize("interval", [0, 5])
@pytest.mark.parametrize("prioritized", [False, True])
def test_saved_replay_goes_on_with_the_same_draws(interval, prioritized):
    run = make_run(3, 2, 140, True, n_frames=3, starts=STARTS)
    reading = Sequences(10, 4, 2, interval)
    replays = []
    for seed in (1, 2):
        index = PrioritizedIndex(np.random.default_rng(seed), unique=True) if prioritized else None
        replays.append(
            make_replay(run.rows, reading, 50, seed=seed, index=index, rnn_state_interval=interval, n_frames=(3, 1))
        )
    first, second = replays
    first.append_samples(run.rows[:83])
    second.append_samples(run.rows[5:70])
    if prioritized and interval:  # fewer places than draws that may not come twice
        first.index.unique = second.index.unique = False  # type: ignore[attr-defined]
    assert_goes_on_alike(first, second, run.rows[83:])


def test_saved_input_errors_go_on():
    run, errors = make_run(3, 2, 90), np.random.default_rng(0).random((90, 2))
    build = partial(make_replay, run.rows, Sequences(10, 4, 3, 5), 50, input_priorities=True)
    first, second = (build(index=PrioritizedIndex(np.random.default_rng(seed))) for seed in (1, 2))
    first.append_samples(run.rows[:33], errors[:33])
    second.load_state_dict(first.state_dict())
    for replay in (first, second):
        replay.append_samples(run.rows[33:60], errors[33:60])
    assert torch.equal(*(replay.index.state_dict()["priorities"] for replay in (first, second)))


@pytest.mark.parametrize(("batch_T", "interval"), [(10, 4), (3, 5)])
def test_batch_T_no_multiple_of_the_interval(batch_T, interval):
    with pytest.raises(ValueError, match=f"batch_T={batch_T} and rnn_state_interval={interval}; expected .*multiple"):
        Sequences(batch_T, 0, 1, interval)


@pytest.mark.parametrize("numbers", [(0, 0, 1, 0), (5, -1, 1, 0), (5, 0, 0, 0), (5, 0, 1, -5)])
def test_numbers_out_of_range(numbers):
    with pytest.raises(ValueError, match=r"got .*; expected at least"):
        Sequences(*numbers)


def test_replay_smaller_than_one_sequence():
    rows = make_run(0, 2, 1).rows
    reading = Sequences(10, 5, 3, 5)  # 18 rows, one before them, and up to 4 before the next stored state
    with pytest.raises(ValueError, match=r"room for 20 rows of each of 2 environments; expected at least 23.*to 46 or"):
        make_replay(rows, reading, 20)
    assert make_replay(rows, reading, 25).size == 50


def test_places_between_the_states_that_are_kept():
    rows = make_run(0, 2, 1).rows
    with pytest.raises(ValueError, match=r"places every 5 rows and recurrent states kept every 2"):
        make_replay(rows, Sequences(10, 0, 1, 5), 50, rnn_state_interval=2)
    with pytest.raises(ValueError, match=r"room for 52 rows of each environment and places every 5 rows"):
        make_replay(rows, Sequences(10, 0, 1, 5), 52, rnn_state_interval=0)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        (None, r"td_abs_error None; expected the samples' \(40, 2\)"),
        (np.ones((39, 2)), r"td_abs_error of shape \(39, 2\); expected the samples' \(40, 2\)"),
        (np.full((40, 2), -1.0), r"td_abs_error \[-1.0, .*\] in valid rows; expected finite numbers from 0"),
        (np.full((40, 2), np.nan), r"td_abs_error \[nan, .*\] in valid rows"),
    ],
)
def test_errors_that_are_none_are_refused(errors, message):
    rows = make_run(0, 2, 40).rows
    index = PrioritizedIndex(np.random.default_rng(0))
    replay = make_replay(rows, Sequences(10, 0, 1, 5), 50, index=index, input_priorities=True)
    with pytest.raises(ValueError, match=message):
        replay.append_samples(rows, errors)
