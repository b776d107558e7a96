"""Random episodes kept in lists, the rows that a sampler makes of them, and what a replay must give back."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.replays import ReplayBuffer, RowStorage, SamplesToBuffer, Transitions, UniformIndex
from rlpyt.utils.arrays import buffer_leaves

Observation = namedarraytuple("Observation", ["image", "a.number"])
Action = namedarraytuple("Action", ["turn", "push"])
RnnState = namedarraytuple("RnnState", ["h", "c"])

STARTS = ("black", "repeat", "goes_on")


class Step(NamedTuple):
    """One step, or (with action None) the final observation of an episode, or a row of padding after it."""

    number: int
    """Of the observation, no two alike."""
    frames: tuple[int, ...]
    """Oldest first; 0 is black."""
    action: float | None = None
    reward: float = 0.0


class Episode(NamedTuple):
    steps: list[Step]
    terminated: bool
    truncated: bool
    padding: list[Step]
    """Rows after the final one in which the environment rests."""


class Row(NamedTuple):
    """One row of the run, by its place in an episode: a step, the final observation (i = -1), or padding (i = -2)."""

    t: int
    b: int
    episode: Episode
    i: int
    step: Step


class Run(NamedTuple):
    """The rows of every environment, in lists, and as the arrays that a sampler gives, [n_rows, B]."""

    lists: list[list[Row]]
    rows: SamplesToBuffer


def make_episode(
    rng: np.random.Generator, number: int, before: tuple[int, ...], n_frames: int, starts: Sequence[str], most: int
) -> Episode:
    """Make an episode; its frames are numbered like its observations, or (most > 0) are among few that come again."""
    frames = before
    start = starts[int(rng.integers(len(starts)))]
    steps = []
    n_steps = int(rng.integers(1, 8))
    for i in range(n_steps + 1):
        number += 1
        frame = int(rng.integers(most)) if most else number
        if i > 0 or start == "goes_on":
            frames = (*frames[1:], frame)
        else:
            frames = ((0 if start == "black" else frame),) * (n_frames - 1) + (frame,)
        last = i == n_steps
        steps.append(
            Step(number, frames, None if last else float(rng.integers(1, 100)), float(not last and rng.normal()))
        )
    ending = int(rng.integers(3))  # truncated, terminated, or both at once
    return Episode(steps, ending != 0, ending != 1, [])


def make_env(
    rng: np.random.Generator,
    env: int,
    n_rows: int,
    padding: int = 0,
    n_frames: int = 1,
    starts: Sequence[str] = ("black",),
    most: int = 0,
) -> list[Row]:
    """Make the rows of one environment from whole episodes."""
    rows: list[Row] = []
    number, frames = 1000 * env, (0,) * n_frames
    while len(rows) < n_rows:
        episode = make_episode(rng, number, frames, n_frames, starts, most)
        final = episode.steps[-1]
        # A resting environment shows the final observation again, or black images.
        rest = Step(final.number, final.frames if n_frames == 1 else (0,) * n_frames)
        episode = episode._replace(padding=[rest] * int(rng.integers(padding + 1)))
        number, frames = final.number, (*episode.steps, *episode.padding)[-1].frames
        for i, step in enumerate((*episode.steps, *episode.padding)):
            i = i if step.action is not None else -1 if step is final else -2
            rows.append(Row(len(rows), env, episode, i, step))
    return rows[:n_rows]


def make_run(seed: int, B: int, n_rows: int, nested: bool = False, k: int = 1, **kwargs: Any) -> Run:
    """Make a run; k is the channels of a frame, the rest goes to `make_env`."""
    rng = np.random.default_rng(seed)
    lists = [make_env(rng, b, n_rows, **kwargs) for b in range(B)]
    by_time = [[column[t] for column in lists] for t in range(n_rows)]

    def array(get: Any, dtype: Any) -> np.ndarray:
        return np.array([[get(row) for row in rows] for rows in by_time], dtype)

    flags = {
        "terminated": array(lambda row: ends(row) and row.episode.terminated, bool),
        "truncated": array(lambda row: ends(row) and row.episode.truncated, bool),
        "valid": array(lambda row: row.i >= 0, bool),
    }
    steps = [row.step for rows in by_time for row in rows]
    observation = observations(steps, nested, k, (n_rows, B))
    actions = action(array(lambda row: row.step.action or 0, np.int64), nested)
    state = rnn_state([row for rows in by_time for row in rows], (n_rows, B))
    reward = array(lambda row: row.step.reward, np.float32)
    return Run(lists, SamplesToBuffer(observation, actions, reward, **flags, prev_rnn_state=state))


def ends(row: Row) -> bool:
    """Whether the row's action ended the episode."""
    return row.i == len(row.episode.steps) - 2


def observations(steps: Sequence[Step], nested: bool, k: int, lead: tuple[int, ...]) -> Any:
    """Return the observations of steps, [*lead, n_frames * k, 2, 3], or with a number beside it."""
    frames = np.array([step.frames for step in steps], np.int32)
    image = frames[:, :, None] * np.arange(1, 6 * k + 1, dtype=np.int32)
    image = image.reshape(*lead, frames.shape[1] * k, 2, 3)
    number = np.array([step.number for step in steps], np.float32).reshape(lead)
    return Observation(image, number) if nested else image


def action(number: Any, nested: bool) -> Any:
    number = np.asarray(number, np.int64)
    return Action(number, np.stack([number, -number], -1).astype(np.float32)) if nested else number


def rnn_state(rows: Sequence[Row], lead: tuple[int, ...]) -> Any:
    """Return recurrent states before rows, [*lead, N=2, H=3], zero at an episode's start and unlike anywhere else."""
    key = np.array([0 if row.i == 0 else 1 + 1000 * row.b + row.t for row in rows], np.float32)
    h = (key[:, None, None] * np.arange(1, 7).reshape(2, 3)).reshape(*lead, 2, 3).astype(np.float32)
    return RnnState(h, -h)


def before(row: Row) -> Step:
    """Return the step before a row of the same episode, of which prev_action and prev_reward are."""
    steps = row.episode.steps
    i = len(steps) - 1 if row.i == -1 else row.i
    return steps[i - 1] if i > 0 else Step(0, (0,), 0)


def expected_transition(row: Row, n: int, discount: float) -> dict[str, Any]:
    """Return the n-step transition that begins at a row, step by step."""
    *steps, final = row.episode.steps
    return_, k = 0.0, 0
    while k < n and row.i + k < len(steps):
        return_ += discount**k * steps[row.i + k].reward
        k += 1
    ended = row.i + k == len(steps)
    terminated = ended and row.episode.terminated
    return {
        "action": row.step.action,
        "return_": return_,
        "terminated": terminated,
        "bootstrap_discount": 0.0 if terminated else discount**k,
        "steps": k,
        "target": final if ended else steps[row.i + k],
        "target_prev": steps[row.i + k - 1],
    }


def places_in_reach(written: int, T: int, rows_before: int, rows_after: int, interval: int = 1) -> list[int]:
    """Return where something may begin: all the rows that belong to it are among the newest T."""
    oldest = max(written - T, 0)
    return [
        p for p in range(0, written, interval) if all(oldest <= t < written for t in (p - rows_before, p + rows_after))
    ]


def make_replay(
    example: SamplesToBuffer, T: int, n: int = 1, discount: float = 0.9, seed: int = 0, index: Any = None, **kwargs: Any
) -> ReplayBuffer:
    """Build a replay of transitions for rows like these, [T, B]."""
    storage = RowStorage(example[0, 0], T, example.reward.shape[1], **kwargs)
    index = UniformIndex(np.random.default_rng(seed)) if index is None else index
    return ReplayBuffer(storage, index, Transitions(n), discount=discount)


def assert_equal(actual: Any, expected: Any) -> None:
    """Compare buffers of tensors with buffers of arrays, dtypes included."""
    actual, expected = buffer_leaves(actual), buffer_leaves(expected)
    assert len(actual) == len(expected) > 0
    for a, e in zip(actual, expected, strict=True):
        assert isinstance(a, torch.Tensor)
        assert a.numpy().dtype == e.dtype
        np.testing.assert_array_equal(a.numpy(), e)


def assert_same_batches(a: Any, b: Any) -> None:
    """Compare two batches."""
    for x, y in zip(buffer_leaves(a), buffer_leaves(b), strict=True):
        assert torch.equal(x, y)


def assert_frequencies(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Test counts by chi-square, four standard deviations wide."""
    expected = counts.sum() * probabilities
    assert expected.min() > 5, "too few draws for the test"
    chi_square = ((counts - expected) ** 2 / expected).sum()
    degrees = len(counts) - 1
    assert abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees) + 1e-9


def saved_and_loaded(replay: ReplayBuffer) -> tuple[Any, int]:
    """Return the state after a round through a file, and the file's size."""
    file = io.BytesIO()
    torch.save(replay.state_dict(), file)
    size = file.tell()
    file.seek(0)
    return torch.load(file, weights_only=True), size


def assert_goes_on_alike(first: ReplayBuffer, second: ReplayBuffer, more: SamplesToBuffer) -> None:
    """Load the first one's state into the second, and let both go on with the same rows."""
    second.load_state_dict(saved_and_loaded(first)[0])
    assert len(first) == len(second)
    draw = partial(ReplayBuffer.sample_batch, batch_size=16)
    for t in range(0, len(more), 5):
        a, b = draw(first), draw(second)
        assert_same_batches(a, b)
        for replay in (first, second):
            if a.is_weights is not None:
                replay.update_priorities(a.places, torch.arange(16) / 7)
            replay.append_samples(more[t : t + 5])
    assert_same_batches(draw(first), draw(second))


def make_rows(numbers: np.ndarray, B: int) -> SamplesToBuffer:
    """Rows whose every field tells (t, b)."""
    number = numbers[:, None] * 10 + np.arange(B)
    flag = np.zeros_like(number, bool)
    return SamplesToBuffer(number[..., None].astype(np.float32), number, number.astype(np.float32), flag, flag, ~flag)
