from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.replays import ReplayBuffer, SamplesToBuffer
from rlpyt.utils.arrays import buffer_leaves, torchify_buffer

Observation = namedarraytuple("Observation", ["image", "a.number"])
Action = namedarraytuple("Action", ["turn", "push"])


class Step(NamedTuple):
    """One step of the reference, or (with action None) the final observation of an episode."""

    number: int
    action: float | None = None
    reward: float = 0.0


class Episode(NamedTuple):
    steps: list[Step]
    terminated: bool
    truncated: bool
    padding: int
    """Rows after the final one that hold it again, as a sampler gives that waits with its resets."""


def make_env(rng: np.random.Generator, env: int, n_rows: int, padding: int) -> list[Episode]:
    """Make whole episodes with at least n_rows rows; observations are numbered, so that none comes twice."""
    episodes: list[Episode] = []
    number = 1000 * env
    while sum(len(e.steps) + e.padding for e in episodes) < n_rows:
        steps = []
        for _ in range(int(rng.integers(1, 8))):
            number += 1
            steps.append(Step(number, float(rng.integers(1, 100)), float(np.float32(rng.normal()))))
        number += 1
        ending = int(rng.integers(3))  # truncated, terminated, or both at once
        episodes.append(Episode([*steps, Step(number)], ending != 0, ending != 1, int(rng.integers(padding + 1))))
    return episodes


def observation(number: Any, nested: bool) -> Any:
    number = np.asarray(number)
    image = (number[..., None, None] + np.arange(6).reshape(2, 3)).astype(np.int16)
    return Observation(image, number.astype(np.float32)) if nested else image


def action(number: Any, nested: bool) -> Any:
    number = np.asarray(number, np.int64)
    return Action(number, np.stack([number, -number], -1).astype(np.float32)) if nested else number


def to_rows(envs: list[list[Episode]], n_rows: int, nested: bool) -> SamplesToBuffer:
    """Lay the episodes out as rows, [n_rows, B]."""
    columns = []
    for episodes in envs:
        column: list[tuple] = []
        for e in episodes:
            *steps, final = e.steps
            column += [(s.number, s.action, s.reward, False, False, True) for s in steps[:-1]]
            column += [(*steps[-1], e.terminated, e.truncated, True)]
            column += [(final.number, 0, 0.0, False, False, False)] * (1 + e.padding)
        columns.append(column[:n_rows])
    table = np.array(columns, np.float64).transpose(2, 1, 0)  # [field, T, B]
    number, reward, flags = table[0].astype(np.int64), table[2].astype(np.float32), table[3:].astype(bool)
    return SamplesToBuffer(observation(number, nested), action(table[1], nested), reward, *flags)


def expected_transition(episode: Episode, i: int, n: int, discount: float) -> dict[str, Any]:
    """Return the n-step transition that begins at step i of an episode, step by step."""
    *steps, final = episode.steps
    return_, k = 0.0, 0
    while k < n and i + k < len(steps):
        return_ += discount**k * steps[i + k].reward
        k += 1
    ended = i + k == len(steps)
    target = final if ended else steps[i + k]
    before = steps[i - 1] if i > 0 else Step(0, 0)
    return {
        "observation": steps[i].number,
        "prev": (before.action, before.reward),
        "action": steps[i].action,
        "return_": return_,
        "terminated": ended and episode.terminated,
        "bootstrap_discount": 0.0 if ended and episode.terminated else discount**k,
        "target_observation": target.number,
        "target_prev": (steps[i + k - 1].action, steps[i + k - 1].reward),
    }


def drawable(envs: list[list[Episode]], n_rows: int, T: int, n: int) -> dict[tuple[int, int], tuple[Episode, int]]:
    """Return, for each row (step since the start of the run, environment) that may be drawn, its episode and step."""
    places: dict[tuple[int, int], tuple[Episode, int]] = {}
    for b, episodes in enumerate(envs):
        start = 0
        for episode in episodes:
            places |= {(start + i, b): (episode, i) for i in range(len(episode.steps) - 1)}
            start += len(episode.steps) + episode.padding
    oldest = max(n_rows - T, 0)
    return {(t, b): place for (t, b), place in places.items() if oldest < t < n_rows - n}


def make_replay(example: SamplesToBuffer, T: int, n: int = 1, discount: float = 0.9, seed: int = 0) -> ReplayBuffer:
    B = example.reward.shape[1]
    rng = np.random.default_rng(seed)
    return ReplayBuffer.uniform(example[0, 0], size=T * B, B=B, n_step_return=n, discount=discount, rng=rng)


def assert_equal(actual: Any, expected: Any) -> None:
    actual, expected = buffer_leaves(actual), buffer_leaves(expected)
    assert len(actual) == len(expected) > 0
    for a, e in zip(actual, expected, strict=True):
        assert isinstance(a, torch.Tensor)
        assert a.numpy().dtype == e.dtype
        np.testing.assert_array_equal(a.numpy(), e)


def column(expected: list[dict[str, Any]], field: str) -> np.ndarray:
    return np.array([e[field] for e in expected])


@settings(max_examples=100, deadline=None)
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
)
def test_every_row_that_can_be_drawn_equals_the_episodes(
    seed, B, n, slack, chunks, discount, nested, padding, as_torch
):
    rng = np.random.default_rng(seed)
    n_rows, T = sum(chunks), n + 2 + slack
    envs = [make_env(rng, b, n_rows + 1, padding) for b in range(B)]
    rows = to_rows(envs, n_rows + 1, nested)
    replay = make_replay(rows, T, n, discount, seed)
    start = 0
    for t in chunks:
        chunk = rows[start : start + t]
        replay.append_samples(torchify_buffer(chunk) if as_torch else chunk)
        start += t
        assert replay.check_valid() == (True, "")
        assert len(replay) == min(start, T) * B

    places = drawable(envs, n_rows, T, n)
    if not places:
        with pytest.raises(RuntimeError, match="Append more samples"):
            replay.sample_batch(4)
        return
    T_idxs, B_idxs = np.array(list(places)).T
    expected = [expected_transition(*place, n, discount) for place in places.values()]
    batch = replay.extract_batch(T_idxs % T, B_idxs)
    inputs, target = batch.agent_inputs, batch.target_inputs
    assert_equal(inputs.observation, observation(column(expected, "observation"), nested))
    assert_equal(inputs.prev_action, action(column(expected, "prev")[:, 0], nested))
    assert_equal(inputs.prev_reward, column(expected, "prev")[:, 1].astype(np.float32))
    assert_equal(batch.action, action(column(expected, "action"), nested))
    assert batch.return_.dtype == batch.bootstrap_discount.dtype == torch.float32
    np.testing.assert_allclose(batch.return_, column(expected, "return_"), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch.bootstrap_discount, column(expected, "bootstrap_discount"), rtol=1e-6)
    assert_equal(batch.terminated, column(expected, "terminated"))
    assert_equal(target.observation, observation(column(expected, "target_observation"), nested))
    assert_equal(target.prev_action, action(column(expected, "target_prev")[:, 0], nested))
    assert_equal(target.prev_reward, column(expected, "target_prev")[:, 1].astype(np.float32))

    drawn = replay.sample_batch(200).agent_inputs.observation
    drawn = drawn.image if nested else drawn
    assert set(drawn[:, 0, 0].tolist()) <= {e["observation"] for e in expected}


@pytest.mark.parametrize("n_rows", [30, 40, 57])
def test_rows_that_can_be_drawn_come_equally_often_and_no_other(n_rows):
    T, B, n = 40, 2, 3
    rng = np.random.default_rng(5)
    envs = [make_env(rng, b, n_rows, 0) for b in range(B)]
    replay = make_replay(to_rows(envs, n_rows, False), T, n)
    replay.append_samples(to_rows(envs, n_rows, False))
    # The image's first number is that of the observation, which no two rows share.
    number = {place[0].steps[place[1]].number: 0 for place in drawable(envs, n_rows, T, n).values()}
    n_draws = 500 * len(number)
    for drawn in replay.sample_batch(n_draws).agent_inputs.observation[:, 0, 0].tolist():
        number[drawn] += 1  # a KeyError is a row that may not be drawn
    mean = n_draws / len(number)
    chi_square = sum((count - mean) ** 2 / mean for count in number.values())
    degrees = len(number) - 1
    assert abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees)


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
    batch = replay.extract_batch(np.array([1, 2, 4, 5]), np.zeros(4, np.int64))
    assert batch.return_.tolist() == [2 + 0.5 * 4, 4, 8 + 0.5 * 16, 16 + 0.5 * 32]
    assert batch.bootstrap_discount.tolist() == [0.25, 0.5, 0.25, 0.25]
    assert batch.terminated.tolist() == [False] * 4
    assert batch.target_inputs.observation.tolist() == [3, 3, 6, 7]
    assert batch.agent_inputs.prev_reward.tolist() == [1, 2, 0, 8]


def test_window_and_previous_row_go_on_across_two_batches():
    whole, split = make_replay(hand_rows(), T=10, n=3), make_replay(hand_rows(), T=10, n=3)
    whole.append_samples(hand_rows())
    for t in range(8):
        split.append_samples(hand_rows()[t : t + 1])
    idxs = np.array([1, 2, 4]), np.zeros(3, np.int64)
    for a, b in zip(buffer_leaves(whole.extract_batch(*idxs)), buffer_leaves(split.extract_batch(*idxs)), strict=True):
        assert torch.equal(a, b)


def test_batch_is_a_copy():
    replay = make_replay(hand_rows(), T=10)
    replay.append_samples(hand_rows())
    before = replay.storage.rows.observation.copy()
    for leaf in buffer_leaves(replay.sample_batch(16)):
        leaf.fill_(7)
    np.testing.assert_array_equal(replay.storage.rows.observation, before)


def saved_and_loaded(replay: ReplayBuffer) -> tuple[Any, int]:
    file = io.BytesIO()
    torch.save(replay.state_dict(), file)
    size = file.tell()
    file.seek(0)
    return torch.load(file, weights_only=True), size


@pytest.mark.parametrize("n_rows", [25, 40, 71])
@pytest.mark.parametrize("nested", [False, True])
def test_saved_replay_continues_the_same_draws(n_rows, nested):
    rng = np.random.default_rng(2)
    envs = [make_env(rng, b, n_rows + 60, 0) for b in range(3)]
    rows = to_rows(envs, n_rows + 60, nested)
    first, second = make_replay(rows, T=40, n=3, seed=1), make_replay(rows, T=40, n=3, seed=2)
    first.append_samples(rows[:n_rows])
    second.append_samples(rows[:7])  # what was there before is forgotten
    first.sample_batch(5)
    state, _ = saved_and_loaded(first)
    second.load_state_dict(state)
    assert len(first) == len(second)
    for _ in range(12):
        a, b = first.sample_batch(32), second.sample_batch(32)
        for x, y in zip(buffer_leaves(a), buffer_leaves(b), strict=True):
            assert torch.equal(x, y)
        chunk, n_rows = rows[n_rows : n_rows + 5], n_rows + 5
        first.append_samples(chunk)
        second.append_samples(chunk)


def test_state_dict_holds_no_more_than_what_is_filled():
    rows = hand_rows()._replace(observation=np.zeros((8, 1, 1000), np.float32))
    replay = make_replay(rows, T=1000)
    replay.append_samples(rows)
    _, size = saved_and_loaded(replay)
    assert 8 * 4000 < size < 2 * 8 * 4000


def test_sizes_are_in_rows_over_all_environments():
    example = hand_rows()[0, 0]
    kwargs: dict[str, Any] = {"n_step_return": 1, "discount": 1.0, "rng": np.random.default_rng(0)}
    replay = ReplayBuffer.uniform(example, size=100, B=8, **kwargs)
    assert (replay.size, len(replay)) == (104, 0)
    assert replay.nbytes == 104 * (4 + 8 + 4 + 3)


@pytest.mark.parametrize("share_memory", [False, True])
def test_memory_is_shared_if_asked(share_memory):
    kwargs: dict[str, Any] = {"n_step_return": 1, "discount": 1.0, "rng": np.random.default_rng(0)}
    replay = ReplayBuffer.uniform(hand_rows()[0, 0], size=10, B=1, share_memory=share_memory, **kwargs)
    replay.append_samples(hand_rows())
    assert (replay.storage.rows.reward.base is not None) == share_memory
    assert replay.sample_batch(3).return_.shape == (3,)


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
    with pytest.raises(ValueError, match=r"room for 4 rows of each of 1 environments; expected at least 5 .*to 5 or"):
        make_replay(hand_rows(), T=4, n=3)
    assert make_replay(hand_rows(), T=5, n=3).size == 5


@pytest.mark.parametrize(("n", "discount"), [(0, 0.9), (1, 1.1), (1, -0.1), (1, float("nan"))])
def test_settings_out_of_range(n, discount):
    with pytest.raises(ValueError, match=f"got n_step_return={n} and discount={discount}; expected"):
        make_replay(hand_rows(), T=20, n=n, discount=discount)


def test_loading_from_another_replay():
    small, large = make_replay(hand_rows(), T=10), make_replay(hand_rows(), T=20)
    small.append_samples(hand_rows())
    with pytest.raises(ValueError, match=r"got T=10 .*; expected T=20 .*replay_size"):
        large.load_state_dict(small.state_dict())
    other = hand_rows()._replace(observation=np.zeros((8, 1, 3), np.float32))
    with pytest.raises(ValueError, match=r"'observation': \(\(8, 1\), 'float32'\).*\(\(8, 1, 3\), 'float32'\)"):
        make_replay(other, T=10).load_state_dict(small.state_dict())
