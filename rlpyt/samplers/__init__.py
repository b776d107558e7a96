"""Samplers: processes that step environments and choose actions, picked by naming a class.

Which module stands on which is a table in docs/reference/architecture.md.
"""

from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.collector import (
    Collector,
    CpuResetCollector,
    CpuWaitResetCollector,
    DbCpuResetCollector,
    DbCpuWaitResetCollector,
    DbGpuResetCollector,
    DbGpuWaitResetCollector,
    GpuResetCollector,
    GpuWaitResetCollector,
    WaitResetCollector,
)
from rlpyt.samplers.cpu import AsyncCpuSampler, CpuSampler
from rlpyt.samplers.device import DeviceSampler
from rlpyt.samplers.evaluator import (
    CpuEvalCollector,
    Evaluator,
    GpuEvalCollector,
    SerialEvalCollector,
    evaluate,
)
from rlpyt.samplers.gpu import (
    AlternatingSampler,
    AsyncAlternatingSampler,
    AsyncGpuSampler,
    AsyncNoOverlapAlternatingSampler,
    GpuSampler,
    NoOverlapAlternatingSampler,
)
from rlpyt.samplers.parts import Part
from rlpyt.samplers.ray_sampler import RaySampler
from rlpyt.samplers.serial import AsyncSerialSampler, SerialSampler
from rlpyt.types import AgentSamples, AtariTrajInfo, BatchSpec, EnvSamples, Samples, TrajInfo

__all__ = [
    "AgentSamples",
    "AlternatingSampler",
    "AsyncAlternatingSampler",
    "AsyncCpuSampler",
    "AsyncGpuSampler",
    "AsyncNoOverlapAlternatingSampler",
    "AsyncSerialSampler",
    "AtariTrajInfo",
    "BaseSampler",
    "BatchSpec",
    "Collector",
    "CpuEvalCollector",
    "CpuResetCollector",
    "CpuSampler",
    "CpuWaitResetCollector",
    "DbCpuResetCollector",
    "DbCpuWaitResetCollector",
    "DbGpuResetCollector",
    "DbGpuWaitResetCollector",
    "DeviceSampler",
    "EnvSamples",
    "Evaluator",
    "GpuEvalCollector",
    "GpuResetCollector",
    "GpuSampler",
    "GpuWaitResetCollector",
    "NoOverlapAlternatingSampler",
    "Part",
    "RaySampler",
    "Samples",
    "SerialEvalCollector",
    "SerialSampler",
    "TrajInfo",
    "WaitResetCollector",
    "evaluate",
]
