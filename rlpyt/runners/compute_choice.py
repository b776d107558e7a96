"""Choice of device, precision, memory format and threads for this machine, by measurement of image networks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rlpyt.core import Agent
from rlpyt.namedarraytuple import Buffer
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import buffer_func, buffer_leaves, buffer_to
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import available_threads

# Rows that are timed, about as many as an update has: enough that overhead does not decide, few enough that the choice
# takes about a second.
_ROWS = 128
_WORTH = 1.2  # bfloat16 must be faster by this factor, so that the choice is the same at every start on one machine


def choose_settings(agent: Agent, affinity: Affinity, n_busy: int = 0) -> ComputeSettings:
    """Return settings for an initialised agent.

    Networks on images are timed, forward and backward, in float32, in channels-last and in bfloat16; networks on
    vectors keep float32 and one thread, which is the fastest for their size. A CUDA device is used where the affinity
    names one.

    Args:
        agent: initialised, still on the CPU.
        affinity: its `cuda_idx` and `master_torch_threads` are obeyed.
        n_busy: cores that other processes of the run keep busy while this one learns.
    """
    device = affinity.device
    inputs = agent.example_inputs()
    images = any(leaf.dtype == torch.uint8 and leaf.dim() == 4 for leaf in buffer_leaves(inputs[0]))
    threads = affinity.master_torch_threads or (max(1, available_threads() - n_busy) if images else 1)
    base = ComputeSettings(device=device, torch_threads=threads)
    if not images:
        return base
    torch.set_num_threads(threads)
    candidates = [
        (base, 1.0),
        (ComputeSettings(device=device, torch_threads=threads, channels_last=True), 1.05),
        (ComputeSettings(device=device, torch_threads=threads, channels_last=True, precision="bfloat16"), _WORTH),
    ]
    rows = buffer_func(inputs, lambda x: x.expand(_ROWS, *x.shape[1:]).contiguous())
    best, best_seconds = base, float("inf")
    for settings, worth in candidates:
        seconds = _seconds(agent, settings, rows)
        if seconds * worth < best_seconds:
            best, best_seconds = settings, seconds
    agent.to_device(base)
    return best


def _seconds(agent: Agent, settings: ComputeSettings, rows: Buffer) -> float:
    """Return the seconds of a forward and backward pass, the best of three after one to warm up."""
    agent.to_device(settings)
    rows = buffer_to(rows, settings.device)
    times = []
    with _recurrent_layers_in_training(agent):
        for _ in range(4):
            start = time.perf_counter()
            outputs = agent(*rows)
            sum(leaf.float().sum() for leaf in buffer_leaves(outputs) if leaf.requires_grad).backward()
            if settings.device != "cpu":
                torch.cuda.synchronize(settings.device)
            times.append(time.perf_counter() - start)
    for parameter in agent.parameters():
        parameter.grad = None
    return min(times[1:])


@contextmanager
def _recurrent_layers_in_training(agent: Agent) -> Iterator[None]:
    """Set the recurrent layers to training, without which cuDNN has no gradient; all others stay as they are."""
    layers = [x for module in agent.modules() for x in module.modules() if isinstance(x, torch.nn.RNNBase)]
    modes = [layer.training for layer in layers]
    for layer in layers:
        layer.train()
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.train(mode)
