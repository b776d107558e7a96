"""What is read of a replay: n-step transitions, or sequences for a recurrent agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from rlpyt.functional import episode_start_from_valid
from rlpyt.functional import n_step_return as window_return
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.old_methods import TellsOldAttributes
from rlpyt.replays.storage import RowStorage
from rlpyt.types import AgentInputs


class SamplesFromReplay(NamedArrayTuple, TellsOldAttributes):
    """A batch of n-step transitions, [M] CPU tensors of their own.

    The target of a transition is return_ + bootstrap_discount * (value or Q at target_inputs).
    """

    agent_inputs: AgentInputs
    action: Any
    return_: Any
    """float32, the discounted sum of the rewards up to and including the first end of an episode."""
    terminated: Any
    """bool, the transition ended in termination: bootstrap_discount is 0."""
    bootstrap_discount: Any
    """float32, discount ** (steps summed), or 0."""
    target_inputs: AgentInputs
    """Of the row that the last of the actions led to: the episode's final one where it ended."""
    is_weights: Any = None
    """float32, importance weights of prioritised drawing; None where all rows weigh the same."""


class SequencesFromReplay(NamedArrayTuple, TellsOldAttributes):
    """A batch of M sequences, CPU tensors of their own: warmup_T rows, batch_T to train on, then n_step_return more.

    The first group of fields has all warmup_T + batch_T + n_step_return rows, the second only the batch_T.
    """

    all_inputs: AgentInputs
    episode_start: Any
    """bool, rows before which the recurrent state is zero."""
    init_rnn_state: Any
    """Before the first row, [M, N, H] leaves; None is zero."""
    action: Any
    return_: Any
    """float32, see `SamplesFromReplay`, as are the two that follow."""
    terminated: Any
    bootstrap_discount: Any
    steps: Any
    """int64, how many rows after a row its bootstrap row stands."""
    valid: Any
    """bool, train on the row: False where it holds the final observation of an episode."""
    is_weights: Any = None
    """[M] float32."""


class Reading(ABC):
    """What is read from a place of the replay on.

    Args:
        n_step_return: rewards summed in a return, n.

    Raises:
        ValueError: if n_step_return is below 1.
    """

    interval: int = 1
    """Time steps from one place where it may begin to the next."""
    trained: range = range(1)
    """Rows after the first one that are trained on."""

    def __init__(self, n_step_return: int) -> None:
        if n_step_return < 1:
            raise ValueError(f"Building a replay: got n_step_return={n_step_return}; expected at least 1. Raise it.")
        self.n_step_return = n_step_return

    @property
    @abstractmethod
    def rows_after(self) -> int:
        """Rows that must be held after the first one."""

    def settings(self) -> dict[str, Any]:
        """Return what a state must agree with to be loaded, as plain numbers and strings."""
        return {
            "reading": type(self).__name__,
            "n_step_return": self.n_step_return,
            "interval": self.interval,
            "warmup_T": self.trained.start,
            "batch_T": len(self.trained),
            "rows_after": self.rows_after,
        }

    @abstractmethod
    def may_begin(self, storage: RowStorage) -> np.ndarray | None:
        """Return where it may begin, [places, B] bool, a view; None is everywhere."""

    @abstractmethod
    def read(self, storage: RowStorage, T_idxs: np.ndarray, B_idxs: np.ndarray, discount: float) -> Any:
        """Return what begins at rows, [M] arrays or [T, M]."""


class Transitions(Reading):
    """n-step transitions; they begin at valid rows."""

    @property
    def rows_after(self) -> int:
        """n, the last of which is bootstrapped from."""
        return self.n_step_return

    def may_begin(self, storage: RowStorage) -> np.ndarray | None:
        """Return the valid rows."""
        return storage.rows.valid

    def read(self, storage: RowStorage, T_idxs: np.ndarray, B_idxs: np.ndarray, discount: float) -> SamplesFromReplay:
        """Return the transitions that begin at rows, [M]."""
        rows = storage.rows
        window = (T_idxs + np.arange(self.n_step_return)[:, None]) % storage.T, B_idxs
        n_step = window_return(rows.reward[window], rows.terminated[window], rows.truncated[window], discount=discount)
        # Both at once, as with a batch of 32 a good part of the time goes into building indexes.
        both = storage.agent_inputs(np.stack([T_idxs, (T_idxs + n_step.steps) % storage.T]), B_idxs)
        return SamplesFromReplay(
            agent_inputs=both[0],
            action=rows.action[T_idxs, B_idxs],
            return_=n_step.return_,
            terminated=n_step.terminated_n,
            bootstrap_discount=n_step.bootstrap_discount,
            target_inputs=both[1],
        )


class Sequences(Reading):
    """Sequences of rows as they were collected, final rows and starts of episodes among them.

    Args:
        batch_T: rows to train on.
        warmup_T: rows before them that only bring the recurrent state up to date.
        n_step_return: rewards summed in a return, n; so many rows follow.
        rnn_state_interval: time steps from one stored recurrent state to the next, where sequences begin; 0 for
            sequences that begin anywhere with a state of zeros.

    Raises:
        ValueError: if a number is out of range, or batch_T no multiple of the interval.
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
        """All rows but the first."""
        return self.length - 1

    def may_begin(self, storage: RowStorage) -> np.ndarray | None:
        """Return that it may begin at every stored state."""
        return None

    def read(self, storage: RowStorage, T_idxs: np.ndarray, B_idxs: np.ndarray, discount: float) -> SequencesFromReplay:
        """Return the sequences that begin at rows, [T, M]."""
        rows, n = storage.rows, self.n_step_return
        T_idxs_all = (T_idxs + np.arange(self.length)[:, None]) % storage.T
        valid = rows.valid[T_idxs_all, B_idxs]
        trained = T_idxs_all[self.trained.start : self.trained.stop]
        window = (trained + np.arange(n)[:, None, None]) % storage.T, B_idxs
        n_step = window_return(rows.reward[window], rows.terminated[window], rows.truncated[window], discount=discount)
        return SequencesFromReplay(
            all_inputs=storage.agent_inputs(T_idxs_all, B_idxs),
            episode_start=episode_start_from_valid(torch.from_numpy(valid)),
            init_rnn_state=storage.rnn_state(T_idxs, B_idxs),
            action=rows.action[trained, B_idxs],
            return_=n_step.return_,
            terminated=n_step.terminated_n,
            bootstrap_discount=n_step.bootstrap_discount,
            steps=n_step.steps,
            valid=valid[self.trained.start : self.trained.stop],
        )
