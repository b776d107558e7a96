"""The processes that learn in a run: this one alone, or replicas that a run starts or a launcher has started."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Literal, TypeAlias, get_args

import torch.distributed as dist

from rlpyt.core import Agent, Algorithm, Sampler
from rlpyt.logging import current_logger
from rlpyt.runners.agreement import Agreement
from rlpyt.settings import Settings, whole
from rlpyt.types import Kwargs
from rlpyt.utils.affinity import Affinity, dealt_cpus, optimizer_parts, pinned_to, sampler_part
from rlpyt.utils.calls import CallServer, call
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.launched import Launched, launcher_store
from rlpyt.utils.process_group import ProcessGroup, Reduction, ReplicaError, check_reduction
from rlpyt.utils.processes import (
    Worker,
    WorkerError,
    available_cores,
    cores_limited_to,
    has_own_cores,
    receive_all,
    stop_workers,
)
from rlpyt.utils.progress import Progress
from rlpyt.utils.replicas import Replicas

_START_METHOD = "forkserver"
_START_SECONDS = 600.0  # that a replica may be late while environments are built
_END_SECONDS = 60.0  # that a replica may take to close its sampler, after the last iteration

BatchSizes = Literal["replica", "global"]
"""What batch sizes are given for."""
Train: TypeAlias = Callable[[], None]
"""`train` of a runner."""
Join: TypeAlias = Callable[[int, int, dist.Store], None]
"""`join` of its group."""


@dataclass(eq=False)
class ReplicaSettings(Settings):
    """Settings of a run of several replicas."""

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
        super().__post_init__()
        check_reduction(type(self).__name__, self.reduction)
        if self.batch_sizes not in get_args(BatchSizes):
            raise ValueError(
                f"{type(self).__name__}: batch_sizes is {self.batch_sizes!r}; expected one of {get_args(BatchSizes)}."
            )
        self.check("replica_timeout", lambda x: x > 0, "a number of seconds above 0")


class ReplicaGroup:
    """The processes of the replicas of a run, each with its own sampler, agent and algorithm.

    This process is the only replica, or replica 0, which starts the others on this machine, or it is one of those that
    a launcher has started.

    Args:
        runner: name of its class, for messages.
        affinity: as the runner was given it.
        settings: of several replicas; None is a run of this process alone.
        apart: whether samplers have processes of their own. Each is a share of the sampler then, and the affinity may
            have the parts "optimizer" and "sampler".

    Raises:
        ValueError: if the number of replicas is below 1, or not that of the affinities.
    """

    def __init__(
        self,
        runner: str,
        affinity: Kwargs | Sequence[Kwargs] | None,
        settings: ReplicaSettings | None = None,
        apart: bool = False,
    ) -> None:
        self._runner, self._affinity, self._is_alone, self._apart = runner, affinity, settings is None, apart
        self._settings = settings or ReplicaSettings(n_replicas=1)
        self._launched = None if self._is_alone else Launched.from_environment()
        self._rank = self._launched.local_rank if self._launched else 0  # among those of this machine
        self._cpus: list[int] = []  # of this replica, where its affinity names none
        self._joining: tuple[int, int, dist.Store] | None = None
        self._group: ProcessGroup | None = None
        self.agreement = Agreement(Replicas())
        """With the other replicas, while a training goes on."""
        self.cores = Affinity.from_mapping(self.affinity())
        """Cores and devices of this process."""
        self._shares_algo = self._settings.batch_sizes == "global"
        self._shares_sampler = self._shares_algo or apart  # its batch_B is that of all replicas together
        if not self._is_alone and self._launched is None:
            self._check_number()

    @property
    def replicas(self) -> Replicas:
        """This replica of the run and the others."""
        return self.agreement.replicas

    def _check_number(self) -> None:
        """Raise ValueError for a number of replicas that contradicts the affinity."""
        n, given = self.n_started(), self.affinities()
        if n != len(given) and (len(given) > 1 or isinstance(self._affinity, Sequence)):
            raise ValueError(
                f"{self._runner}: n_replicas is {n}, and affinity has {len(given)} dictionaries; expected one for each "
                "replica. Leave n_replicas out."
            )
        if n > len(given) and self.cores.master_cpus:
            raise ValueError(
                f"{self._runner}: affinity has one dictionary with cores, and the run has {n} replicas, which would "
                "all work on them; expected a dictionary for each replica. Give cuda_idx and set_affinity alone, and "
                "cores are dealt."
            )

    # ---- shares ----

    def share_of(
        self, algo: Algorithm[Agent], sampler: Sampler, n: int | None = None
    ) -> tuple[Algorithm[Agent], Sampler]:
        """Return the algorithm and the sampler of one of n replicas, by default those of now; see `share` of both."""
        n = n or self.replicas.world_size
        of_algo, of_sampler = self._shares_algo and n > 1, self._shares_sampler and n > 1
        return algo.share(n) if of_algo else algo, sampler.share(n) if of_sampler else sampler

    def steps_of_all(self, steps: int) -> int:
        """Return the environment steps of all replicas in a batch of `steps` rows of the sampler as it was given."""
        return steps if self._shares_sampler else steps * self.replicas.world_size

    # ---- cores and numbers ----

    def affinities(self) -> list[Kwargs]:
        """Return the affinity of each replica of this machine, or one for all of them."""
        if isinstance(self._affinity, Sequence):
            return list(self._affinity)
        return optimizer_parts(self._affinity or {}) if self._apart else [dict(self._affinity or {})]

    def affinity(self) -> Kwargs | None:
        """Return the affinity of this replica, with its share of the machine's cores where it names none."""
        own = self._affinity
        if self._apart:
            parts = self.affinities()
            if not parts:
                raise ValueError(f"{self._runner}: affinity is an empty list; expected one dictionary or more.")
            own = parts[min(self._rank, len(parts) - 1)]
        elif not self._is_alone and isinstance(own, Sequence):
            if not self._rank < len(own):
                raise ValueError(
                    f"{self._runner}: affinity has {len(own)} dictionaries, and this is replica {self._rank} of its "
                    "machine; expected one for each replica."
                )
            own = own[self._rank]
        return {**(own or {}), "master_cpus": self._cpus} if self._cpus else own  # type: ignore[return-value, dict-item]

    def sampler_affinity(self) -> Kwargs:
        """Return the affinity of a process for the sampler alone."""
        if isinstance(self._affinity, Sequence):
            return sampler_part(self._affinity[min(self._rank, len(self._affinity) - 1)])
        return sampler_part(self._affinity or {}, self.replicas.rank, self.replicas.world_size)

    def n_started(self) -> int:
        """Return how many replicas this process starts, itself counted."""
        if self._settings.n_replicas is not None:
            return whole(self._settings, "n_replicas")
        given = self._apart or isinstance(self._affinity, Sequence)
        return len(self.affinities()) if given else available_cores()

    def world_size(self) -> int:
        """Return how many replicas the run has: each process of a launcher is one."""
        return self.n_started() if self._launched is None else self._launched.world_size

    # ---- a training ----

    def join(self, rank: int, world_size: int, store: dist.Store) -> None:
        """Be replica `rank`, of those that meet at a store, in the next training."""
        self._joining, self._rank = (rank, world_size, store), rank
        self.cores = Affinity.from_mapping(self.affinity())

    @contextmanager
    def joined(self, train: Train, settings: object) -> Iterator[None]:
        """Be one of the replicas while the block runs; start the others, and stop them at the end, if they are ours.

        These get copies of the runner whose `train` is given. `settings` are those of the computation, as they were
        given.
        """
        joining, self._joining = self._joining, None
        world_size = self.world_size()
        if self._launched is not None and self._settings.n_replicas not in (None, world_size):
            raise ValueError(
                f"{self._runner}: n_replicas is {self._settings.n_replicas}, and the launcher has started {world_size} "
                "processes; expected the same number. Leave n_replicas out."
            )
        if joining is None and self._launched is not None and world_size > 1:
            joining = (self._launched.rank, world_size, launcher_store())
        device = self.cores.device
        if isinstance(settings, ComputeSettings):
            device = self.cores.device_of_replica(settings.device, world_size)
        if joining is not None:
            with self._as_one_of(*joining, [], device):
                yield
        elif world_size == 1:
            yield
        else:
            with (
                _started_replicas(train, self.join, world_size) as (store, workers),
                self._as_one_of(0, world_size, store, workers, device),
            ):
                yield

    @contextmanager
    def _as_one_of(
        self, rank: int, world_size: int, store: dist.Store, workers: Sequence[Worker], device: str
    ) -> Iterator[None]:
        """Be replica `rank`, of those that meet at a store, while the block runs; `workers` are ours."""
        hook = sys.excepthook
        try:
            self._group = ProcessGroup(
                store,
                rank,
                world_size,
                reduction=self._settings.reduction,
                timeout=max(self._settings.replica_timeout, _START_SECONDS),
                device=device,
                on_wait=partial(_check_started, workers),
            )
            self.agreement = Agreement(self._group)
            with self.on_own_cores(self._group):
                yield
        finally:
            if self._group is not None:
                self._group.leave()
            if self._launched is None:  # torch marks the lines of later errors by the rank, which is for a launcher
                sys.excepthook = hook
            self._group, self.agreement, self._cpus = None, Agreement(Replicas()), []

    def on_own_cores(self, group: ProcessGroup) -> AbstractContextManager[None]:
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
        self.cores = Affinity.from_mapping(self.affinity())
        return pinned_to(self._cpus)

    def check_launched(self, max_time: float) -> None:
        """Raise ValueError for a run that each process of a launcher would make on its own, or torchrun start again."""
        launched = Launched.from_environment()  # a runner of one process asks, too
        if launched is None:
            return
        if launched.world_size > 1 and self.replicas.world_size == 1:
            raise ValueError(
                f"{self._runner}: this is process {launched.rank} of {launched.world_size} of a launcher such as "
                "torchrun (RANK and WORLD_SIZE are set), and each would train alone, with the same results. Use SyncRl "
                "or SyncRlEval, whose replicas they become, or start the script without the launcher."
            )
        if launched.max_restarts > 0 and max_time < inf:
            raise ValueError(
                f"{self._runner}: max_time is {max_time:g}, and torchrun has --max-restarts={launched.max_restarts}; "
                "expected one of them. At the end of its time a run ends with exit code 85, which torchrun takes for a "
                "failure: it would start the run again, for max_time more. Leave --max-restarts out, or max_time."
            )

    def note_done(self, n_done: int, step: int) -> None:
        """Note the iterations that are done, for messages about a replica that is lost."""
        if self._group is not None:
            self._group.place = f"iteration {n_done} (step {step:,})"

    def end_of_start(self) -> None:
        """Wait for others no longer than a run waits that has started."""
        if self._group is not None:
            self._group.wait_at_most(self._settings.replica_timeout)

    def leave(self) -> None:
        """Leave the group, telling it the error that is being handled, if there is one.

        The others learn of it before environments are closed, which may take seconds.
        """
        if self._group is not None:
            error = sys.exception()
            if error is not None:
                self._group.report(error)
            self._group.leave()


# ---- processes of replicas that a run starts on its own machine ----


class ReplicaServer(CallServer):
    """Server of the process of a replica; `port` is that of the store of replica 0, on this machine."""

    def __init__(self, rank: int, progress: Progress, train: Train, join: Join, world_size: int, port: int) -> None:
        self._train = train
        join(rank, world_size, dist.TCPStore("127.0.0.1", port, is_master=False))

    def train(self) -> None:
        """Train."""
        self._train()

    def close(self) -> None:
        """Do nothing; the runner has closed everything after its training."""


@contextmanager
def _started_replicas(train: Train, join: Join, world_size: int) -> Iterator[tuple[dist.Store, list[Worker]]]:
    """Start replicas 1, 2, ... of a run, with copies of the runner, and stop them when the block ends in any way.

    Yields:
        The store by which they find each other, and the processes.
    """
    # Port 0: the system picks one that is free. It listens on this machine only.
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    workers: list[Worker] = []
    try:
        for rank in range(1, world_size):
            args = (train, join, world_size, port)
            worker = Worker(rank, ReplicaServer, args, _START_METHOD, obeys_sigterm=True, role="Replica")
            workers.append(worker)
            worker.send(call(ReplicaServer.train))
        yield store, workers
        receive_all(workers, _END_SECONDS)
    except BaseException:
        for worker in workers:
            if worker.pid is not None and not worker.has_ended:  # else another process may have its number
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGTERM)  # it closes its environments
        raise
    finally:
        stop_workers(workers)


def _check_started(workers: Sequence[Worker]) -> None:
    """Raise the error of a replica that has ended before it was in the group."""
    for worker in workers:
        if worker.has_ended:
            try:
                worker.receive(1.0)
            except WorkerError as error:
                raise ReplicaError(f"Replica {worker.rank} ended at its start.\n{error}", worker.rank) from None
            raise ReplicaError(f"Replica {worker.rank} (pid {worker.pid}) ended at its start.", worker.rank)
