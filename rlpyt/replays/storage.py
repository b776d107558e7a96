"""Storage of a replay: a ring buffer of rows, the same time steps for all environments.

Rows are stored as the sampler returned them, [T, B], final observations of episodes included. So the state that the
action of a row led to is always in the next row of the ring, across the border of two batches too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rlpyt.functional.checks import check_bool
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.replays.interface import Allocate, SamplesToBuffer
from rlpyt.replays.observations import DeviceCopy, FrameArray, WholeArray
from rlpyt.types import AgentInputs, RingRows, StateDict
from rlpyt.utils.arrays import (
    buffer_from_example,
    buffer_func,
    buffer_leaves,
    numpify_buffer,
    taken,
    torchify_buffer,
)

_PREVIOUS: dict[str, None] = {"prev_action": None, "prev_reward": None}
_KEPT_ELSEWHERE: dict[str, None] = {"observation": None, "prev_rnn_state": None, **_PREVIOUS}


class RowStorage:
    """Ring buffer of T x B rows in arrays.

    Row t of the ring holds the time steps t, t + T, t + 2T, ... of which the newest is kept.

    Args:
        example: one row, no leading dimensions.
        T: time steps to store.
        B: environments.
        n_frames: number of frames stacked in one observation. Each frame is stored once (see `FrameArray`); 1 stores
            whole observations. Where observations have fields, a number for all, or a tuple like the observation.
        rnn_state_interval: time steps between stored recurrent states; 0 stores none.
        allocate: makes the arrays from an example and leading dimensions; `buffer_from_example` keeps them private to
            the process.
        device: where a copy of the observations shall be, from which they are read; None for none. Then another
            process must not write.
    """

    def __init__(
        self,
        example: SamplesToBuffer,
        T: int,
        B: int,
        n_frames: Any = 1,
        rnn_state_interval: int = 0,
        allocate: Allocate = buffer_from_example,
        device: torch.device | None = None,
    ) -> None:
        if T < 1 or B < 1:
            raise ValueError(
                f"Building a replay storage: got T={T} time steps of B={B} environments; expected at least 1 of each. "
                "Raise replay_size or batch_B."
            )
        if rnn_state_interval and T % rnn_state_interval:
            raise ValueError(
                f"Building a replay storage: got T={T} time steps and rnn_state_interval={rnn_state_interval}; "
                f"expected a multiple of it, such as {-(-T // rnn_state_interval) * rnn_state_interval}. Correct T."
            )
        self.T, self.B, self.rnn_state_interval = T, B, rnn_state_interval
        self.rows: SamplesToBuffer = allocate(example._replace(**_KEPT_ELSEWHERE), (T, B))
        """Arrays [T, B] in ring order; observations and recurrent states are read by methods."""
        rows = self.rows
        check_bool("A replay's example", terminated=rows.terminated, truncated=rows.truncated, valid=rows.valid)

        def ring(example: np.ndarray, n: int) -> WholeArray:
            return WholeArray(example, T, B, allocate) if n == 1 else FrameArray(example, n, T, B, allocate)

        self._observations = _keepers(example.observation, n_frames, ring)
        self._copies = buffer_func(self._observations, DeviceCopy, B, device) if device is not None else None
        self.rows_before = max(1, *(keeper.rows_before for keeper in buffer_leaves(self._observations)))
        """Rows that must be held before a row for its agent inputs to be read."""
        kept = T // rnn_state_interval if rnn_state_interval else 0
        self._rnn_states = allocate(example.prev_rnn_state, (kept, B)) if kept else None
        self._example = named_leaves(numpify_buffer(example._replace(**self._left_out())))
        # Time steps written; whether a state was loaded and nothing was written since; time steps of which the write
        # has begun.
        self._written: np.ndarray = allocate(np.int64(0), (3,))

    @property
    def written(self) -> int:
        """Time steps written so far, overwritten ones included."""
        return int(self._written[0])

    @property
    def held(self) -> int:
        """Time steps held, at most T."""
        return min(self.written, self.T)

    @property
    def oldest(self) -> int:
        """Time index of the oldest step held."""
        return (self.written - self.held) % self.T

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, filled or not."""
        return sum(array.nbytes for array in self._arrays().values())

    # ---- writing ----

    def write(self, rows: SamplesToBuffer) -> None:
        """Write rows after the newest, over the oldest ones when full; of more than T time steps the newest T stay.

        An environment may be lost between two batches: its worker died, or it could not be restored when a run was
        resumed. Then the first new row is not valid and the row before it has no end. That row is marked as truncated.

        After a state was loaded, the first new row may come from restarted environments. It does where `prev_action`,
        `prev_reward` or the older frames of a stack do not match the newest row held. Then the newest row becomes a
        final row, as the observation after its action is unknown. Without these fields rows are taken to follow.

        Args:
            rows: [t, B] arrays or CPU tensors, any t; refused if they differ from the example.
        """
        first = numpify_buffer(rows[:1]) if self._written[1] else None
        rows = numpify_buffer(rows._replace(**self._left_out()))
        t = self._check(rows)
        if not t:
            return
        goes_on, steps = t <= self.T, rows.valid[0]
        rows = rows if goes_on else rows[t - self.T :]
        written, n = self.written, min(t, self.T)
        begin = (written + t - n) % self.T
        T_idxs = np.arange(begin, begin + n) % self.T
        at = slice(begin, begin + n) if begin + n <= self.T else T_idxs  # by a slice is quicker
        keepers, leaves = buffer_leaves(self._observations), buffer_leaves(rows.observation)
        follow = first is None or self._followed_by(first)
        checked = [keeper.check(leaf, follow and goes_on) for keeper, leaf in zip(keepers, leaves, strict=True)]
        self._written[1], self._written[2] = False, written + t
        if first is not None and not follow:
            self._end_newest(first)
        for keeper, *observations in zip(keepers, leaves, checked, strict=True):
            keeper.write(T_idxs, *observations)
        for copy in buffer_leaves(self._copies):
            copy.write(T_idxs)
        if written and not steps.all():
            last = (written - 1) % self.T
            self.rows.truncated[last] |= self.rows.valid[last] & ~self.rows.terminated[last] & ~steps
        self.rows[at] = rows._replace(**_KEPT_ELSEWHERE)
        if self._rnn_states is not None:
            kept = np.flatnonzero(T_idxs % self.rnn_state_interval == 0)
            for dest, leaf in zip(buffer_leaves(self._rnn_states), buffer_leaves(rows.prev_rnn_state), strict=True):
                dest[T_idxs[kept] // self.rnn_state_interval] = leaf[kept]
        self._written[0] += t

    def _left_out(self) -> dict[str, None]:
        """Return the fields of rows that are not stored."""
        return _PREVIOUS if self.rnn_state_interval else {**_PREVIOUS, "prev_rnn_state": None}

    def _followed_by(self, first: SamplesToBuffer) -> bool:
        """Return whether the first new row, [1, B], may follow the newest row held."""
        if not self.held or first.prev_action is None or first.prev_reward is None:
            return True
        rows, last = self.rows, (self.written - 1) % self.T
        goes_on = ~(rows.terminated[last] | rows.truncated[last])
        for keeper, leaf in zip(buffer_leaves(self._observations), buffer_leaves(first.observation), strict=True):
            goes_on &= keeper.follows(leaf[0])
        pairs = ((rows.action, first.prev_action), (rows.reward, first.prev_reward))
        for held, came in zip(*(buffer_leaves(side) for side in zip(*pairs, strict=True)), strict=True):
            same = held[last] == came[0].astype(held.dtype)
            goes_on &= same.reshape(self.B, -1).all(axis=1)
        # Either all environments were restored or none. A null action without reward matches in both cases.
        return bool(goes_on[rows.valid[last] & first.valid[0]].all())

    def _end_newest(self, first: SamplesToBuffer) -> None:
        """End the episodes of the newest row held, as the first new row, [1, B], does not follow it."""
        rows, last = self.rows, (self.written - 1) % self.T
        valid = rows.valid[last].copy()
        if self.held > 1:
            rows.truncated[last - 1] |= valid & rows.valid[last - 1] & ~rows.terminated[last - 1]
        for flag in (rows.terminated, rows.truncated, rows.valid):
            flag[last, valid] = False
        rows.action[last, valid], rows.reward[last, valid] = first.prev_action[0, valid], 0.0

    def break_off(self) -> None:
        """Take the rows that come next for those of other environments, whose older frames are unknown at first."""
        for keeper in buffer_leaves(self._observations):
            keeper.go_on((self.written - 1) % self.T, None)

    # ---- reading ----

    def observation(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Buffer:
        """Return observations at time indexes and environments, which are broadcast against each other."""
        return buffer_func(self._copies or self._observations, lambda ring: ring.read(T_idxs, B_idxs))

    def field(self, name: str, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return a field of observations that are dictionaries, an array of numpy, as `observation` does."""
        ring: WholeArray = self._observations[name]
        return ring.read(T_idxs, B_idxs)

    def agent_inputs(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> AgentInputs:
        """Return what the agent was given at rows; `rows_before` rows before each must be held.

        At an episode's start the row before is a final row, with null action and zero reward. These are the
        prev_action and prev_reward that the agent was given there.
        """
        before = (T_idxs - 1) % self.T
        action, reward = taken((self.rows.action, self.rows.reward), before, B_idxs)
        return AgentInputs(self.observation(T_idxs, B_idxs), action, reward)

    def rnn_state(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Buffer:
        """Return the recurrent states before rows [M] that have one stored; None if none are stored."""
        return None if self._rnn_states is None else self._rnn_states[T_idxs // self.rnn_state_interval, B_idxs]

    # ---- state ----

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by name, [T, B, ...] or [T / rnn_state_interval, B, ...]."""
        arrays = named_leaves(self.rows)
        for name, keeper in named_leaves(self._observations, "observation").items():
            arrays |= {f"{name}.{part}": array for part, array in keeper.arrays().items()}
        return arrays | named_leaves(self._rnn_states, "prev_rnn_state")

    def _held_arrays(self, written: int) -> dict[str, np.ndarray]:
        """Return the filled part of all arrays after `written` steps."""
        held = min(written, self.T)
        arrays = self._arrays().items()
        return {name: array[: -(-held * len(array) // self.T)] for name, array in arrays}

    def state_dict(self) -> StateDict:
        """Return the rows held, as tensors that share the arrays' memory, and the number of steps written."""
        arrays = {name: torch.from_numpy(array) for name, array in self._held_arrays(self.written).items()}
        newest = [keeper.newest() for keeper in buffer_leaves(self._observations)]
        rows = RingRows(
            T=self.T,
            written=self.written,
            arrays=arrays,
            intervals={name: self.T // len(array) for name, array in self._arrays().items()},
            newest=torchify_buffer(tuple(newest)),
        )
        rows.now = lambda: int(self._written[2])
        return rows

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned; refuse that of a storage of another size or with other fields."""
        own = self._held_arrays(state_dict["written"])
        rows = state_dict if isinstance(state_dict, RingRows) else RingRows(state_dict)
        came = rows.specs()
        fits = {name: (array.shape, str(array.dtype)) for name, array in own.items()}
        if state_dict["T"] != self.T or came != fits:
            raise ValueError(
                f"Loading a replay: got T={state_dict['T']} with {came}; expected T={self.T} with {fits}. Build the "
                "algorithm with the replay_size, batch_B and environment of the run that saved it."
            )
        rows.read_into(own)
        self._written[:] = state_dict["written"], True, state_dict["written"]
        newest = numpify_buffer(tuple(state_dict["newest"]))
        for keeper, row in zip(buffer_leaves(self._observations), newest, strict=True):
            keeper.go_on((self.written - 1) % self.T, row)
        for copy in buffer_leaves(self._copies):
            copy.write_all()

    # ---- checks ----

    def check_valid(self) -> tuple[bool, str]:
        """Return whether the rows held follow the row convention, and a sentence about the first that does not."""
        order = (self.oldest + np.arange(self.held)) % self.T
        reward, terminated, truncated, valid = (
            x[order] for x in (self.rows.reward, self.rows.terminated, self.rows.truncated, self.rows.valid)
        )
        done = terminated | truncated
        broken = {
            "is valid, after a row that ended an episode": valid[1:] & done[:-1],
            "is not valid but ends an episode": ~valid & done,
            "is not valid but has a reward": ~valid & (reward != 0),
        }
        for what, where in broken.items():
            if where.any():
                age, b = np.argwhere(where)[0] + (len(valid) - len(where), 0)
                return False, f"Row [{order[age]}, {b}] {what}."
        return True, ""

    def _check(self, rows: SamplesToBuffer) -> int:
        """Return the number of time steps; refuse rows with other fields, shapes or dtypes than the example."""
        came = named_leaves(rows)
        shapes = {name: leaf.shape for name, leaf in came.items()}
        t = shapes.get("reward", ())[:1]
        if shapes != {name: (*t, self.B, *leaf.shape) for name, leaf in self._example.items()}:
            expected = {name: ("T", self.B, *leaf.shape) for name, leaf in self._example.items()}
            raise ValueError(
                f"Appending to a replay of {self.B} environments: got {shapes}; expected {expected}, as its example. "
                "Was the replay built for another batch_B or another environment?"
            )
        for name, leaf in self._example.items():
            if not np.can_cast(came[name].dtype, leaf.dtype, "same_kind"):
                raise TypeError(
                    f"Appending to a replay: got {name} of dtype {came[name].dtype}; expected {leaf.dtype}, the "
                    "example's. Convert it, or build the replay from a row of these samples."
                )
        return t[0]


Storage = RowStorage
"""Storage that a reading reads from."""


def _keepers(example: Buffer, n_frames: Any, make: Callable[[np.ndarray, int], WholeArray]) -> Buffer:
    """Return a ring buffer for each array of the observations, in the structure of an observation."""
    if not isinstance(example, tuple):
        return make(np.asarray(example), int(n_frames))
    numbers = n_frames if isinstance(n_frames, tuple) else (n_frames,) * len(example)
    if len(numbers) != len(example):
        raise ValueError(
            f"Building a replay storage: got n_frames={n_frames} for an observation of {len(example)} fields; expected "
            "a number for each of them, or one for all."
        )
    keepers = [_keepers(*pair, make) for pair in zip(example, numbers, strict=True)]
    return type(example)(*keepers) if isinstance(example, NamedArrayTuple) else tuple(keepers)


def named_leaves(buffer: Buffer, name: str = "") -> dict[str, Any]:
    """Return the leaves of a buffer under their paths, such as "observation.image"; None is left out."""
    if buffer is None:
        return {}
    if not isinstance(buffer, tuple):
        return {name: buffer}
    children = buffer.items() if isinstance(buffer, NamedArrayTuple) else enumerate(buffer)
    prefix = f"{name}." if name else ""
    return {path: leaf for key, child in children for path, leaf in named_leaves(child, f"{prefix}{key}").items()}
