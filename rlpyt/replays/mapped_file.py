"""Replay arrays in a file instead of in memory, for a replay that is larger than the RAM."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rlpyt.replays.interface import Allocate
from rlpyt.utils.arrays import buffer_func, build_array
from rlpyt.utils.shared_memory import SharedMemory


def mapped_file(folder: str | Path) -> Allocate:
    """Return an allocator of zeroed arrays in unlinked temporary files, one for each array, for `RowStorage`.

    The kernel keeps in memory what was used last, as much as there is room for, and has the rest on the disk. The files
    have no name, so nothing is left behind when the process is killed. Other processes of the run can be given the
    arrays (see `rlpyt.utils.shared_memory`). It is a replay larger than RAM, not a copy that outlives the run: what is
    resumed is its `state_dict`.

    Args:
        folder: on the disk to use; a fast local one, as a batch of 32 stacks reads 256 frames from anywhere.

    Raises:
        FileNotFoundError: if there is no such folder.
        OSError: from the allocator, if the disk has not that much room, with the bytes asked for and free.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"Mapping a replay to a file: there is no folder {folder}. Make it, or name another.")
    return partial(_allocate, folder)


def _allocate(folder: Path, example: Any, leading_dims: int | Sequence[int]) -> Any:
    return buffer_func(example, _array, folder, leading_dims)


def _array(example: Any, folder: Path, leading_dims: int | Sequence[int]) -> np.ndarray:
    row = build_array(example, ())
    lead = (leading_dims,) if isinstance(leading_dims, int) else tuple(leading_dims)
    size = int(np.prod([*lead, row.nbytes], dtype=object))
    return np.ndarray(lead + row.shape, row.dtype, buffer=_FileMemory.reserve(folder, max(size, 1)))


class _FileMemory(SharedMemory):
    """A block of a file of its own, which processes share as they do other shared memory."""

    @classmethod
    def reserve(cls, folder: Path, size: int) -> _FileMemory:
        """Reserve a new block, so that a full disk is an error here and no bus error at some later write."""
        free = shutil.disk_usage(folder).free
        try:
            # Asking for more would fill the disk first where the file system writes zeros to reserve.
            if size > free:
                raise OSError(errno.ENOSPC, "too large")
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                memory = cls._map(os.dup(file.fileno()), size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise
            raise OSError(
                error.errno,
                f"Mapping a replay to a file in {folder}: {size:,} bytes were asked for, and {free:,} are free there. "
                "Lower replay_size, or name a folder on a larger disk.",
            ) from error
        # Rows are drawn from anywhere: reading ahead would bring in neighbours that nobody asked for.
        memory.madvise(mmap.MADV_RANDOM)
        return memory
