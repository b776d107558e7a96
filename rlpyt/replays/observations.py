"""Ring buffers of observations: whole arrays, or the frames of stacks, each stored once."""

from __future__ import annotations

import numpy as np
import torch

from rlpyt.replays.interface import Allocate
from rlpyt.utils.arrays import taken
from rlpyt.utils.device_copy import CopyToDevice

_FROM_FIRST = 0x80  # flag beside the reach of a row, see FrameArray; so a reach is at most 0x7F
_LOAD_BYTES = 1 << 26  # that go to a device at once after a state was loaded


class WholeArray:
    """Ring buffer of one array of the observations, [T, B] rows, each stored whole; the base of `FrameArray`."""

    rows_before: int = 0
    """Rows that must be held before a row for it to be read."""

    def __init__(self, example: np.ndarray, T: int, B: int, allocate: Allocate) -> None:
        self._rows = allocate(example, (T, B))
        self.shape: tuple[int, ...] = self._rows.shape[2:]
        """Of one observation."""

    @property
    def flat(self) -> np.ndarray:
        """What observations are made of, [N, ...]; from t * B on, what was written at time index t.

        A view made at each call: a copy of the ring buffer would have a view that it keeps as an array of its own.
        """
        return self._rows.reshape(self._rows.shape[0] * self._rows.shape[1], *self.shape)

    def check(self, rows: np.ndarray, goes_on: bool) -> np.ndarray | None:
        """Refuse rows that `read` could not return, before any array is written to; return what `write` is given.

        Args:
            rows: [t, B, ...], t from 1.
            goes_on: whether they follow the rows written last, with none between them that is not stored.
        """
        return None

    def follows(self, row: np.ndarray) -> np.ndarray:
        """Return which environments' rows [B, ...] may follow the row written last, [B] bool; refuses nothing."""
        return np.ones(len(row), bool)

    def write(self, T_idxs: np.ndarray, rows: np.ndarray, checked: np.ndarray | None) -> None:
        """Write rows [t, B, ...] at time indexes [t] of the ring, t at most T; `check` gave the rest."""
        self._rows[T_idxs] = rows

    def places(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return where in `flat` the parts of observations at rows are, [..., n_frames] int64."""
        return np.asarray(T_idxs * self._rows.shape[1] + B_idxs)[..., None]

    def read(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the observations at rows, [..., *shape]; the indexes are broadcast against each other."""
        rows: np.ndarray = taken(self._rows, T_idxs, B_idxs)
        return rows

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the stored arrays by name, [T, B, ...] each."""
        return {"rows": self._rows}

    def newest(self) -> np.ndarray | None:
        """Return the argument `newest` of `go_on`; None where it needs none."""
        return None

    def go_on(self, T_idx: int, newest: np.ndarray | None) -> None:
        """Continue after a state was loaded into the arrays; its newest row, with `newest`, is at a time index."""


class FrameArray(WholeArray):
    """Ring buffer that stores the newest frame of every row, and rebuilds the frame stack from the rows before it.

    The reach of a row is the number of rows before it that its older frames are taken from. `check` finds the reach by
    comparison. A stack continues where its older frames are the newer frames of the row before. Otherwise an episode
    has begun: its older frames are black, or copies of the first frame. So `read` returns the bytes that were written,
    for any start of an episode and after the loss of a life. There is one exception. Rows that follow no row held and
    begin in the middle of an episode have unknown older frames. There the first n_frames - 1 rows read them as black.

    Args:
        example: of one row, [n_frames * k, ...], oldest frame first.
        n_frames: number of frames in a stack, 1 to 128.
        T: time steps.
        B: environments.
        allocate: makes the arrays.
    """

    def __init__(self, example: np.ndarray, n_frames: int, T: int, B: int, allocate: Allocate) -> None:
        if not 1 <= n_frames <= _FROM_FIRST or not example.ndim or example.shape[0] % n_frames:
            raise ValueError(
                f"Building a frame storage: got observations of shape {example.shape} and n_frames={n_frames}; "
                f"expected the first dimension to hold that many frames one after the other, 1 to {_FROM_FIRST}. "
                "Correct frame_stack, or give 1."
            )
        self.n_frames, self._T, self._B = n_frames, T, B
        self.shape = example.shape
        k = example.shape[0] // n_frames
        self.rows_before = n_frames - 1
        # The last frame stays black; the others belong to rows.
        self._frames = allocate(example[:k], (T * B + 1,))
        self._reach = allocate(np.uint8(0), (T, B))
        # For every value of a reach with its flag: how many rows back each frame lies, and which frames are black.
        codes, back = np.arange(256)[:, None], np.arange(n_frames - 1, -1, -1)
        self._back = np.minimum(back, codes % _FROM_FIRST)
        self._black = (back > codes % _FROM_FIRST) & (codes < _FROM_FIRST)
        # The newest row, [B, n_frames, ...], to compare the next with; its reach; whether there is one.
        self._last: np.ndarray = allocate(self._split(example), (B,))
        self._last_code: np.ndarray = allocate(np.uint8(0), (B,))
        self._has_last: np.ndarray = allocate(np.bool_(False), (1,))

    @property
    def flat(self) -> np.ndarray:
        """All frames, each in one dimension."""
        return self._frames.reshape(len(self._frames), -1)

    @property
    def _rings(self) -> np.ndarray:
        return self._frames[:-1].reshape(self._T, self._B, *self._frames.shape[1:])

    def _split(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [..., n_frames * k, ...] as [..., n_frames, k, ...]."""
        lead = rows.shape[: rows.ndim - len(self.shape)]
        return rows.reshape(*lead, self.n_frames, self.shape[0] // self.n_frames, *self.shape[1:])

    def check(self, rows: np.ndarray, goes_on: bool) -> np.ndarray:
        """Return the reach of every row, [t, B] uint8 with its flag; refuse rows that are no frame stacks."""
        stacks = self._split(rows)
        t, most = len(stacks), self.n_frames - 1
        steps = np.arange(t)[:, None]
        if goes_on and self._has_last[0]:
            before, n_unknown = _follows(stacks[:1], self._last[None]), 0
        else:
            before, n_unknown = np.zeros((1, self._B), bool), 1
        reach, from_first = self._last_code & ~np.uint8(_FROM_FIRST), self._last_code & _FROM_FIRST > 0
        follows = np.concatenate([before, _follows(stacks[1:], stacks[:-1])])
        repeats = self._repeats_first(stacks, ~follows, n_unknown)
        # The time of the last break up to each row, below 0 where that lies before these rows.
        breaks = np.maximum.accumulate(np.where(follows, -1 - reach.astype(np.int64), steps), axis=0)
        inside = np.take_along_axis(repeats, np.maximum(breaks, 0), axis=0)
        flag = np.where(breaks < 0, from_first, inside) * np.uint8(_FROM_FIRST)
        return np.minimum(steps - breaks, most).astype(np.uint8) | flag.astype(np.uint8)

    def follows(self, row: np.ndarray) -> np.ndarray:
        """Return where the older frames of a row are the newer frames of the row written last."""
        return _follows(self._split(row)[None], self._last[None])[0] if self._has_last[0] else super().follows(row)

    def write(self, T_idxs: np.ndarray, rows: np.ndarray, checked: np.ndarray | None) -> None:
        """Write the newest frame of every row."""
        stacks = self._split(rows)
        self._reach[T_idxs] = checked
        self._rings[T_idxs] = stacks[:, :, -1]
        self._keep_last(stacks[-1], T_idxs[-1])

    def places(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return where the frames of stacks are; a black frame is one like any other."""
        code = self._reach[T_idxs, B_idxs]
        places: np.ndarray = (T_idxs[..., None] - self._back[code]) % self._T * self._B + B_idxs[..., None]
        places[self._black[code]] = len(self.flat) - 1
        return places

    def read(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the stacks at rows."""
        places = self.places(T_idxs, B_idxs)
        return self.flat.take(places, axis=0).reshape(*places.shape[:-1], *self.shape)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return frames and reach."""
        return {"frames": self._rings, "reach": self._reach}

    def newest(self) -> np.ndarray | None:
        """Return the newest stack of every environment."""
        return self._last if self._has_last[0] else None

    def go_on(self, T_idx: int, newest: np.ndarray | None) -> None:
        """Compare the next row with the newest one."""
        self._has_last[0] = newest is not None
        if newest is not None:
            self._keep_last(newest, T_idx)

    def _keep_last(self, stack: np.ndarray, T_idx: int) -> None:
        self._last[:], self._last_code[:], self._has_last[0] = stack, self._reach[T_idx], True

    def _repeats_first(self, stacks: np.ndarray, breaks: np.ndarray, n_unknown: int) -> np.ndarray:
        """Return where [t, B] the first stack of an episode repeats its first frame; the others have to be black.

        Args:
            stacks: [t, B, n_frames, ...].
            breaks: [t, B] bool, where a stack does not continue.
            n_unknown: number of first rows whose row before is unknown; none of them is refused.
        """
        starts = stacks[breaks]
        axes = tuple(range(1, starts.ndim))
        black = ~starts[:, :-1].any(axis=axes)
        repeats = (starts[:, :-1] == starts[:, -1:]).all(axis=axes)
        places = np.argwhere(breaks)
        wrong = ~(black | repeats) & (places[:, 0] >= n_unknown)
        if wrong.any():
            t, b = places[np.argmax(wrong)]
            raise ValueError(
                f"Appending to a replay of single frames: the observation {t} rows into the samples of environment {b} "
                f"is no stack of {self.n_frames} frames: its older ones are neither the newer ones of the row before, "
                "nor black, nor copies of its newest. Are these colours instead of frames, or does a wrapper change "
                "old frames? Give frame_stack=1 to keep whole observations."
            )
        result = np.zeros(breaks.shape, bool)
        result[breaks] = repeats & ~black
        return result


def _follows(stacks: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return where [t, B] the older frames of stacks [t, B, n_frames, ...] are the newer frames of `before`."""
    return (stacks[:, :, :-1] == before[:, :, 1:]).all(axis=tuple(range(2, stacks.ndim)))


class DeviceCopy:
    """Copy of a ring buffer's observations on a device, from which they are read there."""

    def __init__(self, ring: WholeArray, B: int, device: torch.device) -> None:
        self._ring, self._B, self._device = ring, B, device
        self._allocate()

    def _allocate(self) -> None:
        # Made by a copy, so that it belongs to the stream of the copies, in which all that follows is done.
        flat = self._ring.flat
        one = torch.from_numpy(flat[:1])
        self._on_device = CopyToDevice(one, self._device, lambda x: x.new_zeros(flat.shape)).arrived()

    def write(self, T_idxs: np.ndarray) -> None:
        """Copy what was written at time indexes."""
        for run in np.split(T_idxs, np.flatnonzero(np.diff(T_idxs) != 1) + 1):
            self._copy(int(run[0]) * self._B, int(run[-1] + 1) * self._B)

    def write_all(self) -> None:
        """Copy all, after a state was loaded into the arrays."""
        flat = self._ring.flat
        step = max(1, _LOAD_BYTES // max(1, flat[:1].nbytes))
        for first in range(0, len(flat), step):
            self._copy(first, first + step)

    def read(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> torch.Tensor:
        """Return observations gathered on the device; only their places are copied there."""
        places = self._ring.places(T_idxs, B_idxs)
        at = torch.from_numpy(places.reshape(-1))
        rows: torch.Tensor = CopyToDevice(at, self._device, lambda at: self._on_device.index_select(0, at)).arrived()
        return rows.reshape(*places.shape[:-1], *self._ring.shape)

    def __getstate__(self) -> dict[str, object]:
        """Return the attributes of a copy, without those on the device: torch would copy them in another stream."""
        return {name: value for name, value in vars(self).items() if name != "_on_device"}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over the attributes of a copy, and copy what is in memory to the device."""
        for name, value in state.items():
            setattr(self, name, value)
        self._allocate()
        self.write_all()

    def _copy(self, first: int, end: int) -> None:
        rows = torch.from_numpy(self._ring.flat[first:end])
        CopyToDevice(rows, self._device, self._on_device[first:end].copy_).arrived()
