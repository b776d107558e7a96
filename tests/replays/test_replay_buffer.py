from __future__ import annotations

import mmap
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.replays import (
    Places,
    PrioritizedIndex,
    ReplayBuffer,
    RowStorage,
    SamplesToBuffer,
    Transitions,
    mapped_file,
)
from rlpyt.utils.arrays import buffer_from_example, buffer_leaves, torchify_buffer
from tests.replays.replay_kit import (
    STARTS,
    action,
    assert_equal,
    assert_frequencies,
    assert_goes_on_alike,
    assert_same_batches,
    before,
    expected_transition,
    make_replay,
    make_run,
    observations,
    places_in_reach,
    saved_and_loaded,
)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    B=st.integers(1, 3),
    n=st.integers(1, 5),
    slack=st.integers(0, 20),
    chunks=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    nested=st.booleans(),
    padding=st.sampled_from([0, 0, 3]),
    as_torch=st.booleans(),
    n_frames=st.integers(1, 4),
    k=st.sampled_from([1, 3]),
    starts=st.sampled_from([("black",), ("repeat",), ("goes_on",), STARTS]),
    most=st.sampled_from([0, 2]),
)
def test_every_row_that_can_be_drawn_equals_the_episodes(
    seed, B, n, slack, chunks, discount, nested, padding, as_torch, n_frames, k, starts, most
):
    if padding and n_frames > 1:
        starts = starts if starts != STARTS and starts != ("goes_on",) else ("black", "repeat")
    n_rows, rows_before = sum(chunks), max(1, n_frames - 1)
    T = rows_before + 1 + n + slack
    run = make_run(seed, B, n_rows + 1, nested, k, padding=padding, n_frames=n_frames, starts=starts, most=most)
    counts = (n_frames, 1) if nested else n_frames
    replay = make_replay(run.rows, T, n, discount, seed, n_frames=counts)
    start = 0
    for t in chunks:
        chunk = run.rows[start : start + t]
        replay.append_samples(torchify_buffer(chunk) if as_torch else chunk)
        start += t
        assert replay.check_valid() == (True, "")
        assert len(replay) == min(start, T) * B

    places = places_in_reach(n_rows, T, rows_before, n)
    drawable = [run.lists[b][t] for t in places for b in range(B) if run.lists[b][t].i >= 0]
    if not drawable:
        with pytest.raises(RuntimeError, match="Append more samples"):
            replay.sample_batch(4)
        return
    T_idxs, B_idxs = np.array([(row.t % T, row.b) for row in drawable]).T
    batch = replay.extract_batch(T_idxs, B_idxs)
    check_transitions(batch, drawable, partial(observations, nested=nested, k=k), nested, n, discount)

    possible = Counter((row.step.action, row.step.reward) for row in drawable)
    drawn = replay.sample_batch(100)
    actions = (drawn.action.turn if nested else drawn.action).tolist()
    if n == 1:
        assert {*zip(actions, drawn.return_.tolist(), strict=True)} <= {(a, float(np.float32(r))) for a, r in possible}
    assert set(actions) <= {a for a, _ in possible}


def check_transitions(batch: Any, rows: list, observe: Any, nested: bool, n: int, discount: float) -> None:
    expected = [expected_transition(row, n, discount) for row in rows]
    inputs, target, M = batch.agent_inputs, batch.target_inputs, (len(rows),)
    assert_equal(inputs.observation, observe([row.step for row in rows], lead=M))
    assert_equal(inputs.prev_action, action([before(row).action for row in rows], nested))
    assert_equal(inputs.prev_reward, np.array([before(row).reward for row in rows], np.float32))
    assert_equal(batch.action, action([e["action"] for e in expected], nested))
    assert batch.return_.dtype == batch.bootstrap_discount.dtype == torch.float32
    np.testing.assert_allclose(batch.return_, [e["return_"] for e in expected], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch.bootstrap_discount, [e["bootstrap_discount"] for e in expected], rtol=1e-6)
    assert_equal(batch.terminated, np.array([e["terminated"] for e in expected]))
    assert_equal(target.observation, observe([e["target"] for e in expected], lead=M))
    assert_equal(target.prev_action, action([e["target_prev"].action for e in expected], nested))
    assert_equal(target.prev_reward, np.array([e["target_prev"].reward for e in expected], np.float32))
    assert batch.is_weights is None


@pytest.mark.parametrize("n_rows", [30, 40, 57])
def test_rows_that_can_be_drawn_come_equally_often_and_no_other(n_rows):
    T, B, n = 40, 2, 3
    run = make_run(5, B, n_rows)
    replay = make_replay(run.rows, T, n)
    replay.append_samples(run.rows)
    drawable = [(t, b) for t in places_in_reach(n_rows, T, 1, n) for b in range(B) if run.lists[b][t].i >= 0]
    # The image's first number is that of the observation, which no two rows share.
    numbers = {run.lists[b][t].step.number: i for i, (t, b) in enumerate(drawable)}
    counts = np.zeros(len(drawable))
    batch: Any = replay.sample_batch(500 * len(drawable))
    for drawn in batch.agent_inputs.observation[:, 0, 0, 0].tolist():
        counts[numbers[drawn]] += 1  # a KeyError is a row that may not be drawn
    assert_frequencies(counts, np.full(len(drawable), 1 / len(drawable)))


def hand_rows() -> SamplesToBuffer:
    """One environment: an episode of three steps that is truncated, its final row, and four steps of the next."""
    number = np.arange(8)[:, None]
    flag = np.zeros((8, 1), bool)
    truncated, valid = flag.copy(), ~flag
    truncated[2], valid[3] = True, False
    reward = np.array([1, 2, 4, 0, 8, 16, 32, 64], np.float32)[:, None]
    return SamplesToBuffer(number.astype(np.float32), number * valid, reward, flag, truncated, valid)


def test_hand_numbers():
    replay = make_replay(hand_rows(), T=10, n=2, discount=0.5)
    replay.append_samples(hand_rows())
    batch: Any = replay.extract_batch(np.array([1, 2, 4, 5]), np.zeros(4, np.int64))
    assert batch.return_.tolist() == [2 + 0.5 * 4, 4, 8 + 0.5 * 16, 16 + 0.5 * 32]
    assert batch.bootstrap_discount.tolist() == [0.25, 0.5, 0.25, 0.25]
    assert batch.terminated.tolist() == [False] * 4
    assert batch.target_inputs.observation.tolist() == [3, 3, 6, 7]
    assert batch.agent_inputs.prev_reward.tolist() == [1, 2, 0, 8]


def test_batch_is_a_copy():
    replay = make_replay(hand_rows(), T=10)
    replay.append_samples(hand_rows())
    idxs = np.arange(1, 7), np.zeros(6, np.int64)
    first = replay.extract_batch(*idxs)
    for leaf in buffer_leaves(replay.extract_batch(*idxs)):
        leaf.fill_(7)
    assert_same_batches(first, replay.extract_batch(*idxs))


@pytest.mark.parametrize("n_rows", [25, 40, 71])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("n_frames", [1, 3])
@pytest.mark.parametrize("prioritized", [False, True])
def test_saved_replay_continues_the_same_draws(n_rows, nested, n_frames, prioritized):
    run = make_run(2, 3, n_rows + 60, nested, n_frames=n_frames, starts=STARTS)
    replays = []
    for seed in (1, 2):
        index = PrioritizedIndex(np.random.default_rng(seed)) if prioritized else None
        counts = (n_frames, 1) if nested else n_frames
        replays.append(make_replay(run.rows, T=40, n=3, seed=seed, index=index, n_frames=counts))
    first, second = replays
    first.append_samples(run.rows[:n_rows])
    second.append_samples(run.rows[:7])  # what was there before is forgotten
    batch = first.sample_batch(5)
    if prioritized:
        first.update_priorities(batch.places, torch.tensor([0.5, 1, 2, 4, 8]))
    assert_goes_on_alike(first, second, run.rows[n_rows:])


def test_state_of_an_empty_replay_can_be_loaded():
    run = make_run(2, 1, 30, n_frames=4)
    first, second = (make_replay(run.rows, T=20, seed=seed, n_frames=4) for seed in (1, 2))
    second.append_samples(run.rows[:12])
    second.load_state_dict(saved_and_loaded(first)[0])
    assert len(second) == 0
    for replay in (first, second):
        replay.append_samples(run.rows)
    assert_same_batches(first.sample_batch(9), second.sample_batch(9))


def test_state_dict_holds_no_more_than_what_is_filled():
    rows = hand_rows()._replace(observation=np.zeros((8, 1, 1000), np.float32))
    replay = make_replay(rows, T=1000)
    replay.append_samples(rows)
    _, size = saved_and_loaded(replay)
    assert 8 * 4000 < size < 2 * 8 * 4000


def test_frames_are_kept_once():
    run = make_run(0, 2, 1, n_frames=4)
    whole, frames = make_replay(run.rows, T=50), make_replay(run.rows, T=50, n_frames=4)
    one_frame = 6 * 4
    assert whole.nbytes - frames.nbytes == 100 * (3 * one_frame - 1)


@pytest.mark.parametrize("where", ["private", "shared", "mapped"])
def test_rows_may_lie_in_private_shared_or_mapped_memory(where, tmp_path):
    allocate = {
        "private": buffer_from_example,
        "shared": partial(buffer_from_example, share_memory=True),
        "mapped": mapped_file(tmp_path),
    }[where]
    run = make_run(4, 2, 90, True, n_frames=3, starts=STARTS)
    usual, other = (
        make_replay(run.rows, T=40, n=2, n_frames=(3, 1), allocate=a) for a in (buffer_from_example, allocate)
    )
    for t in range(0, 90, 9):
        usual.append_samples(run.rows[t : t + 9])
        other.append_samples(run.rows[t : t + 9])
    assert_same_batches(usual.sample_batch(50), other.sample_batch(50))
    in_shared = [isinstance(_base(leaf), mmap.mmap) for leaf in buffer_leaves(other.storage.rows)]
    assert in_shared == [where != "private"] * len(in_shared)
    assert not list(tmp_path.iterdir())


def _base(array: Any) -> Any:
    return _base(array.base) if isinstance(array, np.ndarray) and array.base is not None else array


def test_sampling_before_there_is_enough():
    replay = make_replay(hand_rows(), T=10, n=3)
    with pytest.raises(RuntimeError, match=r"got 0 rows of each of 1 environments; expected at least 5.*Append more"):
        replay.sample_batch(4)
    replay.append_samples(hand_rows()[:4])
    with pytest.raises(RuntimeError, match="got 4 rows"):
        replay.sample_batch(4)
    replay.append_samples(hand_rows()[4:5])
    assert replay.sample_batch(2).action.tolist() == [1, 1]


def test_too_small():
    with pytest.raises(ValueError, match=r"room for 4 rows of each of 1 environments; expected at least 5.*to 5 or"):
        make_replay(hand_rows(), T=4, n=3)
    assert make_replay(hand_rows(), T=5, n=3).size == 5
    run = make_run(0, 2, 1, n_frames=4)
    with pytest.raises(ValueError, match=r"room for 4 rows of each of 2 environments; expected at least 5.*to 10 or"):
        make_replay(run.rows, T=4, n=1, n_frames=4)


@pytest.mark.parametrize("discount", [1.1, -0.1, float("nan")])
def test_discount_out_of_range(discount):
    with pytest.raises(ValueError, match=f"got discount={discount}; expected"):
        make_replay(hand_rows(), T=20, discount=discount)


def test_hyper_parameters_are_set_together_and_none_leaves_one():
    index = PrioritizedIndex(np.random.default_rng(0))
    replay = make_replay(hand_rows(), T=20, index=index)
    replay.set_hyper(discount=0.5, alpha=0.9, beta=0.8, eta=0.7)
    replay.set_hyper()
    assert (replay.discount, index.alpha, index.beta, replay.eta) == (0.5, 0.9, 0.8, 0.7)
    for wrong in (dict(discount=1.1), dict(alpha=-1.0), dict(beta=-0.1), dict(eta=float("nan"))):
        with pytest.raises(ValueError, match=r"Setting .* got .*; expected a number"):
            replay.set_hyper(**{"discount": 0.1, **wrong})
    assert (replay.discount, index.alpha, index.beta, replay.eta) == (0.5, 0.9, 0.8, 0.7)


def test_all_that_processes_must_share_is_made_by_allocate():
    """Rows, cursor, range in reach, counters, priorities and their tree: nothing of it is a Python number."""
    shared = partial(buffer_from_example, share_memory=True)
    rows = hand_rows()
    storage, index = RowStorage(rows[0, 0], 10, 1, allocate=shared), PrioritizedIndex(np.random.default_rng(0))
    replay = ReplayBuffer(storage, index, Transitions(1), discount=0.9, input_priorities=True, allocate=shared)
    before = {name: value for part in (storage, index, index._tree) for name, value in vars(part).items()}
    replay.append_samples(rows, np.ones((8, 1)))
    batch = replay.sample_batch(4)
    replay.append_samples(rows, np.ones((8, 1)))
    replay.update_priorities(batch.places, torch.full((4,), 3.0))
    after = {name: value for part in (storage, index, index._tree) for name, value in vars(part).items()}
    assert {name for name in after if after[name] is not before[name]} == set(), "arrays are written in place"
    arrays = [storage._written, index._counts, index._priorities, index._largest, *buffer_leaves(storage.rows)]
    arrays += [index._tree._leaves, index._tree._sums, index._tree._top, replay._td_abs_error]
    assert all(isinstance(_base(array), mmap.mmap) for array in arrays)
    assert index._counts.tolist()[:2] == [7, 15]
    assert storage._written[0] == 16


def test_no_step_at_all():
    with pytest.raises(ValueError, match="got n_step_return=0; expected at least 1"):
        make_replay(hand_rows(), T=20, n=0)


def test_uniform_replay_takes_no_priorities():
    replay = make_replay(hand_rows(), T=10)
    with pytest.raises(TypeError, match="draws with a UniformIndex; expected a PrioritizedIndex"):
        replay.update_priorities(Places(torch.tensor([1]), torch.tensor([0])), torch.ones(1))
    with pytest.raises(ValueError, match="input_priorities without a prioritised index"):
        ReplayBuffer(replay.storage, replay.index, replay.reading, discount=1, input_priorities=True)


def test_loading_from_another_replay():
    small, large = make_replay(hand_rows(), T=10), make_replay(hand_rows(), T=20)
    small.append_samples(hand_rows())
    with pytest.raises(ValueError, match=r"got T=10 .*; expected T=20 .*replay_size"):
        large.load_state_dict(small.state_dict())
    other = hand_rows()._replace(observation=np.zeros((8, 1, 3), np.float32))
    message = r"'observation.rows': \(\(8, 1\), 'float32'\).*\(\(8, 1, 3\), 'float32'\)"
    with pytest.raises(ValueError, match=message):
        make_replay(other, T=10).load_state_dict(small.state_dict())
