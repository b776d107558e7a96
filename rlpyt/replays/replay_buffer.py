"""The replay buffer, put together from a storage of rows, an index that draws, and what is read of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlpyt.core import Replay
from rlpyt.functional import sequence_priority
from rlpyt.old_methods import TellsOldAttributes
from rlpyt.replays.index import Index
from rlpyt.replays.reading import Reading, SamplesFromReplay, SequencesFromReplay
from rlpyt.replays.storage import RowStorage, SamplesToBuffer
from rlpyt.utils.arrays import numpify_buffer, torchify_buffer


class ReplayBuffer(TellsOldAttributes, Replay):
    """Keeps rows and gives back transitions or sequences of them.

    What is read from a place on can be drawn if the ring holds all its rows, and the rows before the first one that its
    observation and prev_action are made of. The oldest row is never drawn, even while nothing has been overwritten:
    what went before it is not known, as environments may have been stepped before the first batch
    (`max_decorrelation_steps`).

    Args:
        storage: where the rows lie.
        index: draws among the places where something may begin.
        reading: what is read from there on.
        discount: gamma in [0, 1]; may be changed at any time.
        input_priorities: whether new places get priorities from the errors that `append_samples` is given.
        eta: of `sequence_priority`, for these.

    Raises:
        ValueError: if discount is out of range, the storage is too small for anything to be drawn, or priorities are to
            come in and the index takes none.
    """

    def __init__(
        self,
        storage: RowStorage,
        index: Index,
        reading: Reading,
        *,
        discount: float,
        input_priorities: bool = False,
        eta: float = 0.9,
    ) -> None:
        if not 0 <= discount <= 1:
            raise ValueError(f"Building a replay: got discount={discount}; expected a number in [0, 1]. Correct it.")
        if storage.T % reading.interval:
            raise ValueError(
                f"Building a replay: got room for {storage.T} rows of each environment and places every "
                f"{reading.interval} rows; expected a multiple of it. Round the storage's T up."
            )
        if storage.rnn_state_interval and reading.interval % storage.rnn_state_interval:
            raise ValueError(
                f"Building a replay: got places every {reading.interval} rows and recurrent states kept every "
                f"{storage.rnn_state_interval}; expected a state at every place. Give both the same rnn_state_interval."
            )
        # Once full, the ring has lost up to interval - 1 rows of what begins at a place before its oldest row.
        room = storage.rows_before + reading.interval + reading.rows_after
        if room > storage.T:
            raise ValueError(
                f"Building a replay: got room for {storage.T} rows of each of {storage.B} environments; expected at "
                f"least {room}, as {storage.rows_before} + 1 + {reading.rows_after} of them are read at once and every "
                f"{reading.interval}. row is a place to begin. Raise replay_size to {room * storage.B} or more."
            )
        if input_priorities and not index.takes_priorities:
            raise ValueError("Building a replay: got input_priorities without a prioritised index; expected both.")
        self.storage, self.index, self.reading, self.discount, self.eta = storage, index, reading, discount, eta
        index.initialize(storage.T // reading.interval, storage.B, reading.may_begin(storage))
        self._td_abs_error = np.zeros((storage.T, storage.B), np.float32) if input_priorities else None

    @staticmethod
    def least(storage: RowStorage, reading: Reading) -> int:
        """Return the rows of each environment that must be held for something to be drawn."""
        # From the first row with all before it, up to the next place where something may begin, and to its end.
        return -(-storage.rows_before // reading.interval) * reading.interval + 1 + reading.rows_after

    def __len__(self) -> int:
        """Return the rows held, over all environments."""
        return self.storage.held * self.storage.B

    @property
    def size(self) -> int:
        """Rows that it can hold, over all environments."""
        return self.storage.T * self.storage.B

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, filled or not."""
        return self.storage.nbytes

    def append_samples(self, samples: SamplesToBuffer, td_abs_error: Any = None) -> None:
        """Write [T, B] rows at the cursor, over the oldest ones when full; see `RowStorage.write`.

        Args:
            samples: the rows.
            td_abs_error: with input priorities, the absolute TD errors [T, B] of the same number of rows, up to the one
                that lies n_step_return rows before the end of what is written now: the newest that are known.

        Raises:
            ValueError: if the samples are unlike the example, or td_abs_error is missing, has another shape, or is
                negative or not finite in a valid row.
        """
        if self._td_abs_error is None:
            self.storage.write(samples)
        else:
            errors = self._checked_errors(td_abs_error, np.shape(samples.reward))
            self.storage.write(samples)
            self._write_errors(errors)
        first, end = self._reach()
        priorities = None if self._td_abs_error is None else self._input_priorities(max(first, self.index.end), end)
        self.index.move(first, end, priorities)

    def _reach(self) -> tuple[int, int]:
        """Return the first place that can be drawn now, and the one after the last."""
        storage, interval = self.storage, self.reading.interval
        first = -(-(storage.written - storage.held + storage.rows_before) // interval)
        return first, max(first, -(-(storage.written - self.reading.rows_after) // interval))

    def _checked_errors(self, td_abs_error: Any, shape: tuple[int, ...]) -> np.ndarray:
        errors = None if td_abs_error is None else np.asarray(numpify_buffer(td_abs_error), np.float32)
        if errors is None or errors.shape != shape:
            raise ValueError(
                f"Appending to a replay with input priorities: got td_abs_error "
                f"{'None' if errors is None else f'of shape {errors.shape}'}; expected the samples' {shape}. Give the "
                "absolute TD errors with the samples, or build the replay with input_priorities=False."
            )
        return errors

    def _write_errors(self, errors: np.ndarray) -> None:
        """Keep errors of the newest rows for which they are known."""
        assert self._td_abs_error is not None
        last = self.storage.written - self.reading.n_step_return
        rows = np.arange(last - len(errors), last)
        kept = (rows >= 0) & (rows >= self.storage.written - self.storage.T)
        T_idxs, errors = rows[kept] % self.storage.T, errors[kept]
        # What stands in rows that are not trained on is arbitrary; of two comparisons NaN fails both.
        wrong = self.storage.rows.valid[T_idxs] & ~((errors >= 0) & (errors < np.inf))
        if wrong.any():
            raise ValueError(
                f"Appending to a replay with input priorities: got td_abs_error {errors[wrong][:5].tolist()} in valid "
                "rows; expected finite numbers from 0. Has the loss diverged?"
            )
        self._td_abs_error[T_idxs] = errors

    def _input_priorities(self, first: int, end: int) -> np.ndarray:
        """Return the priorities [end - first, B] of places from the errors of the rows that are trained on there."""
        assert self._td_abs_error is not None
        storage, reading = self.storage, self.reading
        places = np.arange(first, end) * reading.interval
        T_idxs = (places + np.array(reading.trained)[:, None]) % storage.T
        error, valid = torch.from_numpy(self._td_abs_error[T_idxs]), torch.from_numpy(storage.rows.valid[T_idxs])
        return sequence_priority(error, valid, self.eta).numpy()

    def sample_batch(self, batch_size: int) -> Any:
        """Draw transitions (`SamplesFromReplay`), or sequences (`SequencesFromReplay`).

        Raises:
            ValueError: if batch_size is below 1.
            RuntimeError: if there is nothing yet that can be drawn.
        """
        if self.index.end <= self.index.first:
            least = self.least(self.storage, self.reading)
            raise RuntimeError(
                f"Sampling from a replay: got {self.storage.held} rows of each of {self.storage.B} environments; "
                f"expected at least {least}, so that {self.reading.rows_after} rows follow the first that can be "
                f"drawn. Append more samples first (raise min_steps_learn to {least * self.storage.B} or more)."
            )
        drawn = self.index.draw(batch_size)
        batch = self.extract_batch(drawn.S_idxs * self.reading.interval, drawn.B_idxs)
        return batch if drawn.is_weights is None else batch._replace(is_weights=torch.from_numpy(drawn.is_weights))

    def extract_batch(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> SamplesFromReplay | SequencesFromReplay:
        """Return what begins at given rows, [M]; the rows must be ones that can be drawn."""
        return torchify_buffer(self.reading.read(self.storage, T_idxs, B_idxs, self.discount))

    def update_batch_priorities(self, priorities: Any) -> None:
        """Set the priorities [M] of what `sample_batch` returned last; see `PrioritizedIndex.update_priorities`.

        Raises:
            TypeError: if the index takes none.
        """
        self.index.update_priorities(numpify_buffer(priorities))

    def check_valid(self) -> tuple[bool, str]:
        """Return whether the rows held are as the row convention says, and where they are not."""
        return self.storage.check_valid()

    def settings(self) -> dict[str, Any]:
        """Return what a state must agree with to be loaded, beside the size: how rows are read and drawn."""
        own = {"input_priorities": self._td_abs_error is not None}
        return {**self.reading.settings(), **self.index.settings(), **own}

    def state_dict(self) -> dict[str, Any]:
        """Return rows held (tensors that share the replay's memory), cursor, random stream, priorities and settings."""
        state = {
            "settings": self.settings(),
            "storage": self.storage.state_dict(),
            "index": self.index.state_dict(),
        }
        return state if self._td_abs_error is None else {**state, "td_abs_error": torch.from_numpy(self._td_abs_error)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; where that is refused, nothing was changed.

        Raises:
            ValueError: if it comes from a replay of another size, with other fields, or read or drawn in another way.
        """
        came, own = state_dict["settings"], self.settings()
        unlike = {name: (came.get(name), own.get(name)) for name in {**own, **came} if came.get(name) != own.get(name)}
        if unlike:
            each = "; ".join(f"{name} {saved!r}, expected {here!r}" for name, (saved, here) in unlike.items())
            raise ValueError(
                f"Loading a replay: the state has {each}. Build the algorithm with the n_step_return, lengths of "
                "sequences and priorities of the run that saved it."
            )
        self.storage.load_state_dict(state_dict["storage"])
        self.index.first, self.index.end = self._reach()
        self.index.load_state_dict(state_dict["index"])
        if self._td_abs_error is not None:
            self._td_abs_error[:] = np.asarray(state_dict["td_abs_error"])
