"""Readings of a replay: n-step transitions, or sequences for a recurrent agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import torch

from rlpyt.functional import NStepReturn, episode_start_from_valid, n_step_return
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.old_rlpyt import tells_old_attributes
from rlpyt.replays.storage import Storage
from rlpyt.types import AgentInputs, Places
from rlpyt.utils.arrays import buffer_func, taken


class RawRows(NamedArrayTuple):
    """Rows as they were collected, for models of the world and other losses of one's own: [T, M]."""

    action: Buffer
    reward: Buffer
    """float32, for the action of the row."""
    terminated: Buffer
    """bool, whether the episode ended by termination with the row."""
    truncated: Buffer
    """bool, whether it ended by truncation."""
    valid: Buffer
    """bool, False where the row holds the final observation of an episode."""


@tells_old_attributes
class SamplesFromReplay(NamedArrayTuple):
    """Batch of n-step transitions, [M] CPU tensors that share no memory with the replay.

    Observations are on the device on which the storage has them.

    The target of a transition is return_ + bootstrap_discount * (value or Q at target_inputs).
    """

    agent_inputs: AgentInputs
    action: Buffer
    return_: Buffer
    """float32, discounted sum of n rewards, or of those up to the first end of an episode."""
    terminated: Buffer
    """bool, whether the episode ended in termination within the n steps: bootstrap_discount is 0."""
    bootstrap_discount: Buffer
    """float32, discount ** (number of rewards summed), or 0."""
    target_inputs: AgentInputs
    """Inputs of the row after the last reward summed: the final row of the episode where it ended."""
    is_weights: Buffer = None
    """float32, importance weights of prioritized sampling; None where all rows weigh the same."""
    places: Places | None = None
    """Places in the replay, for `update_priorities`; they stay on the CPU."""
    reward: Buffer = None
    """float32, the reward for the action alone."""


@tells_old_attributes
class SequencesFromReplay(NamedArrayTuple):
    """Batch of M sequences, CPU tensors that share no memory with the replay.

    Observations are on the device on which the storage has them.

    A sequence has warmup_T rows, batch_T rows to train on, and n_step_return rows to bootstrap from. `all_inputs`,
    `episode_start` and `rows` have all these rows; the fields from `action` to `valid` those to train on.
    """

    all_inputs: AgentInputs
    episode_start: Buffer
    """bool, rows before which the recurrent state is zero."""
    init_rnn_state: Buffer
    """Recurrent state before the first row, [M, N, H] leaves; None is zero."""
    action: Buffer
    return_: Buffer
    """float32, see `SamplesFromReplay`."""
    terminated: Buffer
    """bool, see `SamplesFromReplay`."""
    bootstrap_discount: Buffer
    """float32, see `SamplesFromReplay`."""
    steps: Buffer
    """int64, number of rows from a row to the row that it bootstraps from."""
    valid: Buffer
    """bool, whether to train on the row: False where it holds the final observation of an episode."""
    is_weights: Buffer = None
    """[M] float32, importance weight of each sequence; None where all weigh the same."""
    places: Places | None = None
    """Places [M] in the replay, for `update_priorities`; they stay on the CPU."""
    rows: RawRows | None = None
    """Rewards and ends row by row, warm-up and the rows to bootstrap from included."""


ReplayBatch = SamplesFromReplay | SequencesFromReplay
"""Batch that a replay gives to one update."""


class RewardsAndEnds(Protocol):
    """Rows of which n-step returns are computed, numpy arrays [T, B]."""

    @property
    def reward(self) -> Buffer:
        """Rewards, float32."""

    @property
    def terminated(self) -> Buffer:
        """Flags, bool."""

    @property
    def truncated(self) -> Buffer:
        """Flags, bool."""


def n_step_of_rows(
    rows: RewardsAndEnds, T_idxs: np.ndarray, B_idxs: np.ndarray, n: int, discount: float
) -> NStepReturn:
    """Return the n-step returns that begin at rows of a ring.

    Args:
        rows: [T, B]; the row after T - 1 is row 0.
        T_idxs: [...] int64, time indexes where the returns begin.
        B_idxs: int64, environments, broadcast against `T_idxs`.
        n: number of rewards in a return.
        discount: gamma in [0, 1].
    """
    return n_step_return(*windows_of_rows(rows, T_idxs, B_idxs, n), discount=discount)


def windows_of_rows(
    rows: RewardsAndEnds, T_idxs: np.ndarray, B_idxs: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rewards, `terminated` and `truncated` of windows [n, ...] of rows; see `n_step_of_rows`."""
    window = np.add.outer(np.arange(n), T_idxs) % len(rows.reward)
    windows: tuple[np.ndarray, np.ndarray, np.ndarray]
    windows = taken((rows.reward, rows.terminated, rows.truncated), window, B_idxs)
    return windows


class Reading(ABC):
    """Base of readings: it makes the batch that begins at given rows of the storage."""

    interval: int = 1
    """Time steps from one start index to the next."""
    trained: range = range(1)
    """Rows that are trained on, counted from the first row."""

    def __init__(self, n_step_return: int) -> None:
        if n_step_return < 1:
            raise ValueError(f"Building a replay: got n_step_return={n_step_return}; expected at least 1. Raise it.")
        self.n_step_return = n_step_return

    @property
    @abstractmethod
    def rows_after(self) -> int:
        """Rows that must be held after the first one."""

    def settings(self) -> dict[str, Any]:
        """Return plain numbers and strings that a state must agree with to be loaded."""
        return {
            "reading": type(self).__name__,
            "n_step_return": self.n_step_return,
            "interval": self.interval,
            "warmup_T": self.trained.start,
            "batch_T": len(self.trained),
            "rows_after": self.rows_after,
        }

    @abstractmethod
    def may_begin(self, storage: Storage) -> np.ndarray | None:
        """Return the start indexes where it may begin, [T / interval, B] bool, a view of the storage; None for all."""

    @abstractmethod
    def read(self, storage: Storage, T_idxs: np.ndarray, B_idxs: np.ndarray, discount: float) -> ReplayBatch:
        """Return the batch that begins at rows, numpy arrays [M, ...] or [T, M, ...], new ones at each call.

        Args:
            storage: holds `rows_after` rows after each row, and `Storage.rows_before` before it.
            T_idxs: [M] int64, time indexes of the ring.
            B_idxs: [M] int64, environments.
            discount: gamma in [0, 1].
        """


class Transitions(Reading):
    """Reading of n-step transitions; they begin at valid rows."""

    @property
    def rows_after(self) -> int:
        """Rows of the return, the last of which is bootstrapped from."""
        return self.n_step_return

    def may_begin(self, storage: Storage) -> np.ndarray | None:
        """Return the valid rows."""
        return storage.rows.valid

    def read(self, storage: Storage, T_idxs: np.ndarray, B_idxs: np.ndarray, discount: float) -> SamplesFromReplay:
        """Return the transitions that begin at rows, [M]."""
        rows = storage.rows
        window = windows_of_rows(rows, T_idxs, B_idxs, self.n_step_return)
        n_step = n_step_return(*window, discount=discount)
        # Both in one call: with a batch of 32 much of the time goes into building the indexes.
        both = storage.agent_inputs(np.array([T_idxs, (T_idxs + n_step.steps) % storage.T]), B_idxs)
        return SamplesFromReplay(
            agent_inputs=both[0],
            action=taken(rows.action, T_idxs, B_idxs),
            return_=n_step.return_,
            terminated=n_step.terminated_n,
            bootstrap_discount=n_step.bootstrap_discount,
            target_inputs=both[1],
            reward=window[0][0],
        )


class Sequences(Reading):
    """Reading of sequences of rows, final rows and starts of episodes included.

    Args:
        batch_T: number of rows to train on.
        warmup_T: number of rows before them, which only bring the recurrent state up to date.
        n_step_return: number of rewards summed in a return, n; so many rows follow those to train on.
        rnn_state_interval: time steps between stored recurrent states, where sequences begin. With 0, sequences begin
            at any row, with a state of zeros.
    """

    def __init__(self, batch_T: int, warmup_T: int, n_step_return: int, rnn_state_interval: int) -> None:
        super().__init__(n_step_return)
        if batch_T < 1 or warmup_T < 0 or rnn_state_interval < 0:
            raise ValueError(
                f"Building a replay of sequences: got batch_T={batch_T}, warmup_T={warmup_T}, "
                f"rnn_state_interval={rnn_state_interval}; expected at least 1, 0 and 0. Correct the setting."
            )
        if rnn_state_interval and batch_T % rnn_state_interval:
            raise ValueError(
                f"Building a replay of sequences: got batch_T={batch_T} and rnn_state_interval={rnn_state_interval}; "
                "expected batch_T to be a multiple of it, so that every row is trained on equally often. Correct "
                "batch_T, or store_rnn_state_interval of the algorithm."
            )
        self.trained = range(warmup_T, warmup_T + batch_T)
        self.interval = max(1, rnn_state_interval)
        self.length = warmup_T + batch_T + n_step_return
        """Rows of a sequence."""

    @property
    def rows_after(self) -> int:
        """All rows of a sequence but the first."""
        return self.length - 1

    def may_begin(self, storage: Storage) -> np.ndarray | None:
        """Return None: a sequence may begin at every start index."""
        return None

    def read(self, storage: Storage, T_idxs: np.ndarray, B_idxs: np.ndarray, discount: float) -> SequencesFromReplay:
        """Return the sequences that begin at rows, [T, M]."""
        rows = storage.rows
        T_idxs_all = (T_idxs + np.arange(self.length)[:, None]) % storage.T
        every, own = (T_idxs_all, B_idxs), slice(self.trained.start, self.trained.stop)
        fields = rows.action, rows.reward, rows.terminated, rows.truncated, rows.valid
        raw = RawRows(*(buffer_func(field, lambda x: x[every]) for field in fields))
        trained = T_idxs_all[own]
        n_step = n_step_of_rows(rows, trained, B_idxs, self.n_step_return, discount)
        return SequencesFromReplay(
            all_inputs=storage.agent_inputs(T_idxs_all, B_idxs),
            episode_start=episode_start_from_valid(torch.from_numpy(raw.valid)),
            init_rnn_state=storage.rnn_state(T_idxs, B_idxs),
            action=raw.action[own],
            return_=n_step.return_,
            terminated=n_step.terminated_n,
            bootstrap_discount=n_step.bootstrap_discount,
            steps=n_step.steps,
            valid=raw.valid[own],
            rows=raw,
        )
