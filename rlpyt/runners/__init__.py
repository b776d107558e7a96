"""Runners: the loop of training, its evaluation and its log; and a runner made again from the record of a run."""

from rlpyt.runners.agreement import ReplicasDiverged, ReplicaStopped, TrainingDiverged
from rlpyt.runners.async_rl import AsyncRl, AsyncRlEval
from rlpyt.runners.base import MinibatchRlBase, runner_from_params
from rlpyt.runners.from_params import RecordError, part_from_record
from rlpyt.runners.hooks import Histograms, Hook, HookError, StopOnReturn
from rlpyt.runners.load_agent import load_agent
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.record import record_of
from rlpyt.runners.sync_rl import SyncRl, SyncRlEval

__all__ = [
    "AsyncRl",
    "AsyncRlEval",
    "Histograms",
    "Hook",
    "HookError",
    "MinibatchRl",
    "MinibatchRlBase",
    "MinibatchRlEval",
    "RecordError",
    "ReplicaStopped",
    "ReplicasDiverged",
    "StopOnReturn",
    "SyncRl",
    "SyncRlEval",
    "TrainingDiverged",
    "load_agent",
    "part_from_record",
    "record_of",
    "runner_from_params",
]
