"""Replay buffer made of a storage, an index and a reading."""

from __future__ import annotations

from copy import copy as copy_of
from typing import Any

import numpy as np
import torch

from rlpyt.core import Replay
from rlpyt.functional import sequence_priority
from rlpyt.namedarraytuple import Buffer
from rlpyt.old_rlpyt import tells_old_attributes
from rlpyt.replays.index import Index
from rlpyt.replays.interface import Allocate, SamplesToBuffer
from rlpyt.replays.reading import Reading, ReplayBatch
from rlpyt.replays.storage import RowStorage
from rlpyt.types import Places, StateDict
from rlpyt.utils.arrays import buffer_from_example, numpify_buffer, torchify_buffer
from rlpyt.utils.rw_lock import NoLock


@tells_old_attributes
class ReplayBuffer(Replay):
    """Replay buffer of rows, which returns batches of transitions or sequences.

    A start index can be drawn only if all rows it reads are held, including the earlier rows needed for frame stacks
    and prev_action. The oldest row of all is never drawn, even before anything was overwritten. The row before it is
    unknown, as environments may have been stepped before the first batch (`max_decorrelation_steps`).

    Args:
        storage: stores the rows.
        index: draws start indexes.
        reading: makes a batch of the rows at start indexes.
        discount: gamma in [0, 1]; may be set at any time.
        input_priorities: whether new start indexes get priorities from the errors given to `append_samples`.
        eta: weight of the largest against the mean TD error in these priorities; may be set at any time.
        allocate: makes the arrays of the index, and of the errors; `buffer_from_example` keeps them private to the
            process.
        lock: taken to read and to write, where other processes have the replay too. Then storage and index must lie in
            shared memory. Pickled by `rlpyt.utils.shared_memory.dumps`, a replay holds the same rows and priorities in
            another process. A process that draws there must be given a random stream of its own (`index.rng`).
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
        allocate: Allocate = buffer_from_example,
        lock: NoLock | None = None,
    ) -> None:
        _check_fractions("Building a replay", discount=discount, eta=eta)
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
        # A full ring may have lost the first of the interval rows that begin before its oldest row.
        room = storage.rows_before + reading.interval + reading.rows_after
        if room > storage.T:
            raise ValueError(
                f"Building a replay: got room for {storage.T} rows of each of {storage.B} environments; expected at "
                f"least {room}, as {storage.rows_before} + 1 + {reading.rows_after} of them are read at once and every "
                f"{reading.interval}. row is a place to begin. Raise replay_size to {room * storage.B} or more."
            )
        if input_priorities and not index.takes_priorities:
            raise ValueError("Building a replay: got input_priorities without a prioritised index; expected both.")
        self.storage, self.index, self.reading = storage, index, reading
        self.lock = lock or NoLock()
        self.discount, self.eta = discount, eta
        index.initialize(storage.T // reading.interval, storage.B, reading.may_begin(storage), allocate)
        size = storage.T, storage.B
        self._td_abs_error: np.ndarray | None = allocate(np.float32(0), size) if input_priorities else None

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over the attributes of a copy; views of the rows are arrays of their own there, and are made again."""
        for name, value in state.items():
            setattr(self, name, value)
        self.index.see(self.reading.may_begin(self.storage))

    def __len__(self) -> int:
        """Return the rows held, over all environments."""
        return self.storage.held * self.storage.B

    @property
    def takes_priorities(self) -> bool:
        """Whether `update_priorities` changes what is drawn."""
        return self.index.takes_priorities

    @property
    def size(self) -> int:
        """Rows that it can hold, all environments counted."""
        return self.storage.T * self.storage.B

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, filled or not."""
        return self.storage.nbytes

    @property
    def least_rows(self) -> int:
        """Rows of each environment that must be held before anything can be drawn."""
        # The first start index with all rows before it, and the rows that are read from there on.
        return -(-self.storage.rows_before // self.interval) * self.interval + 1 + self.reading.rows_after

    @property
    def interval(self) -> int:
        """Rows from one start index to the next."""
        return self.reading.interval

    @property
    def n_priorities_dropped(self) -> int:
        """Priorities so far that came after their rows had been overwritten."""
        return self.index.n_priorities_dropped

    def set_hyper(
        self,
        *,
        discount: float | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        eta: float | None = None,
    ) -> None:
        """Set hyper-parameters at any time; see `rlpyt.core.Replay.set_hyper`.

        Another alpha raises all stored priorities to it, which takes 20 ms for a million.
        """
        _check_fractions("Setting hyper-parameters of a replay", discount=discount, beta=beta, eta=eta)
        if alpha is not None and alpha != self.index.alpha:
            with self.lock.writing:
                self.index.alpha = alpha
        if beta is not None:
            self.index.beta = beta
        self.discount = self.discount if discount is None else discount
        self.eta = self.eta if eta is None else eta

    def append_samples(self, samples: SamplesToBuffer, td_abs_error: Buffer = None) -> None:
        """Write [T, B] rows after the newest, over the oldest ones when full; see `RowStorage.write`.

        Args:
            samples: the rows.
            td_abs_error: with input priorities, absolute TD errors [T, B]. They belong to the T newest rows whose
                n-step returns are complete, so the last of them to the row n_step_return rows before the newest.
        """
        with self.lock.writing:
            if self._td_abs_error is None:
                self.storage.write(samples)
            else:
                errors = self._checked_errors(td_abs_error, np.shape(samples.reward))
                self.storage.write(samples)
                self._write_errors(errors)
            first, end = self._reach()
            priorities = None if self._td_abs_error is None else self._input_priorities(max(first, self.index.end), end)
            self.index.move(first, end, priorities)

    def appending_copy(self) -> ReplayBuffer:
        """Return a copy that appends to the same rows in another process, and draws nothing: it has no stream."""
        if not self.lock.shared:
            raise TypeError(
                f"{type(self).__name__}: another process was to append to it, and it has no lock; expected one. Give "
                "lock=RwLock(roles), and an allocator of shared memory to storage and replay."
            )
        copy = copy_of(self)
        copy.index = copy_of(self.index)
        del copy.index.rng
        return copy

    def _reach(self) -> tuple[int, int]:
        """Return the first start index that can be drawn now, and the one after the last."""
        storage, interval = self.storage, self.interval
        first = -(-(storage.written - storage.held + storage.rows_before) // interval)
        return first, max(first, -(-(storage.written - self.reading.rows_after) // interval))

    def _checked_errors(self, td_abs_error: Buffer, shape: tuple[int, ...]) -> np.ndarray:
        errors = None if td_abs_error is None else np.asarray(numpify_buffer(td_abs_error), np.float32)
        if errors is None or errors.shape != shape:
            raise ValueError(
                f"Appending to a replay with input priorities: got td_abs_error "
                f"{'None' if errors is None else f'of shape {errors.shape}'}; expected the samples' {shape}. Give the "
                "absolute TD errors with the samples, or build the replay with input_priorities=False."
            )
        return errors

    def _write_errors(self, errors: np.ndarray) -> None:
        """Store the errors of the newest rows for which they are known."""
        assert self._td_abs_error is not None
        last = self.storage.written - self.reading.n_step_return
        rows = np.arange(last - len(errors), last)
        kept = (rows >= 0) & (rows >= self.storage.written - self.storage.T)
        T_idxs, errors = rows[kept] % self.storage.T, errors[kept]
        # Rows that are not trained on may have any error. Of two comparisons NaN fails both.
        wrong = self.storage.rows.valid[T_idxs] & ~((errors >= 0) & (errors < np.inf))
        if wrong.any():
            raise ValueError(
                f"Appending to a replay with input priorities: got td_abs_error {errors[wrong][:5].tolist()} in valid "
                "rows; expected finite numbers from 0. Has the loss diverged?"
            )
        self._td_abs_error[T_idxs] = errors

    def _input_priorities(self, first: int, end: int) -> np.ndarray:
        """Return the priorities [end - first, B] of start indexes, from the errors of the rows trained on there."""
        assert self._td_abs_error is not None
        storage, reading = self.storage, self.reading
        places = np.arange(first, end) * reading.interval
        T_idxs = (places + np.array(reading.trained)[:, None]) % storage.T
        error, valid = torch.from_numpy(self._td_abs_error[T_idxs]), torch.from_numpy(storage.rows.valid[T_idxs])
        return sequence_priority(error, valid, self.eta).numpy()

    def sample_batch(self, batch_size: int) -> Buffer:
        """Draw transitions (`SamplesFromReplay`) or sequences (`SequencesFromReplay`), CPU tensors.

        Raises:
            RuntimeError: if nothing can be drawn yet.
        """
        with self.lock.writing if self.index.writes_to_draw else self.lock.reading:
            if self.index.end <= self.index.first:
                least = self.least_rows
                raise RuntimeError(
                    f"Sampling from a replay: got {self.storage.held} rows of each of {self.storage.B} environments; "
                    f"expected at least {least}, so that {self.reading.rows_after} rows follow the first that can be "
                    f"drawn. Append more samples first (raise min_steps_learn to {least * self.storage.B} or more)."
                )
            starts, B_idxs, weights = self.index.draw(batch_size)
            batch = self.extract_batch(starts * self.interval % self.storage.T, B_idxs)
        places = Places(torch.from_numpy(starts), torch.from_numpy(B_idxs))
        return batch._replace(places=places, is_weights=torchify_buffer(weights))

    def extract_batch(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> ReplayBatch:
        """Return the batch that begins at given rows, without places and weights.

        Args:
            T_idxs: [M] int64, time indexes of the ring that are start indexes in reach.
            B_idxs: [M] int64, environments.
        """
        return torchify_buffer(self.reading.read(self.storage, T_idxs, B_idxs, self.discount))

    def update_priorities(self, places: Places, priorities: torch.Tensor) -> None:
        """Set the priorities [M] of rows or sequences drawn before; see `rlpyt.core.Replay.update_priorities`."""
        with self.lock.writing:
            self.index.update_priorities(numpify_buffer(places), numpify_buffer(priorities))

    def check_valid(self) -> tuple[bool, str]:
        """Return whether the rows held follow the row convention, and a sentence about the first that does not."""
        with self.lock.reading:
            return self.storage.check_valid()

    def settings(self) -> dict[str, Any]:
        """Return how rows are read and drawn: a state must agree with it to be loaded."""
        own = {"input_priorities": self._td_abs_error is not None}
        return {**self.reading.settings(), **self.index.settings(), **own}

    def state_dict(self) -> StateDict:
        """Return rows held (tensors that share the replay's memory), priorities, counters, stream and settings."""
        state = {
            "settings": self.settings(),
            "storage": self.storage.state_dict(),
            "index": self.index.state_dict(),
        }
        return state if self._td_abs_error is None else {**state, "td_abs_error": torch.from_numpy(self._td_abs_error)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned; a state that is refused changes nothing."""
        came, own = state_dict["settings"], self.settings()
        unlike = {name: (came.get(name), own.get(name)) for name in {**own, **came} if came.get(name) != own.get(name)}
        if unlike:
            each = "; ".join(f"{name} {saved!r}, expected {here!r}" for name, (saved, here) in unlike.items())
            raise ValueError(
                f"Loading a replay: the state has {each}. Build the algorithm with the n_step_return, lengths of "
                "sequences and priorities of the run that saved it."
            )
        self.storage.load_state_dict(state_dict["storage"])
        self.index.set_range(*self._reach())
        self.index.load_state_dict(state_dict["index"])
        if self._td_abs_error is not None:
            self._td_abs_error[:] = np.asarray(state_dict["td_abs_error"])


def _check_fractions(what: str, **numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not 0 <= number <= 1:
            raise ValueError(f"{what}: got {name}={number}; expected a number in [0, 1]. Correct it.")
