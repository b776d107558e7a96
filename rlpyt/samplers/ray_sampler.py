"""The sampler of `CpuSampler`'s workers on other machines, by Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlpyt.core import Agent
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collecting import Collects
from rlpyt.samplers.cpu import CpuSampler
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.ray_host import Layout, start_of_layouts
from rlpyt.samplers.ray_workers import RayWorker, RayWorkers
from rlpyt.samplers.remote_collectors import RemoteCollectors
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import Kwargs
from rlpyt.utils.calls import AnyCall, call
from rlpyt.utils.processes import START_METHODS
from rlpyt.utils.progress import Progress
from rlpyt.utils.ray_cluster import RayConnection
from rlpyt.utils.worker_pool import WorkerKind, WorkerPool


class RayCollectors(RemoteCollectors):
    """Collectors and evaluators on other machines, whose columns are copied into the rows with every reply.

    Args:
        workers: of the pool.
        pool: its environments are built.
        agent: each node gets a copy of it.
        check: result of the check at the start.
        rows: every worker's columns of the rows of its fleets.
        ranks: those of every worker's training environments.
        timeout: seconds that a worker may go without progress, from the first batch on.
        wake: whether a worker lets environments that rest be reset only when it is told to.
    """

    def __init__(
        self,
        workers: RayWorkers,
        pool: WorkerPool[Collects],
        agent: Agent,
        check: Check,
        rows: Sequence[Mapping[FleetRole, Rows]],
        ranks: Sequence[Sequence[int]],
        timeout: float,
        wake: bool,
    ) -> None:
        super().__init__(pool, agent, check, rows, ranks, timeout, wake)
        self._workers = workers

    def _share_agent(self) -> None:
        workers, is_first = self._workers, not self._started
        if is_first:
            copy = self._agent.acting_copy()
            self._weights = WeightStore(copy)
            workers.share_agent(copy)
        self._weights.publish(self._agent)
        workers.share_weights(self._weights)
        if is_first:
            workers.rows = {rank: rows[FleetRole.TRAIN] for rank, rows in enumerate(self._rows)}
            layouts = [{role: Layout.of(some) for role, some in rows.items()} for rows in self._rows]
            starts = {rank: call(start_of_layouts, self._check, some) for rank, some in enumerate(layouts)}
            self._pool.set_up(starts)
            self._pool.timeout = self._timeout
            self._started = True

    @staticmethod
    def on_loss(progress: Progress, request: AnyCall[Collects]) -> AnyCall[Collects]:
        """Begin the worker's share of the batch or of an evaluation again: what it had done is lost with its node."""
        return request.but(after_loss=True) if request.is_of(Collects.evaluate) else request


@dataclass(kw_only=True, eq=False)
class RaySampler(CpuSampler):
    """Sampler that deals the environments to workers on the nodes of a Ray cluster.

    One message a batch goes each way: a worker gets the weights, and sends its columns of the batch. The rows are those
    of `CpuSampler`. Needs the extra `ray`, and the same versions of Python, torch and the environments on every node.
    """

    shares_memory: ClassVar[bool] = False

    ray_address: str = "auto"
    """The cluster, as `ray.init` takes it: "auto" is the one that runs on this machine, "local" starts one with this
    machine alone, which ends with the run, and listens on all network interfaces as every cluster of Ray does. Not used
    where the process is connected to a cluster."""
    node_timeout: float = 30.0
    """Seconds that a node with a worker at work may go without an answer before it counts as lost; it answers twice a
    second. Ray itself sees the end of a process within two seconds or so."""

    def __post_init__(self) -> None:
        """Refuse times that are none."""
        super().__post_init__()
        if not self.node_timeout > 1:
            raise ValueError(
                f"{type(self).__name__}: node_timeout is {self.node_timeout}; expected a number of seconds above 1, as "
                "a node answers twice a second."
            )
        for name in ("worker_kind", "start_method"):
            if getattr(self, name) not in (None, *START_METHODS):
                raise ValueError(
                    f"{type(self).__name__}: {name} is {getattr(self, name)!r:.100}; expected its default: the workers "
                    "are processes on the nodes of the cluster. Give it to CpuSampler, whose rows are the same."
                )
        self._connection: RayConnection | None = None
        self._ray_workers: RayWorkers | None = None

    def start_pool(self, specs: Specs, affinity: Kwargs, progress: Progress | None = None) -> None:
        """Connect to the cluster, and start the workers."""
        self._connection = RayConnection(type(self).__name__, self.ray_address)
        try:
            super().start_pool(specs, affinity, progress)
        except BaseException:
            self.shutdown()
            raise

    def kind_of_workers(self, n_workers: int) -> WorkerKind[RayWorker]:
        """Return the workers on the nodes of the cluster."""
        assert self._connection is not None, "start_pool connects"
        kind = RayWorkers(self._connection, self.server, self.start_method, n_workers, self.node_timeout)
        self._ray_workers = kind
        return kind

    def serve(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows], wake: bool) -> None:
        """Let the workers collect and evaluate."""
        assert self._ray_workers is not None, "start_pool comes first"
        dealt, ranks = self._rows_of_workers(rows), [specs[FleetRole.TRAIN].env_ranks for specs in self._worker_specs]
        self._remote = RayCollectors(
            self._ray_workers, self.pool, agent, check, dealt, ranks, self.worker_timeout, wake
        )

    on_loss = staticmethod(RayCollectors.on_loss)

    def _worker_cpus(self, affinity: Kwargs) -> list[list[int] | None]:
        """Return None for every worker: cores are those that Ray gives its host."""
        assert self._connection is not None, "start_pool connects"
        n_cores = sum(node.n_cores for node in self._connection.nodes().values())
        n_workers = self.n_workers or max(1, min(n_cores, self.batch_spec.B))
        if n_workers > n_cores:
            raise ValueError(
                f"{type(self).__name__}: n_workers is {n_workers}; expected at most {n_cores}, the cores of the Ray "
                "cluster: every worker takes one. Lower it, add nodes, or start them with a higher --num-cpus."
            )
        self._check_n_workers(n_workers, "n_workers is")
        return [None] * n_workers

    def shutdown(self) -> None:
        """Stop the workers, which close their environments, and disconnect from the cluster."""
        try:
            super().shutdown()
        finally:
            workers, self._ray_workers = self._ray_workers, None
            connection, self._connection = self._connection, None
            if workers is not None:
                workers.close()
            elif connection is not None:
                connection.close()
