"""The sampler with workers that each step some environments and run the network for them, on their own core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from rlpyt.core import Agent
from rlpyt.samplers.base import BaseSampler, count_cut
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Check, FleetServer
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.remote_collectors import RemoteCollectors
from rlpyt.samplers.work import Collects, WorkHere
from rlpyt.samplers.workers import (
    Workers,
    WorkerSettings,
    check_workers,
    kind_of_workers,
    worker_cpus,
    workers_of_share,
)
from rlpyt.types import Kwargs
from rlpyt.utils.checks import share_of


class CollectorServer(FleetServer, Collects):
    """Server of a worker that acts: a collector and an evaluator."""

    def work(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> WorkHere:
        """Return collector and evaluator over the environments of this worker."""
        parts = {role: [part] for role, part in self.started_parts(check, rows).items()}
        return WorkHere(agent, self.specs, parts, wakes=False)


@dataclass(kw_only=True, eq=False)
class CpuSampler(WorkerSettings, BaseSampler):
    """Sampler that deals the environments to workers, each of which acts with a copy of the agent.

    Weights and batch lie in shared memory. Every worker writes its own columns of the batch, so one message a batch
    goes each way. The rows are the same for any number of workers. Where EnvCls makes a vector environment, each worker
    has one.
    """

    acts_here: ClassVar[bool] = False
    collectors: ClassVar[type[RemoteCollectors]] = RemoteCollectors
    """Twin of the workers' collectors in this process."""
    shares_memory: ClassVar[bool] = True
    server: ClassVar[Callable[..., Any]] = CollectorServer

    def __post_init__(self) -> None:
        """Refuse workers without an environment, and times that are none."""
        super().__post_init__()
        check_workers(self, self.batch_spec.B)

    def share(self, n_replicas: int) -> Self:
        """Return a sampler for one of some replicas, with its share of the workers, too."""
        batch_B = share_of(type(self).__name__, "batch_B", self.batch_spec.B, n_replicas)
        return self.replace(batch_B=batch_B, n_workers=workers_of_share(self, n_replicas))

    def start(self, specs: Specs, affinity: Kwargs) -> Check:
        """Start workers, which build environments, after the first has checked one; return the result of the check."""
        cpus = worker_cpus(self, self.batch_spec.B, affinity)
        kind, on_cut = kind_of_workers(self), partial(count_cut, self)
        args_of = lambda rank, some: (some, cpus[rank], kind.own_generators)  # noqa: E731
        self._workers = Workers(self, kind, specs, len(cpus), args_of, self.collectors.on_loss, on_cut)
        return self._workers.check_and_build()

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> RemoteCollectors:
        """Let the workers collect and evaluate."""
        assert self._workers is not None, "start comes first"
        return self.collectors(self._workers, agent, check, rows, wake=not self.resets_mid_batch)


AsyncCpuSampler = CpuSampler
"""Its name in asynchronous runs of rlpyt 0.1."""
