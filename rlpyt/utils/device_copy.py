"""Copies between the CPU and a device that overlap with what either computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch

from rlpyt.namedarraytuple import Buffer
from rlpyt.utils.arrays import buffer_func, buffer_leaves, buffer_to


class CopyToDevice:
    """Copy of a buffer of CPU tensors to a device; it begins when it is made, in any thread.

    To a CUDA device, tensors go from pinned memory on a stream of their own. So the copy waits for nothing that was
    queued before, and overlaps with it. To any other device they are copied by `arrived`.

    Args:
        buffer: tensors, which must not change before they have arrived; those on the device stay as they are.
        device: where they shall be.
        then: what is made of them there, in the order of the copies; None leaves them as they are.
    """

    def __init__(self, buffer: Buffer, device: torch.device, then: Callable[[Buffer], Buffer] | None = None) -> None:
        self._buffer, self._device, self._then = buffer, device, then
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            stream = _copy_stream(device)
            # The device first: a new thread has that of GPU 0. Coming back to it would take 0.5 GB there.
            with torch.cuda.device(device), torch.cuda.stream(stream):
                self._buffer = self._made(buffer_func(buffer, _begin_copy, device))
                self._event = stream.record_event()

    def arrived(self) -> Buffer:
        """Return the tensors on the device, for work that this thread queues there after this call."""
        if self._event is None:
            return self._made(buffer_to(self._buffer, self._device))
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(self._event)
        for x in buffer_leaves(self._buffer):
            # Their memory belongs to the other stream, which must not use it again too early.
            x.record_stream(stream)
        return self._buffer

    def _made(self, buffer: Buffer) -> Buffer:
        return buffer if self._then is None else self._then(buffer)


class CopyToCpu:
    """Copy of a tensor to the CPU; from a CUDA device it begins when it is made, and only `arrived` waits for it.

    It stays as it is, whatever becomes of the tensor.
    """

    def __init__(self, x: torch.Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._device = x.device
        self._x = x.to("cpu", non_blocking=x.is_cuda, copy=True)
        if x.is_cuda:
            self._event = torch.cuda.Event(blocking=True)
            self._event.record(torch.cuda.current_stream(x.device))

    def arrived(self) -> torch.Tensor:
        """Return the tensor on the CPU; any thread may ask."""
        if self._event is not None:
            with torch.cuda.device(self._device):  # as in `CopyToDevice`
                self._event.synchronize()
        return self._x


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of all copies to a device. The allocator keeps memory by stream, so there is only one."""
    return torch.cuda.Stream(device)


def _begin_copy(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return (x if x.is_cuda else x.pin_memory()).to(device, non_blocking=True)
