"""One training of a runner: how it collects, and the parts and facts that its log and checkpoints share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rlpyt.core import Agent, Algorithm, FreeSampler, Sampler
from rlpyt.logging import Logger
from rlpyt.runners.agreement import Agreement
from rlpyt.types import Kwargs
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.rw_lock import NoLock, RwLock


class InTurn:
    """Collecting in turn with learning, by the sampler itself."""

    lock: NoLock = NoLock()
    """Of what the algorithm shares with other processes."""
    apart: bool = False
    """Whether other processes collect while the runner learns, and keep their cores busy."""

    def sampler_of(self, sampler: Sampler, affinity: Callable[[], Kwargs]) -> Sampler:
        """Return what collects for a sampler, which stays as it is; `affinity` returns that of a process apart."""
        return sampler

    def start(self, algo: Algorithm[Agent]) -> None:
        """Start what needs the algorithm, which is initialised; the first batch is collected next."""

    def steps_collected(self, n_done: int, steps_per_itr: int) -> int:
        """Return the environment steps collected after `n_done` iterations, by which speed and ratio are counted."""
        return n_done * steps_per_itr

    def warning(self, n_itr: int) -> str | None:
        """Return what a user should know of a run of `n_itr` iterations before it begins."""
        return None


class Lagged(InTurn):
    """Collecting in a process of its own, `lag` batches ahead of the learner."""

    apart = True

    def __init__(self, lag: int) -> None:
        self._lag = lag

    def sampler_of(self, sampler: Sampler, affinity: Callable[[], Kwargs]) -> Sampler:
        """Return what stands here for the sampler in its process."""
        return sampler.in_background(self._lag, affinity())

    def warning(self, n_itr: int) -> str | None:
        """Return a warning of a lag that no weights outlive."""
        if self._lag < n_itr:
            return None
        return (
            f"lag is {self._lag:,} and the run has {n_itr:,} iterations: all batches are collected with the first "
            "weights, and none after an update. Lower lag, or raise n_steps."
        )


class Free(InTurn):
    """Collecting in a process of its own, while a third one appends to the replay; all run freely within a band.

    `ratio_band` and `lock_seconds` are those of `AsyncRl`.
    """

    apart = True

    def __init__(self, ratio_band: float, lock_seconds: float) -> None:
        self._band, self._lock_seconds = ratio_band, lock_seconds

    def sampler_of(self, sampler: Sampler, affinity: Callable[[], Kwargs]) -> Sampler:
        """Return what stands here for the sampler in its process; make the lock of the replay."""
        self.lock = RwLock(("learner", "copier"), timeout=self._lock_seconds, what="the shared replay")
        self.lock.join("learner")
        self._sampler: FreeSampler = sampler.running_freely(affinity())
        return self._sampler

    def start(self, algo: Algorithm[Agent]) -> None:
        """Start the process that appends to the replay."""
        assert algo.feed is not None  # as its `appends_apart` says
        self._sampler.append_by(algo.feed.appender(), algo.min_itr_learn, self._band)

    def steps_collected(self, n_done: int, steps_per_itr: int) -> int:
        """Return the steps of the batches in the replay, which may be ahead of the learner or behind."""
        return self._sampler.n_collected * steps_per_itr


@dataclass(eq=False)
class Training:
    """Parts and facts of one training; a runner makes one in `startup`, and its settings stay as they were given."""

    algo: Algorithm[Agent]
    """Learns: that of the runner, or this replica's share of it."""
    agent: Agent
    """That of the runner."""
    sampler: Sampler
    """Collects: that of the runner, this replica's share of it, or what stands here for one in another process."""
    collecting: InTurn
    """How the sampler goes together with learning."""
    agreement: Agreement
    """With the other replicas."""
    logger: Logger = field(init=False)
    """Of replica 0; a silent one in the others. Known once the run has started."""
    steps_per_itr: int = 0
    """Environment steps of one iteration, all replicas counted."""
    n_itr: int = 0
    """Iterations of the run."""
    log_interval_itrs: int = 1
    """Iterations from one row of the log to the next."""
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    """Device, precision and so on; those of the run once they are chosen."""
    saved_step: int | None = None
    """Steps of the newest checkpoint that was saved, or is being saved."""
