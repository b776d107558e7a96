"""Interface of replays: what an algorithm may ask of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from rlpyt.namedarraytuple import Buffer
from rlpyt.types import Places, StateDict


class Replay(ABC):
    """Memory of rows, from which random batches are drawn."""

    on_device: ClassVar[bool] = False
    """Whether batches, their places and priorities are on the device of the agent; else they are on the CPU."""

    @property
    @abstractmethod
    def takes_priorities(self) -> bool:
        """Whether `update_priorities` changes what is drawn."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Rows that it can hold, all environments counted."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all rows, filled or not."""

    @property
    @abstractmethod
    def least_rows(self) -> int:
        """Rows of each environment that must be held before anything can be drawn."""

    @property
    @abstractmethod
    def interval(self) -> int:
        """Rows from one start index to the next."""

    @property
    @abstractmethod
    def n_priorities_dropped(self) -> int:
        """Priorities so far that came after their rows had been overwritten."""

    @abstractmethod
    def set_hyper(
        self,
        *,
        discount: float | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        eta: float | None = None,
    ) -> None:
        """Set hyper-parameters at any time; None leaves one as it is, and ValueError says that one is out of range.

        Args:
            discount: gamma in [0, 1], of the returns.
            alpha: exponent of the priorities, from 0.
            beta: exponent of the importance weights, in [0, 1].
            eta: weight of the largest against the mean TD error in the priority of a new sequence, in [0, 1].
        """

    def appending_copy(self) -> Replay:
        """Return a copy that appends to the same rows in another process; TypeError if they are private to this one."""
        raise TypeError(
            f"{type(self).__name__}: its rows cannot be shared with another process; expected a ReplayBuffer with a "
            "lock. Use AsyncRl with lag=1, or another number."
        )

    @abstractmethod
    def append_samples(self, samples: Buffer, td_abs_error: Buffer = None) -> None:
        """Write [T, B] rows, an `rlpyt.replays.SamplesToBuffer`, after the newest, over the oldest ones when full.

        `td_abs_error` [T, B] are absolute TD errors of the newest rows whose returns are complete, for priorities.
        """

    @abstractmethod
    def sample_batch(self, batch_size: int) -> Buffer:
        """Draw a batch with the fields of `rlpyt.replays.SamplesFromReplay` or `SequencesFromReplay`.

        Its `places` are what `update_priorities` takes; its `is_weights` may be None.
        """

    @abstractmethod
    def update_priorities(self, places: Places, priorities: torch.Tensor) -> None:
        """Set priorities [M], float from 0 on the CPU, of the `places` [M] of any batch drawn before.

        Those of rows that were overwritten meanwhile are dropped and counted.

        Raises:
            TypeError: if the replay takes no priorities.
            ValueError: if there is another number of them, or one is negative or not finite.
        """

    @abstractmethod
    def check_valid(self) -> tuple[bool, str]:
        """Return whether the rows held follow the row convention, and a sentence about the first that does not."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return rows, priorities, counters and random stream."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned; a state that is refused changes nothing."""
