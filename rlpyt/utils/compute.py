"""Compute settings of a run: the device and precision of its networks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch

from rlpyt.namedarraytuple import Buffer
from rlpyt.utils.arrays import buffer_leaves

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class ComputeSettings:
    """Device, precision, memory format and threads of a run. Algorithms and models do not depend on them."""

    device: str = "cpu"
    """Where the optimiser's network lives: "cpu", "cuda:0", ..."""
    precision: str = "float32"
    """"float32", or "bfloat16" for autocast of hidden layers (parameters, heads and losses stay float32)."""
    channels_last: bool = False
    """Whether image networks compute in channels-last memory format."""
    torch_threads: int = 1
    """Intra-op threads of the process that optimises; workers always have one."""
    tf32: bool | None = None
    """Whether a GPU may round float32 to TF32 in matrix products, convolutions and recurrent layers; None leaves
    torch's own switches, by which convolutions and recurrent layers are."""
    compile: bool = False
    """Whether updates are compiled by `torch.compile`, which takes seconds to minutes in the first ones.
    It needs a C++ compiler."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings that no run can use."""
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"Compute settings: precision is {self.precision!r}; expected one of {PRECISIONS}. A runner chooses it "
                'where it has settings="fastest".'
            )
        compiler = os.environ.get("CXX", "g++")  # where torch looks for it
        if self.compile and not shutil.which(compiler):
            raise ValueError(
                f"Compute settings: compile is True, but no C++ compiler {compiler!r} is found; expected one. Install "
                "g++, name yours in the variable CXX, or leave compile out."
            )
        if self.torch_threads < 1:
            raise ValueError(f"Compute settings: torch_threads is {self.torch_threads}; expected at least 1.")
        device = torch.device(self.device)
        if device.type == "cuda":
            n = torch.cuda.device_count() if torch.cuda.is_available() else 0  # does not start CUDA
            if n == 0:
                raise ValueError(
                    f"Compute settings: device is {self.device!r}, but torch sees no CUDA device; use 'cpu'."
                )
            if (device.index or 0) >= n:
                raise ValueError(
                    f"Compute settings: device is {self.device!r}, but torch sees {n} CUDA devices, numbered from 0; "
                    f"expected one of 'cuda:0' to 'cuda:{n - 1}'. CUDA_VISIBLE_DEVICES numbers them anew."
                )

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return the context in which networks on a device are called.

        Calls inside one context share one cast of the weights: hold it around a whole batch of forward passes.
        """
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(device.type, dtype=torch.bfloat16)

    def without_autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return the context in which others compute inside of `autocast`, such as environments that use torch."""
        return nullcontext() if self.precision == "float32" else torch.autocast(device.type, enabled=False)

    def place(self, module: torch.nn.Module, device: torch.device) -> None:
        """Move a module to a device and into the memory format, in place; set torch's switches of the device."""
        if self.tf32 is not None and device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.tf32
        # The plain format is set, too: otherwise weights would stay in the format of earlier settings.
        memory_format = torch.channels_last if self.channels_last else torch.contiguous_format
        module.to(device=device, memory_format=memory_format)  # type: ignore[call-overload]

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for logs."""
        return asdict(self)


def compilations() -> int:
    """Return how many graphs torch has compiled in this process so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def have_images(observations: Buffer) -> bool:
    """Return whether observations [n_rows, ...] have images, uint8 [n_rows, C, height, width].

    Networks on images compute faster with a thread for each core. Those on vectors are slower with more than one.
    """
    return any(leaf.dtype == torch.uint8 and leaf.dim() == 4 for leaf in buffer_leaves(observations))


@contextmanager
def torch_threads(n: int | None) -> Iterator[None]:
    """Compute with n torch threads in the block, and restore their number afterwards; None leaves it."""
    if n is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
