"""Samplers: where environments are stepped and actions chosen, by naming a class."""

from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.collector import Collector, WaitResetCollector
from rlpyt.samplers.cpu import CpuSampler
from rlpyt.samplers.evaluate import evaluate
from rlpyt.samplers.evaluator import Evaluator
from rlpyt.samplers.gpu import AlternatingSampler, GpuSampler, NoOverlapAlternatingSampler
from rlpyt.samplers.serial import SerialSampler
from rlpyt.types import AgentSamples, BatchSpec, EnvSamples, Samples, TrajInfo

__all__ = [
    "AgentSamples",
    "AlternatingSampler",
    "BaseSampler",
    "BatchSpec",
    "Collector",
    "CpuSampler",
    "EnvSamples",
    "Evaluator",
    "GpuSampler",
    "NoOverlapAlternatingSampler",
    "Samples",
    "SerialSampler",
    "TrajInfo",
    "WaitResetCollector",
    "evaluate",
]
