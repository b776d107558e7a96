"""Runners of several replicas, each with its own sampler, whose gradients are averaged."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

import torch.distributed as dist

from rlpyt.core import Metrics
from rlpyt.logging import current_logger
from rlpyt.old_names import serve_old_names
from rlpyt.runners.base import MinibatchRlBase
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.replica_process import check_started, end_of, interrupted_by_an_end, started_replicas
from rlpyt.runners.signals import signals_as_exceptions
from rlpyt.types import Kwargs, TrajInfo
from rlpyt.utils.affinity import Affinity, dealt_cpus, pinned_to
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.launched import Launched, launcher_store
from rlpyt.utils.process_group import ProcessGroup, Reduction, check_reduction
from rlpyt.utils.processes import Worker, available_cores, cores_limited_to, has_own_cores
from rlpyt.utils.replicas import Replicas

serve_old_names(__name__)

_START_SECONDS = 600.0  # that a replica may be late while environments are built

BatchSizes = Literal["replica", "global"]
"""What batch sizes are given for."""


@dataclass(eq=False)
class SyncRlBase(MinibatchRlBase):
    """Runner of several replicas of sampler, agent and algorithm, whose gradients are averaged.

    This process is replica 0. It has the log, and the trained agent. It starts the other replicas on this machine, or
    finds them where a launcher such as torchrun has started them.

    Raises:
        ValueError: if the number of replicas is below 1, or not that of the affinities.
    """

    n_replicas: int | None = field(default=None, kw_only=True)
    """Replicas; None is one for each dictionary in a list of affinities, each process of a launcher, or else each core
    that this process may use (`AsyncRl`: one)."""
    reduction: Reduction = field(default="flat", kw_only=True)
    """"flat" averages all gradients as one tensor after the backward pass; "ddp" is DistributedDataParallel, which
    averages them during it."""
    replica_timeout: float = field(default=300.0, kw_only=True)
    """Seconds that a replica may be late for the others before it counts as lost."""

    batch_sizes: BatchSizes = field(default="replica", kw_only=True)
    """"replica": the sampler's batch_B and the algorithm's batch size (batch_B of sequences) are those of each replica;
    "global": those of all together. All other numbers, the evaluation's among them, are those of the run."""

    def __post_init__(self) -> None:
        """Refuse replicas that cannot be."""
        self._launched = Launched.from_environment()
        self._rank = self._launched.local_rank if self._launched else 0  # among those of this machine
        self._cpus: list[int] = []  # of this replica, where its affinity names none
        self._joining: tuple[int, int, dist.Store] | None = None
        self._group: ProcessGroup | None = None
        super().__post_init__()
        check_reduction(type(self).__name__, self.reduction)
        if self.batch_sizes not in get_args(BatchSizes):
            raise ValueError(
                f"{type(self).__name__}: batch_sizes is {self.batch_sizes!r}; expected one of {get_args(BatchSizes)}."
            )
        self.check("replica_timeout", lambda x: x > 0, "a number of seconds above 0")
        if self._launched is None:
            self._check_number()
        self.check_shares(self._world_size())

    def _check_number(self) -> None:
        """Refuse a number of replicas that contradicts the affinity."""
        n, name = self._n_replicas(), type(self).__name__
        if n != len(given := self.affinities()) and (len(given) > 1 or isinstance(self.affinity, Sequence)):
            raise ValueError(
                f"{name}: n_replicas is {n}, and affinity has {len(given)} dictionaries; expected one for each "
                "replica. Leave n_replicas out."
            )
        if n > len(given) and self.cores.master_cpus:
            raise ValueError(
                f"{name}: affinity has one dictionary with cores, and the run has {n} replicas, which would all work "
                "on them; expected a dictionary for each replica. Give cuda_idx and set_affinity alone, and cores are "
                "dealt."
            )

    def check_shares(self, n_replicas: int) -> None:
        """Refuse batch sizes that the replicas cannot divide, before there are any."""
        if self.batch_sizes == "global" and n_replicas > 1:
            self.algo.share(n_replicas)
            self.sampler.share(n_replicas)

    def affinities(self) -> list[Kwargs]:
        """Return the affinity of each replica of this machine, or one for all of them."""
        return list(self.affinity) if isinstance(self.affinity, Sequence) else [dict(self.affinity or {})]

    def own_affinity(self) -> Kwargs | None:
        """Return the affinity of this replica, with its share of the machine's cores where it names none."""
        own = self.affinity
        if isinstance(own, Sequence):
            if not self._rank < len(own):
                raise ValueError(
                    f"{type(self).__name__}: affinity has {len(own)} dictionaries, and this is replica {self._rank} of "
                    "its machine; expected one for each replica."
                )
            own = own[self._rank]
        return {**(own or {}), "master_cpus": self._cpus} if self._cpus else own

    def _n_replicas(self) -> int:
        """Return how many replicas this process starts, itself counted."""
        if self.n_replicas is not None:
            return self.whole("n_replicas")
        return len(self.affinities()) if isinstance(self.affinity, Sequence) else available_cores()

    def _world_size(self) -> int:
        """Return how many replicas the run has: each process of a launcher is one."""
        return self._n_replicas() if self._launched is None else self._launched.world_size

    # ---- training ----

    def join(self, rank: int, world_size: int, store: dist.Store) -> None:
        """Be replica `rank`, of those that meet at a store, in the next training."""
        self._joining, self._rank = (rank, world_size, store), rank
        self.cores = Affinity.from_mapping(self.own_affinity())

    def train(self) -> None:
        """Train until `n_steps`; no replica and no worker is left behind, also where the run fails."""
        joining, self._joining = self._joining, None
        world_size = self._world_size()
        if self._launched is not None and self.n_replicas not in (None, world_size):
            raise ValueError(
                f"{type(self).__name__}: n_replicas is {self.n_replicas}, and the launcher has started {world_size} "
                "processes; expected the same number. Leave n_replicas out."
            )
        if joining is None and self._launched is not None and world_size > 1:
            joining = (self._launched.rank, world_size, launcher_store())
        if joining is not None:
            self._train_in_group(*joining, [])
        elif world_size == 1:
            super().train()
        else:
            with signals_as_exceptions(self.defer), started_replicas(self, world_size) as (store, workers):
                self._train_in_group(0, world_size, store, workers)

    def _train_in_group(self, rank: int, world_size: int, store: dist.Store, workers: Sequence[Worker]) -> None:
        """Train as one of several replicas.

        Args:
            rank: of this replica.
            world_size: replicas.
            store: where they meet.
            workers: the replicas that this process has started.
        """
        hook = sys.excepthook
        try:
            with interrupted_by_an_end(workers, self._end_of_replica):
                given = self.settings if isinstance(self.settings, ComputeSettings) else None
                device = given.device if given else self.cores.device
                self.replicas = self._group = ProcessGroup(
                    store,
                    rank,
                    world_size,
                    reduction=self.reduction,
                    timeout=max(self.replica_timeout, _START_SECONDS),
                    device=device,
                    on_wait=partial(check_started, workers),
                )
                with self._on_own_cores(self._group):
                    super().train()
        finally:
            if self._group is not None:
                self._group.leave()
            if self._launched is None:  # torch marks the lines of later errors by the rank, which is for a launcher
                sys.excepthook = hook
            self._group, self.replicas, self._cpus = None, Replicas(), []

    def _end_of_replica(self, worker: Worker) -> Exception | None:
        """Return the error of a process that has ended while this one trains; None while another error is handled."""
        if self._group is None:
            return end_of(worker)
        return None if self._group.failed else self._group.lost(f"its process {worker.pid} has ended")

    def _on_own_cores(self, group: ProcessGroup) -> AbstractContextManager[None]:
        """Give this process its share of the cores that replicas have in common, unless it is pinned to others.

        It is pinned to its share where the cores are the run's own; else it has as many.
        """
        pins, named = self.cores.set_affinity, self.cores.master_cpus or self.cores.workers_cpus
        if pins and named:
            return nullcontext()
        own = group.peers[group.rank]
        sharing = [r for r, peer in enumerate(group.peers) if peer.shares_cores_with(own)]
        cpus = own.cpus[: available_cores()]
        if group.rank == 0 and len(sharing) > len(cpus):
            current_logger().warn(
                f"{len(sharing)} replicas share the cores of {own.host}, in number {len(cpus)}, and wait for each "
                "other. Give no more replicas than cores."
            )
        share = dealt_cpus(cpus, len(sharing))[sharing.index(group.rank)]
        if not (pins and has_own_cores()):
            return cores_limited_to(len(share))
        self._cpus = share
        self.cores = Affinity.from_mapping(self.own_affinity())
        return pinned_to(self._cpus)

    def startup(self) -> int:
        """Build all parts, as the others do."""
        self.take_own_parts()
        n_itr = super().startup()
        self._note_place(0)
        if self._group is not None:
            self._group.wait_at_most(self.replica_timeout)
        return n_itr

    def take_own_parts(self) -> None:
        """Let algorithm and sampler be those of this replica."""
        if self.batch_sizes == "global":
            self.take_share()

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep what the next row of the log is made of."""
        super().store_diagnostics(itr, traj_infos, metrics)
        self._note_place(itr + 1)

    def _note_place(self, itr: int) -> None:
        if self._group is not None:
            self._group.place = f"iteration {itr} (step {itr * self.steps_per_itr:,})"

    def shutdown(self) -> None:
        """Leave the group, telling it the error that ends this replica; stop the workers, give back cores and threads.

        The others learn of it before environments are closed, which may take seconds.
        """
        if self._group is not None:
            error = sys.exception()
            if error is not None:
                self._group.report(error)
            self._group.leave()
        super().shutdown()


@dataclass(eq=False)
class SyncRl(SyncRlBase, MinibatchRl):
    """Runner of several replicas that logs the statistics of the trajectories that training itself completes."""


@dataclass(eq=False)
class SyncRlEval(SyncRlBase, MinibatchRlEval):
    """Runner of several replicas that evaluates the agent before the first iteration and at every row of the log."""
