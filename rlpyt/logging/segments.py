"""Segments of a ring buffer on a disk: files of rows by their number in the run, each written once.

A save writes only the rows that are new since the last one. A segment is removed when no checkpoint names it any more.
The newest rows of a ring are in no segment, as the next write may still change them. They are copied when a save
begins.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar, cast

import numpy as np
import torch

from rlpyt.logging.files import replace_file
from rlpyt.run_records import open_to_read, printable
from rlpyt.types import RingRows, StateDict
from rlpyt.utils.processes import available_cores

SEGMENTS_A_RING = 16
"""A segment has at most this part of the ring's rows, so that the disk holds little more than the ring."""
OPEN_ROWS = 2
"""Newest rows of a ring that the next write may change: it may end their episodes."""
BLOCK = 1 << 24
"""Bytes that are hashed and written at once."""
COPIED_BYTES = 1 << 24
"""Rings of at most this size are copied before they are written: 5 ms, and no run can write over the copy."""
_Item = TypeVar("_Item")
_NAME = re.compile(r"rank_(\d+)-[\w.\-]+")


class CheckpointError(RuntimeError):
    """Error of a checkpoint that is damaged or incomplete."""


class Overtaken(RuntimeError):
    """Error for rows that were written over while they were saved."""


class Segment(NamedTuple):
    """File with the rows from `first` to `end` of all arrays of a ring: their bytes, in the order of their names."""

    file: str
    """Name in the folder of segments."""
    sha256: str
    first: int
    end: int


class RingWriter:
    """Writer of the segments of one ring, with whose name those of their files begin.

    `segments` are those of the checkpoint that the run goes on from.
    """

    def __init__(self, folder: Path, name: str, segments: Sequence[Segment] = ()) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"Saving a checkpoint: the state of a ring has the name {name!r}; expected letters, digits and ._- "
                "only, as its files are named so. Rename the keys of the state that lead to it."
            )
        self._folder, self._name = folder, name
        self.segments = list(segments)
        """Segments with rows of the ring that were held at the last save, in the order of their rows."""

    def _unsaved(self, rows: RingRows) -> tuple[int, int]:
        """Return the first row held that is not saved, and the end of the rows that will not change."""
        end = rows["written"] - OPEN_ROWS
        if self.segments and self.segments[-1].end > end:
            self.segments.clear()  # the ring has begun anew
        return max(0, rows["written"] - rows["T"], *(segment.end for segment in self.segments[-1:])), end

    def is_late(self, rows: RingRows) -> bool:
        """Return whether the run would soon write over rows that are not saved."""
        first, _ = self._unsaved(rows)
        return bool(rows["written"] - first >= rows["T"] - rows["T"] // SEGMENTS_A_RING)

    def write(self, rows: RingRows) -> None:
        """Write the rows that are not saved; Overtaken says that the run has written over some of them meanwhile."""
        T, oldest = rows["T"], rows["written"] - rows["T"]
        first, end = self._unsaved(rows)
        self.segments[:] = [segment for segment in self.segments if segment.end > oldest]
        most = max(1, -(-T // SEGMENTS_A_RING))
        for start in range(first, end, most):
            segment = self._write(rows, start, min(start + most, end))
            if rows.now() - T > start:
                raise Overtaken(
                    f"the run has written over rows of {self._name} before they were saved. From now on it waits while "
                    "a checkpoint is written. A larger replay_size, or checkpoints at shorter intervals, let it go on."
                )
            self.segments.append(segment)

    def _write(self, rows: RingRows, first: int, end: int) -> Segment:
        name = f"{self._name}-{first:012d}-{end:012d}"
        with replace_file(self._folder / name) as file:
            hashing = HashingFile(file)
            for array_name, array in sorted(rows["arrays"].items()):
                for part in _places(first, end, rows["T"], rows["intervals"][array_name]):
                    hashing.write(_bytes_of(array.numpy()[part]))
        return Segment(name, hashing.sha256.hexdigest(), first, end)


def held_still(rows: RingRows) -> RingRows:
    """Return a copy of the rows of a small ring; a large one as it is, whose rows the run may write over."""
    if sum(array.nbytes for array in rows["arrays"].values()) > COPIED_BYTES:
        return rows
    copy = RingRows({**rows, "arrays": {name: array.clone() for name, array in rows["arrays"].items()}})
    copy.now = lambda: rows["written"]
    return copy


def open_rows(rows: RingRows) -> dict[str, torch.Tensor]:
    """Return a copy of the newest rows of a ring, which are in no segment."""
    return {
        name: torch.cat([array[:0], *(array[part] for part in _open_places(rows, name))])
        for name, array in rows["arrays"].items()
    }


def _open_places(rows: RingRows, name: str) -> Iterator[slice]:
    """Return the places of the newest rows in an array."""
    first = max(0, rows["written"] - min(rows["T"], OPEN_ROWS))
    return _places(first, rows["written"], rows["T"], rows["intervals"][name])


def _places(first: int, end: int, T: int, interval: int) -> Iterator[slice]:
    """Return the places of the entries of rows in an array of a ring: one slice, or two where the ring begins anew."""
    n = T // interval
    start, stop = -(-first // interval), -(-end // interval)
    while start < stop:
        place = start % n
        length = min(stop - start, n - place)
        yield slice(place, place + length)
        start += length


def _bytes_of(array: np.ndarray) -> memoryview:
    """Return the memory of an array as bytes, without a copy."""
    if not array.flags.c_contiguous:
        raise TypeError(f"A ring of a checkpoint: an array of strides {array.strides}; expected one without gaps.")
    return array.reshape(-1).view(np.uint8).data


class RingOnDisk(RingRows):
    """State of a ring whose rows lie in segments, in their order, and the newest in what `open_rows` returned."""

    def __init__(
        self,
        folder: Path,
        segments: Sequence[Segment],
        specs: Mapping[str, tuple[tuple[int, ...], str]],
        newest: Mapping[str, torch.Tensor],
        state: StateDict,
    ) -> None:
        super().__init__(state)
        self._folder, self._segments, self._specs, self._newest = folder, segments, dict(specs), newest

    def specs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return shape and dtype of the part of every array that is held."""
        return self._specs

    def read_into(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Read the rows into arrays of the same names and shapes; CheckpointError says that a segment is damaged."""

        def read(segment: Segment) -> None:
            with as_damaged(self._folder / segment.file) as path, open_to_read(path) as file:
                for name in sorted(arrays):
                    for part in _places(segment.first, segment.end, self["T"], self["intervals"][name]):
                        data = _bytes_of(arrays[name][part])
                        if cast(BufferedReader, file).readinto(data) != len(data):
                            raise ValueError("it is shorter than expected")
                if file.read(1):
                    raise ValueError("it has more rows than its name says")

        # The first segment may begin with rows that were written over since. Others write those places after it.
        n_old = sum(segment.first < self["written"] - self["T"] for segment in self._segments)
        on_all_cores(read, self._segments[:n_old])
        on_all_cores(read, self._segments[n_old:])
        for name, array in arrays.items():
            start = 0
            for part in _open_places(self, name):
                length = part.stop - part.start
                array[part] = self._newest[name].numpy()[start : start + length]
                start += length


def segment_from(entry: Sequence[object]) -> Segment:
    """Return the segment that a checkpoint names, if it is one whose file lies in the folder of segments."""
    segment = Segment(*entry)  # type: ignore[arg-type]  # checked here
    if [type(x) for x in segment] != [str, str, int, int]:
        raise TypeError(f"it names a segment {entry!r}; expected a file, its checksum and two numbers")
    if not _NAME.fullmatch(segment.file):
        raise ValueError(f"it names the segment {segment.file!r}; expected a file in the folder of segments")
    return segment


def rank_of(file: str) -> int | None:
    """Return the replica that has written a segment, or a part of it; None for another file."""
    match = _NAME.fullmatch(file)
    return int(match[1]) if match else None


class HashingFile:
    """File that is written in order, and hashed on the way.

    Large files are handed to the disk in blocks and leave the page cache: else they push out what the run reads. A
    block is hashed by another thread while the disk takes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._cached = 0
        self.sha256 = hashlib.sha256()

    def write(self, data: memoryview) -> None:
        """Write bytes."""
        for start in range(0, len(data), BLOCK):
            block = data[start : start + BLOCK]
            thread = threading.Thread(target=self.sha256.update, args=(block,))
            thread.start()
            try:
                self._write(block)
            finally:
                thread.join()

    def _write(self, block: memoryview) -> None:
        self._file.write(block)
        self._cached += len(block)
        if self._cached >= BLOCK:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self._cached = 0


def sha256_of(path: Path) -> str:
    """Return the checksum of a file."""
    with open_to_read(path) as file:
        return hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()


def on_all_cores(part: Callable[[_Item], None], items: Sequence[_Item]) -> None:
    """Call a function for every item, in as many threads as this process may use cores; raise its first error.

    Checksums and reading let other threads run. New memory is handed out faster to two threads than to one.
    """
    with ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(part, items))


@contextlib.contextmanager
def as_damaged(path: Path) -> Iterator[Path]:
    """Turn errors of reading a file into CheckpointError, whose message names it."""
    try:
        yield path
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        why = printable(f"{type(error).__name__}: {error}")
        raise CheckpointError(f"Reading a checkpoint: {path} is damaged: {why}") from error
