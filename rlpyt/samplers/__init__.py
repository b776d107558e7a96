"""Samplers: where environments are stepped and actions chosen, by naming a class."""

from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.cpu import CpuSampler
from rlpyt.samplers.evaluator import Evaluator, evaluate
from rlpyt.samplers.serial import SerialSampler
from rlpyt.types import AgentSamples, BatchSpec, EnvSamples, Samples, TrajInfo

__all__ = [
    "AgentSamples",
    "BaseSampler",
    "BatchSpec",
    "Collector",
    "CpuSampler",
    "EnvSamples",
    "Evaluator",
    "Samples",
    "SerialSampler",
    "TrajInfo",
    "evaluate",
]
