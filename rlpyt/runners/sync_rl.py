"""Runners of several replicas, each with its own sampler, whose gradients are averaged."""

from __future__ import annotations

from dataclasses import dataclass

from rlpyt.runners.base import MinibatchRlBase
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.replica_group import ReplicaGroup, ReplicaSettings
from rlpyt.runners.training import InTurn


@dataclass(eq=False)
class SyncRlBase(ReplicaSettings, MinibatchRlBase):
    """Runner of several replicas of sampler, agent and algorithm, whose gradients are averaged.

    This process is replica 0. It has the log, and the trained agent. It starts the other replicas on this machine, or
    finds them where a launcher such as torchrun has started them.

    Raises:
        ValueError: if the number of replicas is below 1, or not that of the affinities.
    """

    def _make_parts(self) -> tuple[ReplicaGroup, InTurn]:
        group = ReplicaGroup(type(self).__name__, self.affinity, self)
        group.share_of(self.algo, self.sampler, group.world_size())  # raises where they cannot be divided
        return group, InTurn()


@dataclass(eq=False)
class SyncRl(SyncRlBase, MinibatchRl):
    """Runner of several replicas that logs the statistics of the trajectories that training itself completes."""


@dataclass(eq=False)
class SyncRlEval(SyncRlBase, MinibatchRlEval):
    """Runner of several replicas that evaluates the agent before the first iteration and at every row of the log."""
