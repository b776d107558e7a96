"""Contract of a replay, and random rows to fill one with."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

from rlpyt.core import Replay
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays import SamplesFromReplay, SamplesToBuffer
from rlpyt.spaces import EnvSpaces, null_action, random_value
from rlpyt.testing.expect import expect, expect_close, expect_raises, reloaded
from rlpyt.utils.arrays import buffer_from_example, buffer_func, buffer_leaves


def random_rows(env_spaces: EnvSpaces, T: int, B: int, seed: int = 0, mean_length: float = 6.0) -> SamplesToBuffer:
    """Return random rows [T, B] as a sampler gives them, final observations of episodes included.

    Args:
        env_spaces: of the observations and actions.
        T: time steps.
        B: environments.
        seed: of everything that is random.
        mean_length: steps of an episode on average; half of the episodes are truncated.
    """
    rng = np.random.default_rng(seed)
    observation, null = random_value(env_spaces.observation, rng), null_action(env_spaces.action)
    flag = np.False_
    example = SamplesToBuffer(observation, null, np.float32(0), flag, flag, flag, None, null, np.float32(0))
    rows: SamplesToBuffer = buffer_from_example(example, (T, B))
    for b in range(B):
        final, prev_action, prev_reward = False, null, np.float32(0)
        for t in range(T):
            over = not final and rng.random() < 1 / mean_length
            terminated = over and rng.random() < 0.5
            action = null if final else random_value(env_spaces.action, rng)
            reward = np.float32(0 if final else rng.normal())
            rows[t, b] = (
                random_value(env_spaces.observation, rng), action, reward, terminated, over and not terminated,
                not final, None, prev_action, prev_reward, None,
            )  # fmt: skip
            prev_action, prev_reward = (null, np.float32(0)) if final else (action, reward)
            final = over
    return rows


def check_replay(make_replay: Callable[[], Replay], rows: SamplesToBuffer, *, batch_size: int = 16) -> None:
    """Fill a replay over its border, and check what algorithms rely on.

    Nothing is sampled from an empty replay; the invariants hold after every write; a batch is finite, made of valid
    rows, and in memory of its own; the same seed gives the same batches; a loaded replay goes on to the same batches.

    Args:
        make_replay: returns a new, empty replay, at every call with the same seed. It holds fewer time steps than
            `rows` has, so that old ones are overwritten.
        rows: [T, B] arrays, such as those of `random_rows`, no two observations alike.
        batch_size: transitions or sequences of one batch.

    Raises:
        AssertionError: if the contract is broken.
    """
    replay, twin = make_replay(), make_replay()
    name = type(replay).__name__
    expect_raises(RuntimeError, f"{name}: sampling from an empty replay", lambda: replay.sample_batch(batch_size))

    def append(start: int, end: int, *to: Replay) -> None:
        for one in to:
            one.append_samples(rows[start:end])
            came = one.check_valid()
            expect(came == (True, ""), f"{name}: check_valid at row {end}", came, "(True, '')")

    T, most = len(rows.reward), len(rows.reward) // 2
    for start, end in _chunks(0, most):
        append(start, end, replay, twin)
    expect_raises(ValueError, f"{name}: sampling a batch of size 0", lambda: replay.sample_batch(0))
    batch = replay.sample_batch(batch_size)
    kept = buffer_func(batch, torch.clone)
    expect_close(f"{name}: batches of two replays with the same seed", twin.sample_batch(batch_size), batch, "the same")
    _check_batch(name, batch, rows, batch_size)
    loaded = make_replay()
    loaded.load_state_dict(reloaded(replay.state_dict()))
    for start, end in _chunks(most, T):
        expected = "the same as without loading"
        came, reference = loaded.sample_batch(batch_size), replay.sample_batch(batch_size)
        expect_close(f"{name}: batches after state_dict went through a file", came, reference, expected)
        append(start, end, replay, loaded)
        _check_batch(name, reference, rows, batch_size)
    expect_close(f"{name}: a batch after later writes", batch, kept, "the batch as it was drawn, in memory of its own")


def _chunks(start: int, end: int) -> list[tuple[int, int]]:
    """Return borders of pieces of 1 to 7 rows."""
    borders = [start]
    while borders[-1] < end:
        borders.append(min(end, borders[-1] + 1 + len(borders) * 3 % 7))
    return list(pairwise(borders))


def _check_batch(name: str, batch: Buffer, rows: SamplesToBuffer, batch_size: int) -> None:
    for leaf in buffer_leaves(batch):
        sized = batch_size in tuple(leaf.shape[:2])
        expect(sized, f"{name}: shape in a batch of {batch_size}", tuple(leaf.shape), f"{batch_size} leading")
        finite = not leaf.is_floating_point() or bool(leaf.isfinite().all())
        expect(finite, f"{name}: a batch", "numbers that are not finite", "finite ones")
    if isinstance(batch, SamplesFromReplay):
        at = [rows[t, b] for t, b in zip(*np.nonzero(rows.valid), strict=True)]
        valid = {_key_of(row.observation, row.action) for row in at}
        observation, action = batch.agent_inputs.observation, batch.action
        for m in range(batch_size):
            came = _key_of(observation[m], action[m])
            expect(came in valid, f"{name}: observation and action {m} of a batch", came, "those of a valid row")


def _key_of(observation: Buffer, action: Buffer) -> str:
    return repr([np.asarray(leaf).tolist() for leaf in buffer_leaves((observation, action))])
