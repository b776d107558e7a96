"""Runs of a few seconds in one process."""

from __future__ import annotations

from experiments.configuration import replaced
from rlpyt.launching.smoke import smoke
from rlpyt.runners import AsyncRl, AsyncRlEval, MinibatchRl, MinibatchRlBase, MinibatchRlEval, SyncRl, SyncRlEval
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings

__all__ = ["ALONE", "in_process", "smoke"]

ALONE = {AsyncRl: MinibatchRl, AsyncRlEval: MinibatchRlEval, SyncRl: MinibatchRl, SyncRlEval: MinibatchRlEval}
"""Runner of one process in the stead of one of several."""


def in_process(runner: MinibatchRlBase) -> MinibatchRlBase:
    """Return a runner whose parts are all in this process, in float32 on the CPU, without a measured choice."""
    Cls = ALONE.get(type(runner), type(runner))
    return replaced(runner, dict(Cls=Cls, sampler=dict(Cls=SerialSampler), settings=ComputeSettings()))
