"""Processes that write and read one replay in shared memory, for tests; importable there."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from rlpyt.replays import ReplayBuffer, SamplesToBuffer
from rlpyt.utils.progress import Progress

N_FRAMES, B, BATCH_T = 4, 3, 8
N_STEP = 3


def rows_at(first: int, n: int = BATCH_T) -> SamplesToBuffer:
    """Return rows [n, B] whose every field tells (t, b); one episode without end, black before its first frame."""
    t = np.arange(first, first + n)[:, None]
    number = t * B + np.arange(B)
    frames = (number[..., None] - B * np.arange(N_FRAMES - 1, -1, -1)).clip(min=-1) + 1  # frame of row t: number + 1
    observation = np.broadcast_to(frames[..., None, None], (*frames.shape, 6, 6)).astype(np.int32)
    flag = np.zeros(number.shape, bool)
    state = number[..., None, None].astype(np.float32)
    times = np.broadcast_to(t, number.shape)
    return SamplesToBuffer(
        observation, times, times.astype(np.float32), flag, flag, ~flag, prev_rnn_state=state.repeat(5, -1)
    )


def wrong_in_transitions(batch: Any) -> list[str]:
    """Return the fields of a batch of n-step transitions, undiscounted, that do not belong together."""
    start, env = batch.places
    right = {
        "observation": stack_of(start, env),
        "target": stack_of(start + N_STEP, env),
        "action": start,
        "prev_action": start - 1,
        "return_": (N_STEP * start + N_STEP * (N_STEP - 1) // 2).float(),
    }
    inputs, target = batch.agent_inputs, batch.target_inputs
    came = [inputs.observation, target.observation, batch.action, inputs.prev_action, batch.return_]
    return [name for (name, expected), x in zip(right.items(), came, strict=True) if not torch.equal(x, expected)]


def wrong_in_sequences(batch: Any) -> list[str]:
    """Return the fields of a batch of sequences that do not belong together."""
    start, env = batch.places
    first = start * (len(batch.action) // 2)  # an interval is half of the rows trained on
    t = first + torch.arange(len(batch.all_inputs.prev_action))[:, None]
    right = {
        "observation": stack_of(t, env),
        "state": (first * B + env).float()[:, None, None].expand_as(batch.init_rnn_state),
        "action": t[: len(batch.action)],
    }
    came = [batch.all_inputs.observation, batch.init_rnn_state, batch.action]
    return [name for (name, expected), x in zip(right.items(), came, strict=True) if not torch.equal(x, expected)]


def stack_of(t: torch.Tensor, env: torch.Tensor) -> torch.Tensor:
    number = t * B + env
    frames = (number[..., None] - B * torch.arange(N_FRAMES - 1, -1, -1)).clamp(min=-1) + 1
    return frames[..., None, None].expand(*frames.shape, 6, 6).int()


class ReplayServer:
    """Writer or reader of a replay.

    Args:
        rank: of the worker, seed of its draws.
        progress: see `Progress`.
        replay: as it was sent.
        role: of this process.
    """

    def __init__(self, rank: int, progress: Progress, replay: ReplayBuffer, role: str) -> None:
        self.replay = replay
        replay.lock.join(role)
        replay.index.rng = np.random.default_rng(100 + rank)

    def __call__(self, request: tuple[str, Any]) -> object:
        name, argument = request
        return getattr(self, name)(argument)

    def close(self) -> None:
        return None

    def write(self, n_batches: int) -> int:
        """Append batches at full speed; return the number of rows then held."""
        for _ in range(n_batches):
            self.replay.append_samples(rows_at(self.replay.storage.written))
        return len(self.replay)

    def read(self, seconds: float) -> tuple[int, list[str]]:
        """Draw without a pause, and change priorities; return how many batches, and what was wrong in them."""
        return read_for(self.replay, seconds)

    def write_half(self, _: object) -> None:
        """Write rows, and stay inside before the index knows of them."""
        with self.replay.lock.writing:
            self.replay.storage.write(rows_at(self.replay.storage.written))
            time.sleep(60.0)


def read_for(replay: ReplayBuffer, seconds: float) -> tuple[int, list[str]]:
    """Draw batches for a time and check each of them."""
    n, wrong, end = 0, set(), time.monotonic() + seconds
    while time.monotonic() < end:
        batch = replay.sample_batch(16)
        wrong_in = wrong_in_transitions if batch.return_.dim() == 1 else wrong_in_sequences
        wrong |= set(wrong_in(batch))
        if replay.takes_priorities:
            replay.update_priorities(batch.places, torch.rand(16) + 0.5)
        n += 1
    return n, sorted(wrong)
