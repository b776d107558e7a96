"""The sampler of `CpuSampler`'s workers on other machines, by Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlpyt.core import Agent
from rlpyt.samplers.cpu import CpuSampler
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.ray_workers import RayWorkers
from rlpyt.samplers.remote_collectors import RemoteCollectors
from rlpyt.samplers.work import Collects
from rlpyt.samplers.workers import Workers, check_n_workers
from rlpyt.types import Kwargs
from rlpyt.utils.calls import AnyCall
from rlpyt.utils.processes import START_METHODS
from rlpyt.utils.progress import Progress
from rlpyt.utils.ray_cluster import RayConnection


class RayCollectors(RemoteCollectors):
    """Collectors and evaluators on other machines, whose columns are copied into the rows with every reply."""

    @property
    def _kind(self) -> RayWorkers:
        kind = self._workers.kind
        assert isinstance(kind, RayWorkers), "RaySampler has started them"
        return kind

    def _publish(self) -> None:
        super()._publish()
        self._kind.publish(self._weights)

    def _begin(self, copy: Agent) -> None:
        self._kind.share(copy, [rows[FleetRole.TRAIN] for rows in self._rows])
        super()._begin(copy)

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

    collectors: ClassVar[type[RemoteCollectors]] = RayCollectors

    ray_address: str = "auto"
    """The cluster, as `ray.init` takes it: "auto" is the one that runs on this machine, "local" starts one with this
    machine alone, which ends with the run and listens on its loopback interface, while other clusters listen on all
    network interfaces. Not used where the process is connected to a cluster."""
    node_timeout: float = 30.0
    """Seconds that a node with a worker at work may go without an answer before it counts as lost; it is asked twice a
    second. Ray itself sees the end of a process within two seconds or so."""

    def __post_init__(self) -> None:
        """Refuse times that are none."""
        super().__post_init__()
        if not self.node_timeout > 1:
            raise ValueError(
                f"{type(self).__name__}: node_timeout is {self.node_timeout}; expected a number of seconds above 1, as "
                "a node is asked twice a second."
            )
        for name in ("worker_kind", "start_method"):
            if getattr(self, name) not in (None, *START_METHODS):
                raise ValueError(
                    f"{type(self).__name__}: {name} is {getattr(self, name)!r:.100}; expected its default: the workers "
                    "are actors on the nodes of the cluster. Give it to CpuSampler, whose rows are the same."
                )
        self._kind: RayWorkers | None = None

    def start(self, specs: Specs, affinity: Kwargs) -> Check:
        """Connect to the cluster, and start the workers; return the result of the check."""
        connection = RayConnection(type(self).__name__, self.ray_address)
        self._kind = kind = RayWorkers(connection, self.server, self.node_timeout)
        try:
            n_cores = sum(node.n_cores for node in connection.nodes().values())
            n_workers = self.n_workers or max(1, min(n_cores, self.batch_spec.B))
            if n_workers > n_cores:
                raise ValueError(
                    f"{type(self).__name__}: n_workers is {n_workers}; expected at most {n_cores}, the cores of the "
                    "Ray cluster: every worker takes one. Lower it, add nodes, or start them with a higher --num-cpus."
                )
            check_n_workers(self, n_workers, self.batch_spec.B, "n_workers is")
            kind.deal(n_workers)
            no_cores = (None,)  # Ray deals them
            self._workers = Workers(self, kind, specs, [no_cores] * n_workers, self.collectors.on_loss)
        except BaseException:
            self.shutdown()
            raise
        return self._workers.check_and_build()

    def shutdown(self) -> None:
        """Stop the workers, which close their environments, and disconnect from the cluster."""
        try:
            super().shutdown()
        finally:
            kind, self._kind = self._kind, None
            if kind is not None:
                kind.close()
