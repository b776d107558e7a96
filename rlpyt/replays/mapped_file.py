"""Arrays of a replay in files, for a replay that is larger than the memory."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rlpyt.namedarraytuple import Buffer
from rlpyt.replays.interface import Allocate
from rlpyt.utils.arrays import buffer_func, build_array
from rlpyt.utils.shared_memory import SharedMemory


def mapped_file(folder: str | Path) -> Allocate:
    """Return an allocator of zeroed arrays in unlinked temporary files, one for each array, for `RowStorage`.

    The kernel keeps the pages used last in memory, and the others on the disk. The files have no name, so nothing is
    left behind when the process is killed. Other processes of the run can share the arrays (see
    `rlpyt.utils.shared_memory`). The files do not outlive the run: a run is resumed from the replay's `state_dict`.

    Args:
        folder: folder on a fast local disk; a batch of 32 frame stacks reads 256 frames at random places.

    Raises:
        FileNotFoundError: if there is no such folder.
        OSError: from the allocator, if the disk is too full; the message has the bytes asked for and free.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"Mapping a replay to a file: there is no folder {folder}. Make it, or name another.")
    return partial(_allocate, folder)


def _allocate(folder: Path, example: Buffer, leading_dims: int | Sequence[int]) -> Buffer:
    return buffer_func(example, _array, folder, leading_dims)


def _array(example: Buffer, folder: Path, leading_dims: int | Sequence[int]) -> np.ndarray:
    row = build_array(example, ())
    lead = (leading_dims,) if isinstance(leading_dims, int) else tuple(leading_dims)
    size = int(np.prod([*lead, row.nbytes], dtype=object))
    return np.ndarray(lead + row.shape, row.dtype, buffer=_FileMemory.reserve(folder, max(size, 1)))


class _FileMemory(SharedMemory):
    """Block of an unlinked file, which processes share like other shared memory."""

    @classmethod
    def reserve(cls, folder: Path, size: int) -> _FileMemory:
        """Reserve a new block. A full disk raises an error here, not a bus error at a later write."""
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
        # Rows are read at random places: reading ahead would load rows that are not needed.
        memory.madvise(mmap.MADV_RANDOM)
        return memory
