"""Runners that learn while the sampler collects the next batches in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rlpyt.old_methods import own_methods
from rlpyt.old_names import serve_old_names
from rlpyt.runners.arguments import check_compute
from rlpyt.runners.compute_choice import Choice
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRlBase
from rlpyt.types import Kwargs, Run
from rlpyt.utils.affinity import Affinity, optimizer_parts, sampler_part
from rlpyt.utils.checks import whole_number
from rlpyt.utils.rw_lock import RwLock

serve_old_names(__name__)


@dataclass(eq=False)
class AsyncRlBase(SyncRlBase):
    """Runner whose sampler works in a process of its own, `lag` batches ahead of the learner.

    The loop is the one of all runners. While it learns from batch i, the sampler collects batch i + 1, ..., i + lag.
    Batch i + lag is collected with the weights after i iterations of learning, so the same seed gives the same run.

    Several replicas deal the environments of `sampler` to each other. Each has a process for its share of them, a
    replay of its own, and learns as a replica of `SyncRl` does.

    `sampler` stays the one that was given; while the run lasts it stands for that in the other process.

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

    def __post_init__(self) -> None:
        """Refuse a lag that cannot be meant."""
        super().__post_init__()
        self.given_sampler = self.sampler
        if self.lag == "free":
            self._check_free()
        else:
            expected = 'a whole number from 0, or "free"'
            self._lag = whole_number(type(self).__name__, "lag", self.lag, 0, expected)
        acting = Affinity.from_mapping(self._affinity_of_sampler())
        check_compute(type(self).__name__, self.settings, acting.device)

    def check_shares(self, n_replicas: int) -> None:
        """Refuse batch sizes that the replicas cannot divide; the environments are divided in any case."""
        super().check_shares(n_replicas)
        if n_replicas > 1:
            self.sampler.share(n_replicas)

    def _check_free(self) -> None:
        """Refuse what cannot run freely."""
        name = f"{type(self).__name__}: lag is 'free', and"
        if not self.algo.appends_apart or own_methods(type(self.algo)) & {"append", "optimize_agent"}:
            raise ValueError(
                f"{name} another process cannot append the batches of {type(self.algo).__name__}, as it has no replay, "
                "or takes them in by a method of its own; expected an algorithm with a replay. Give lag=1, or another "
                "number."
            )
        self.check("ratio_band", lambda x: 0.0 <= x < float("inf"), "a fraction from 0, such as 0.1")

    # ---- cores and devices ----

    def affinities(self) -> list[Kwargs]:
        """Return the affinity of each process that learns, one for all where there is one dictionary."""
        several = isinstance(self.affinity, Sequence)
        return list(self.affinity) if several else optimizer_parts(self.affinity or {})  # type: ignore[arg-type]

    def _n_replicas(self) -> int:
        return len(self.affinities()) if self.n_replicas is None else self.whole("n_replicas")

    def own_affinity(self) -> Kwargs | None:
        """Return the affinity of the process that learns."""
        parts = self.affinities()
        if not parts:
            raise ValueError(f"{type(self).__name__}: affinity is an empty list; expected one dictionary or more.")
        own = dict(parts[min(self._rank, len(parts) - 1)])
        return {**own, "master_cpus": self._cpus} if self._cpus else own

    def _affinity_of_sampler(self) -> Kwargs:
        """Return the affinity of the process of the sampler."""
        if isinstance(self.affinity, Sequence):
            return sampler_part(self.affinities()[min(self._rank, len(self.affinity) - 1)])
        return sampler_part(self.affinity or {}, self.replicas.rank, self.replicas.world_size)

    # ---- set-up ----

    def take_own_parts(self) -> None:
        """Let the sampler, or this replica's share of it, work in a process of its own."""
        self._to_give_back.callback(setattr, self, "sampler", self.given_sampler)
        self.take_share(of_algo=self.batch_sizes == "global")
        if self.lag == "free":
            self.lock = RwLock(("learner", "copier"), timeout=self.lock_seconds, what="the shared replay")
            self.lock.join("learner")
            self.sampler = self._free_sampler = self.sampler.running_freely(self._affinity_of_sampler())
        else:
            self.sampler = self.sampler.in_background(self._lag, self._affinity_of_sampler())

    def startup(self) -> int:
        """Build all parts; where the sampler runs freely, start the process that appends to the replay too."""
        n_itr = super().startup()
        if self.lag == "free":
            assert self.algo.feed is not None  # as `appends_apart` says
            self._free_sampler.append_by(self.algo.feed.appender(), self.algo.min_itr_learn, self.ratio_band)
        return n_itr

    def print_plan(self, n_itr: int) -> None:
        """Log what will be done, and warn of a lag that no weights outlive."""
        super().print_plan(n_itr)
        if self.lag != "free" and self._lag >= n_itr:
            self.logger.warn_once(
                "lag",
                f"lag is {self._lag:,} and the run has {n_itr:,} iterations: all batches are collected with the first "
                "weights, and none after an update. Lower lag, or raise n_steps.",
            )

    def steps_collected(self, n_done: int) -> int:
        """Return the environment steps collected so far; with lag="free" they may be ahead or behind."""
        if self.lag == "free":
            return self._free_sampler.n_collected * self.steps_per_itr
        return super().steps_collected(n_done)

    def measure_compute(self, run: Run, n_busy: int = 0) -> Choice:
        """Return the fastest settings on this machine, with threads on the cores that the sampler leaves free."""
        return super().measure_compute(run, n_busy + int(str(self.sampler.plan().get("workers", 1))))


@dataclass(eq=False)
class AsyncRl(AsyncRlBase, MinibatchRl):
    """`MinibatchRl` whose sampler works in a process of its own, while this one learns."""


@dataclass(eq=False)
class AsyncRlEval(AsyncRlBase, MinibatchRlEval):
    """`MinibatchRlEval` whose sampler works in a process of its own, while this one learns.

    Evaluations run there too, with the weights of now, once the batches under way are done; the learner waits for them.
    """
