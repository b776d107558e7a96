"""Interface of a replay's storage, and the rows that it takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.types import AgentInputs, StateDict

Allocate = Callable[[Any, Any], Any]
"""Makes zeroed numpy arrays from an example of one row and leading dimensions. It decides where the arrays lie."""


class SamplesToBuffer(NamedArrayTuple):
    """Rows of a batch that a replay stores, [T, B]; see `rlpyt.types` for the fields."""

    observation: Buffer
    action: Buffer
    reward: Buffer
    terminated: Buffer
    truncated: Buffer
    valid: Buffer
    prev_rnn_state: Buffer = None
    """Recurrent state before the row, [T, B, N, H] leaves; None for a feed-forward agent."""
    prev_action: Buffer = None
    """Action of the row before, null at an episode's start. Not stored: it is compared after a state was loaded."""
    prev_reward: Buffer = None
    """Reward of the row before, float32. Not stored: it is compared after a state was loaded."""


class Storage(ABC):
    """Ring buffer of T x B rows; `RowStorage` is the library's own.

    Row t of the ring holds the time steps t, t + T, t + 2T, ... of which the newest is kept.
    """

    T: int
    """Time steps that the ring holds."""
    B: int
    """Environments."""
    rows: SamplesToBuffer
    """Arrays [T, B] in ring order; observations and recurrent states are read by methods."""
    rows_before: int
    """Rows that must be held before a row for its agent inputs to be read."""
    rnn_state_interval: int
    """Time steps between stored recurrent states; 0 where none are stored."""

    @property
    @abstractmethod
    def written(self) -> int:
        """Time steps written so far, overwritten ones included."""

    @property
    def held(self) -> int:
        """Time steps held, at most T."""
        return min(self.written, self.T)

    @property
    def oldest(self) -> int:
        """Time index of the oldest step held."""
        return (self.written - self.held) % self.T

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all arrays, filled or not."""

    @abstractmethod
    def write(self, rows: SamplesToBuffer) -> None:
        """Write rows [t, B] after the newest, over the oldest ones when the ring is full."""

    @abstractmethod
    def observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Buffer:
        """Return observations at time indexes and environments, which are broadcast against each other."""

    @abstractmethod
    def agent_inputs(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> AgentInputs:
        """Return what the agent was given at rows; `rows_before` rows before each must be held."""

    @abstractmethod
    def rnn_state(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Buffer:
        """Return the recurrent states before rows [M], leaves [M, N, H]; None where none are stored.

        Args:
            T_idxs: [M] int64, multiples of `rnn_state_interval`.
            B_idxs: [M] int64.
        """

    @abstractmethod
    def check_valid(self) -> tuple[bool, str]:
        """Return whether the rows held follow the row convention, and a sentence about the first that does not."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return the rows held and the number of steps written."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned; refuse that of a storage of another size or with other fields."""
