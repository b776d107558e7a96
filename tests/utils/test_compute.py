"""Settings of a run: what they refuse, and what they do to a network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rlpyt.utils.compute import ComputeSettings

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "float16"}, r"precision is 'float16'; expected one of \('float32', 'bfloat16'\)"),
        ({"torch_threads": 0}, "torch_threads is 0; expected at least 1"),
    ],
)
def test_what_no_run_can_mean_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ComputeSettings(**settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="device is 'cuda:0', but torch sees no CUDA device; use 'cpu'"):
        ComputeSettings(device="cuda:0")


class Unmoved(nn.Module):
    """Module that stays on the CPU, where there is no GPU."""

    def to(self, *args: Any, **kwargs: Any) -> Any:
        return self


@pytest.mark.parametrize(
    ("device", "tf32", "expected"),
    [("cuda", True, [True, True]), ("cuda", False, [False, False]), ("cuda", None, None), ("cpu", True, None)],
)
def test_tf32_sets_both_switches_of_a_gpu_or_none(device, tf32, expected):
    backends: Any = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    try:
        ComputeSettings(tf32=tf32).place(Unmoved(), torch.device(device))
        assert [backend.allow_tf32 for backend in backends] == (expected or before)
    finally:
        for backend, was in zip(backends, before, strict=True):
            backend.allow_tf32 = was


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_autocast_computes_in_the_precision_of_the_run(precision, dtype):
    layer = nn.Linear(3, 2)
    with ComputeSettings(precision=precision).autocast(CPU):
        assert layer(torch.zeros(1, 3)).dtype == dtype
    assert layer.weight.dtype == torch.float32
    assert layer(torch.zeros(1, 3)).dtype == torch.float32


def test_channels_last_is_a_matter_of_memory_alone():
    convolution = nn.Conv2d(4, 8, 3)
    images = torch.rand(2, 4, 9, 9)
    before, parameter = convolution(images), convolution.weight
    ComputeSettings(channels_last=True).place(convolution, CPU)
    assert convolution.weight is parameter, "an optimiser must keep hold of the same parameters"
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(convolution(images), before)
    ComputeSettings().place(convolution, CPU)
    assert convolution.weight is parameter
    assert convolution.weight.stride() == nn.Conv2d(4, 8, 3).weight.stride()
    torch.testing.assert_close(convolution(images), before)
