"""Replay of new rows beside stored ones, from which every batch takes its share."""

from __future__ import annotations

import torch

from rlpyt.core import Replay
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays.interface import SamplesToBuffer
from rlpyt.replays.replay_buffer import ReplayBuffer
from rlpyt.types import Places, StateDict
from rlpyt.utils.arrays import buffer_cat


class MixedReplay(Replay):
    """Replay whose batches are drawn from two: new rows, and stored ones that no new row overwrites.

    The stored rows of a batch come last, and their `places` have numbers of environments from B on. Each replay has
    priorities of its own. Importance weights are (N P(i))^-beta of the replay that a row is from, over the largest of
    the whole batch.

    Source: Ball et al. 2023 (RLPD), arXiv:2302.02948, section 4.1, with a fraction of 0.5.

    Args:
        new: takes all rows that are appended.
        stored: is full already, of transitions.
        fraction: of a batch that is drawn from the stored rows, in (0, 1]; at least one row is.
        checksum: of the stored rows, which a state does not have: it must be loaded beside the same ones.
    """

    def __init__(self, new: ReplayBuffer, stored: ReplayBuffer, fraction: float, checksum: int) -> None:
        self.new, self.stored, self.fraction, self._checksum = new, stored, fraction, checksum
        self._divides_by_largest = new.index.divides_by_largest
        for replay in (new, stored):
            replay.index.divides_by_largest = False

    @property
    def takes_priorities(self) -> bool:
        """Whether `update_priorities` changes what is drawn."""
        return self.new.takes_priorities

    @property
    def size(self) -> int:
        """New rows that it can hold, all environments counted."""
        return self.new.size

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, stored ones too."""
        return self.new.nbytes + self.stored.nbytes

    @property
    def least_rows(self) -> int:
        """New rows of each environment that must be held before anything can be drawn."""
        return self.new.least_rows

    @property
    def interval(self) -> int:
        """Rows from one start index to the next."""
        return self.new.interval

    @property
    def n_priorities_dropped(self) -> int:
        """Priorities so far that came after their rows had been overwritten."""
        return self.new.n_priorities_dropped

    def set_hyper(
        self,
        *,
        discount: float | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        eta: float | None = None,
    ) -> None:
        """Set hyper-parameters of both; see `rlpyt.core.Replay.set_hyper`."""
        for replay in (self.new, self.stored):
            replay.set_hyper(discount=discount, alpha=alpha, beta=beta, eta=eta)

    def appending_copy(self) -> Replay:
        """Return a copy of the replay of new rows, which appends to the same ones in another process."""
        return self.new.appending_copy()

    def append_samples(self, samples: SamplesToBuffer, td_abs_error: Buffer = None) -> None:
        """Write new rows; see `ReplayBuffer.append_samples`."""
        self.new.append_samples(samples, td_abs_error)

    def sample_batch(self, batch_size: int) -> Buffer:
        """Draw transitions, `SamplesFromReplay`, new ones and then stored ones."""
        n_stored = min(max(1, round(self.fraction * batch_size)), batch_size)
        new = self.new.sample_batch(batch_size - n_stored) if n_stored < batch_size else None
        batch = self.stored.sample_batch(n_stored)
        batch = batch._replace(places=batch.places._replace(env=batch.places.env + self.new.storage.B))
        if new is not None:
            batch = buffer_cat(new, batch)
        if batch.is_weights is None or not self._divides_by_largest:
            return batch
        return batch._replace(is_weights=batch.is_weights / batch.is_weights.max())

    def update_priorities(self, places: Places, priorities: torch.Tensor) -> None:
        """Set the priorities of rows drawn before, each in its own replay."""
        B = self.new.storage.B
        of_stored = places.env >= B
        self.new.update_priorities(places[~of_stored], priorities[~of_stored])
        start, env = places[of_stored]
        self.stored.update_priorities(Places(start, env - B), priorities[of_stored])

    def check_valid(self) -> tuple[bool, str]:
        """Return whether the rows of both follow the row convention, and a sentence about the first that does not."""
        new, stored = self.new.check_valid(), self.stored.check_valid()
        return stored if new[0] else new

    def state_dict(self) -> StateDict:
        """Return the state of the new rows, and of the stored ones what is drawn next; they themselves are left out."""
        parts = {"new": self.new.state_dict(), "stored": self.stored.index.state_dict()}
        return {"settings": self._settings(), **parts}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned; a state that is refused changes nothing."""
        came, own = state_dict["settings"], self._settings()
        if came != own:
            raise ValueError(
                f"Loading a replay beside stored rows: the state has {came}; expected {own}. Give stored_fraction and "
                "the stored_data of the run that saved it."
            )
        self.new.load_state_dict(state_dict["new"])
        self.stored.index.load_state_dict(state_dict["stored"])

    def _settings(self) -> StateDict:
        return {"stored_fraction": self.fraction, "checksum": self._checksum}
