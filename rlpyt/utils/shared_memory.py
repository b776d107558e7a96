"""Arrays in anonymous shared memory, and a pickler that passes them on by reference.

The memory is a memfd. It has no name, so a killed process leaves nothing behind. Its pages are reserved when it is
made, so that a full memory is an error here instead of a bus error at a later write. `dumps` pickles an array of
`shared_array`, or any view of one, as a reference. The process that loads it sees the same bytes. This works under
every start method, as long as the sender is alive and holds the array.
"""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import resource
from collections.abc import Callable, Sequence
from typing import Any, Self

import cloudpickle
import numpy as np
import numpy.typing as npt
import psutil
import torch

from rlpyt.utils import cgroups

_FILES_A_BLOCK = 2  # Python's mmap keeps a copy of the descriptor


class SharedMemory(mmap.mmap):
    """Block of anonymous shared memory of `size` bytes, zeros at first."""

    fd: int = -1

    @classmethod
    def allocate(cls, size: int) -> Self:
        """Reserve a new block.

        Raises:
            MemoryError: if the machine or its container has too little memory left.
            OSError: if the process may open no more files.
        """
        free = free_memory()
        reserve_descriptors(_FILES_A_BLOCK)
        fd = os.memfd_create("rlpyt")
        try:
            if size > free:
                raise OSError(errno.ENOMEM, "too large")  # reserving them would wake the OOM killer of the kernel
            os.posix_fallocate(fd, 0, size)
            return cls._map(fd, size)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise MemoryError(
                f"Allocating shared memory: {size:,} bytes were asked for, and this process can have {free:,}. Lower "
                "batch_T, batch_B or replay_size, or raise the container's memory limit."
            ) from error

    @classmethod
    def attach(cls, pid: int, fd: int, size: int) -> Self:
        """Map the block that process `pid` holds under the descriptor `fd`."""
        reserve_descriptors(_FILES_A_BLOCK)
        return cls._map(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC), size)

    @classmethod
    def _map(cls, fd: int, size: int) -> Self:
        memory = cls(fd, size)
        memory.fd = fd
        return memory

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:
            close(self.fd)  # an argument, as at the end of the process the module's own names may be gone


def free_memory() -> int:
    """Return the bytes that this process can still use, by the memory of the machine and the limits of a container."""
    return int(max(0, min(psutil.virtual_memory().available, cgroups.free_memory())))


def total_memory() -> int:
    """Return the bytes that this process can use at most, with all others ended: of the machine, or of a container."""
    machine = psutil.virtual_memory().total + psutil.swap_memory().total
    return int(min(machine, cgroups.memory_limit()))


def reserve_descriptors(n: int) -> None:
    """Make sure that this process can open more files, and raise its limit if needed.

    The usual limit of 1,024 is meant for programs that call `select`. A process may raise it up to the hard limit.

    Raises:
        OSError: if the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + n
    if needed <= soft:
        return
    if needed > hard:
        raise OSError(
            errno.EMFILE,
            f"Opening {n} files (shared arrays and pipes to workers are files): this process would have {needed} "
            f"open, and may have {hard}. Raise the hard limit (ulimit -Hn), or lower n_workers",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shared_array(shape: int | Sequence[int], dtype: npt.DTypeLike) -> np.ndarray:
    """Return an array of zeros in a new block of shared memory."""
    dtype = np.dtype(dtype)
    size = math.prod(int(n) for n in np.atleast_1d(shape)) * dtype.itemsize  # in Python, where nothing overflows
    return np.ndarray(shape, dtype, buffer=SharedMemory.allocate(max(size, 1)))


def dumps(message: object) -> bytes:
    """Pickle a message for another process: shared arrays by reference, classes by value if they are not importable."""
    file = io.BytesIO()
    _Pickler(file).dump(message)
    return file.getvalue()


def dumps_by_value(message: object) -> bytes:
    """Pickle a message for another machine: shared arrays by value, too."""
    file = io.BytesIO()
    _ValuePickler(file).dump(message)
    return file.getvalue()


def unsendable(value: object, name: str = "what it works with", depth: int = 6) -> str:
    """Return the name of the part that `dumps` refuses, such as "SyncRl.agent.lock"."""
    for part_name, part in _parts_of(value, name) if depth else ():
        try:
            dumps(part if part is not value else None)
        except Exception:
            return unsendable(part, part_name, depth - 1)
    return name


def _parts_of(value: object, name: str) -> list[tuple[str, object]]:
    match value:
        case tuple():
            return [(type(part).__name__, part) for part in value]
        case dict():
            return [(f"{name}.{key}", part) for key, part in value.items()]
        case type():
            return []
    return _parts_of(state, name) if type(state := value.__getstate__()) is dict else []


_NOT_BY_TORCH = (torch.uint16, torch.uint32, torch.uint64)  # which torch pickles, and cannot load again


class _ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is np.ndarray and obj.flags.writeable:
            return obj.__reduce__()  # an array of its own memory, which can be saved in a state
        if type(obj) is torch.Tensor and obj.dtype in _NOT_BY_TORCH and obj.device.type == "cpu":
            return torch.from_numpy, (obj.numpy(),)
        return super().reducer_override(obj)


class _Pickler(_ValuePickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is np.ndarray:
            memory = _memory_of(obj)
            if memory is not None:
                start = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
                offset = obj.__array_interface__["data"][0] - start
                return _view, (memory, obj.shape, obj.dtype, offset, obj.strides)
        if isinstance(obj, SharedMemory):
            return SharedMemory.attach, (os.getpid(), obj.fd, len(obj))
        return super().reducer_override(obj)


def _view(memory: SharedMemory, shape: Any, dtype: np.dtype, offset: int, strides: Any) -> np.ndarray:
    return np.ndarray(shape, dtype, buffer=memory, offset=offset, strides=strides)


def _memory_of(array: np.ndarray) -> SharedMemory | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, SharedMemory) else None
