"""The device of the tests in this folder: the first GPU, or what RLPYT_TEST_DEVICE says.

Without a GPU they skip. `RLPYT_TEST_DEVICE=cpu pytest tests/gpu` runs all that makes sense on the CPU, which shows
that the tests themselves are sound: there whatever is compared is equal to the bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
import torch

DEVICE = os.environ.get("RLPYT_TEST_DEVICE", "cuda:0")


@pytest.fixture(autouse=True)
def device() -> Iterator[str]:
    """Give the device, with float32 computed as such: convolutions on a GPU would round to TF32."""
    if torch.device(DEVICE).type == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device; RLPYT_TEST_DEVICE=cpu runs this on the CPU")
    matmul = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield DEVICE
    torch.backends.cuda.matmul.allow_tf32 = matmul


@pytest.fixture
def on_gpu(device: str) -> bool:
    """Whether the device is a GPU."""
    return torch.device(device).type == "cuda"


@pytest.fixture
def no_waiting(on_gpu: bool) -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which it is an error to wait for the GPU."""

    @contextmanager
    def refused() -> Iterator[None]:
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)

    return refused if on_gpu else nullcontext
