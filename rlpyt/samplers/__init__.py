"""Samplers: where environments are stepped and actions chosen, by naming a class."""

from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.collector import (
    Collector,
    CpuResetCollector,
    CpuWaitResetCollector,
    GpuResetCollector,
    GpuWaitResetCollector,
    WaitResetCollector,
)
from rlpyt.samplers.cpu import CpuSampler
from rlpyt.samplers.evaluate import evaluate
from rlpyt.samplers.evaluator import CpuEvalCollector, Evaluator, GpuEvalCollector, SerialEvalCollector
from rlpyt.samplers.gpu import AlternatingSampler, GpuSampler, NoOverlapAlternatingSampler
from rlpyt.samplers.serial import SerialSampler
from rlpyt.types import AgentSamples, AtariTrajInfo, BatchSpec, EnvSamples, Samples, TrajInfo

__all__ = [
    "AgentSamples",
    "AlternatingSampler",
    "AtariTrajInfo",
    "BaseSampler",
    "BatchSpec",
    "Collector",
    "CpuEvalCollector",
    "CpuResetCollector",
    "CpuSampler",
    "CpuWaitResetCollector",
    "EnvSamples",
    "Evaluator",
    "GpuEvalCollector",
    "GpuResetCollector",
    "GpuSampler",
    "GpuWaitResetCollector",
    "NoOverlapAlternatingSampler",
    "Samples",
    "SerialEvalCollector",
    "SerialSampler",
    "TrajInfo",
    "WaitResetCollector",
    "evaluate",
]
