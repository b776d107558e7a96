"""A model's weights in shared memory: one process publishes, others act with them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from rlpyt.utils.shared_memory import shared_array


class _Place(NamedTuple):
    array: np.ndarray
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def tensor(self) -> torch.Tensor:
        # By strides, so that weights in channels-last order stay in it.
        return torch.from_numpy(self.array).as_strided(self.shape, self.stride)


class SharedWeights:
    """The parameters and buffers of a module, once in shared memory.

    Made where the module is trained; sent to another process by reference (see `rlpyt.utils.shared_memory`), where a
    copy of the module is attached to it.
    """

    def __init__(self, module: nn.Module) -> None:
        self._places = {
            name: _Place(
                shared_array(tensor.numel(), torch.empty(0, dtype=tensor.dtype).numpy().dtype),
                tuple(tensor.shape),
                tensor.stride(),
            )
            for name, tensor in module.state_dict().items()
        }
        self.publish(module)

    @torch.no_grad()
    def publish(self, module: nn.Module) -> None:
        """Copy the module's weights into the shared memory; nobody may act meanwhile."""
        state = module.state_dict()
        for name, place in self._places.items():
            place.tensor().copy_(state[name])

    def attach(self, module: nn.Module) -> None:
        """Let a copy of the module, on the CPU, have its weights in the shared memory from now on."""
        for name, tensor in module.state_dict(keep_vars=True).items():
            tensor.data = self._places[name].tensor()
