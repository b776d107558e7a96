"""Weights and numbers of an agent in shared memory: one process publishes them, others act with them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from rlpyt.types import StateDict
from rlpyt.utils.shared_memory import dumps, shared_array

_ALIGNMENT = 64
_EXTRA_STATE = "_extra_state"  # torch's key of what `get_extra_state` returns
_ROOM_TO_GROW = 2**16


class _Place(NamedTuple):
    offset: int
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]

    def tensor(self, block: np.ndarray) -> torch.Tensor:
        size = math.prod(self.shape) * self.dtype.itemsize
        flat = torch.from_numpy(block[self.offset : self.offset + size]).view(self.dtype)
        # By strides, so that weights in channels-last order stay in it.
        return flat.as_strided(self.shape, self.stride)


class SharedWeights:
    """The state of a module, once in shared memory: parameters, buffers, and what its `get_extra_state` returns.

    Made where the module is trained; sent to another process by reference (see `rlpyt.utils.shared_memory`), where a
    copy of the module is attached to it. All tensors lie in one block, as every block takes two descriptors a process.
    """

    def __init__(self, module: nn.Module) -> None:
        state = module.state_dict()
        self._places: dict[str, _Place] = {}
        size = 0
        for name, tensor in state.items():
            if not _is_extra(name):
                # Overlapping or sparse memory is laid out anew; all else keeps its order.
                self._places[name] = _Place(size, tensor.dtype, tensor.shape, torch.empty_like(tensor).stride())
                size += math.ceil(tensor.numel() * tensor.element_size() / _ALIGNMENT) * _ALIGNMENT
        self._block = shared_array(size, np.uint8)
        extra = _extra_state_of(state)
        self._extra = shared_array(2 * len(extra) + _ROOM_TO_GROW if extra else 0, np.uint8)
        self._extra_version = shared_array(2, np.int64)  # how often it was written, and its bytes
        self._attached: nn.Module | None = None
        self._attached_version = 0
        self._made: dict[str, torch.Tensor] = {}
        self.publish(module)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_made": {}}  # each process makes its own, as a tensor would be copied

    @property
    def _tensors(self) -> dict[str, torch.Tensor]:
        """Views of the shared tensors by name, made once: together they take as long as the copies."""
        if not self._made:
            self._made = {name: place.tensor(self._block) for name, place in self._places.items()}
        return self._made

    @torch.no_grad()
    def publish(self, module: nn.Module) -> None:
        """Copy the module's state into the shared memory; nobody may act meanwhile.

        Raises:
            RuntimeError: if its extra state has outgrown the room that it was given.
        """
        state = module.state_dict()
        for name, tensor in self._tensors.items():
            tensor.copy_(state[name])
        self._publish_extra(_extra_state_of(state))

    @property
    def arrays(self) -> list[np.ndarray]:
        """All that is published, in shared memory: arrays that another machine's copy of this object has, too."""
        return [self._block, self._extra, self._extra_version]

    def attach(self, module: nn.Module) -> None:
        """Let a copy of the module, on the CPU, have its tensors in the shared memory from now on.

        Extra state is no tensor: it is taken over as it was published, so call this again whenever it may have changed.
        """
        if module is not self._attached:
            self._attached, self._attached_version = module, 0
            state = module.state_dict(keep_vars=True)
            for name, place in self._places.items():
                state[name].data = place.tensor(self._block)
        version = int(self._extra_version[0])
        if version != self._attached_version:
            self._take_extra(module)
        self._attached_version = version

    @torch.no_grad()
    def copy_to(self, module: nn.Module) -> None:
        """Copy the published state into a copy of the module, whose tensors stay its own, on any device."""
        state = module.state_dict()
        for name, tensor in self._tensors.items():
            state[name].copy_(tensor)
        self._take_extra(module)

    def _take_extra(self, module: nn.Module) -> None:
        size = int(self._extra_version[1])
        if size:
            for name, extra in pickle.loads(self._extra[:size].tobytes()).items():
                module.get_submodule(name.removesuffix(_EXTRA_STATE).rstrip(".")).set_extra_state(extra)

    def _publish_extra(self, extra: bytes) -> None:
        version, size = self._extra_version.tolist()
        if version and extra == self._extra[:size].tobytes():
            return
        if len(extra) > len(self._extra):
            raise RuntimeError(
                f"Publishing the model's weights: its extra state (get_extra_state) takes {len(extra):,} bytes, and "
                f"had room to grow to {len(self._extra):,}. Keep what grows out of the model, or in buffers of a fixed "
                "size."
            )
        self._extra[: len(extra)] = np.frombuffer(extra, np.uint8)
        self._extra_version[:] = version + 1, len(extra)


def _extra_state_of(state: StateDict) -> bytes:
    """Return the extra state of a state_dict as bytes, none where there is none."""
    extra = {name: value for name, value in state.items() if _is_extra(name)}
    return dumps(extra) if extra else b""


def _is_extra(name: str) -> bool:
    return name.split(".")[-1] == _EXTRA_STATE


class SharedNumbers:
    """Numbers of an agent by name, in one array that copies in other processes can share.

    Args:
        sizes: of each name, how many numbers it has; all are 0 at first.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        ends = np.cumsum([0, *sizes.values()]).tolist()
        self._places = {name: slice(lo, hi) for name, (lo, hi) in zip(sizes, pairwise(ends), strict=True)}
        self._array = np.zeros(ends[-1])

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the numbers of a name, a float64 view to read and write."""
        return self._array[self._places[name]]

    @property
    def values(self) -> np.ndarray:
        """All numbers, a float64 view to read and write."""
        return self._array[:]

    def copy(self) -> SharedNumbers:
        """Return the numbers as they stand now, in memory of their own."""
        clone = SharedNumbers({})
        clone._places, clone._array = self._places, self._array.copy()
        return clone

    def share(self) -> None:
        """Move the numbers to shared memory, in which a copy that is sent from now on has them too."""
        shared = shared_array(len(self._array), np.float64)
        shared[:] = self._array
        self._array = shared
