"""Runners that learn while the sampler collects the next batches in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rlpyt.runners.base import MinibatchRlBase
from rlpyt.runners.compute_choice import check_compute
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.replica_group import ReplicaGroup, ReplicaSettings
from rlpyt.runners.training import Free, InTurn, Lagged
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arguments import own_names
from rlpyt.utils.checks import whole_number


@dataclass(eq=False)
class AsyncRlBase(ReplicaSettings, MinibatchRlBase):
    """Runner whose sampler works in a process of its own, `lag` batches ahead of the learner.

    The loop is the one of all runners. While it learns from batch i, the sampler collects batch i + 1, ..., i + lag.
    Batch i + lag is collected with the weights after i iterations of learning, so the same seed gives the same run.

    Several replicas deal the environments of `sampler` to each other. Each has a process for its share of them, a
    replay of its own, and learns as a replica of `SyncRl` does.

    `sampler` stays as it was given; while the run lasts `training.sampler` stands for the one in the other process.

    Raises:
        ValueError: if the lag is below 0, or the affinity lacks its part for the sampler or for the learners.
    """

    lock_seconds: ClassVar[float] = 60.0
    """Longest wait for the lock of a replay that a copier appends to."""

    lag: int | str = field(default=1, kw_only=True)
    """Iterations of learning that the weights of the sampler are behind; 0 collects in turn, in the other process.
    "free" lets sampler and learner run freely within `ratio_band`, for algorithms with a replay."""
    ratio_band: float = field(default=0.1, kw_only=True)
    """With lag="free": how many batches either side may be ahead, as a fraction of those before the first update; from
    1 to 8 batches. The side that is ahead by so much waits."""

    def _make_parts(self) -> tuple[ReplicaGroup, InTurn]:
        name = type(self).__name__
        group = ReplicaGroup(name, self.affinity, self, apart=True)
        group.share_of(self.algo, self.sampler, group.world_size())  # raises where they cannot be divided
        if self.lag == "free":
            if not self.algo.appends_apart or own_names(type(self.algo)) & {"append", "optimize_agent"}:
                raise ValueError(
                    f"{name}: lag is 'free', and another process cannot append the batches of "
                    f"{type(self.algo).__name__}, as it has no replay, or takes them in by a method of its own; "
                    "expected an algorithm with a replay. Give lag=1, or another number."
                )
            self.check("ratio_band", lambda x: 0.0 <= x < float("inf"), "a fraction from 0, such as 0.1")
            collecting: InTurn = Free(self.ratio_band, self.lock_seconds)
        else:
            collecting = Lagged(whole_number(name, "lag", self.lag, 0, 'a whole number from 0, or "free"'))
        acting = Affinity.from_mapping(group.sampler_affinity())
        check_compute(name, self.settings, acting.device)
        return group, collecting


@dataclass(eq=False)
class AsyncRl(AsyncRlBase, MinibatchRl):
    """`MinibatchRl` whose sampler works in a process of its own, while this one learns."""


@dataclass(eq=False)
class AsyncRlEval(AsyncRlBase, MinibatchRlEval):
    """`MinibatchRlEval` whose sampler works in a process of its own, while this one learns.

    Evaluations run there too, with the weights of now, once the batches under way are done; the learner waits for them.
    """
