"""The sampler with workers that each step some environments and run the network for them, on their own core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlpyt.core import Agent
from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.work import Collects, RemoteCollectors, WorkHere
from rlpyt.samplers.workers import WorkerSettings, env_workers
from rlpyt.types import Kwargs


class CollectorServer(Collects):
    """Server of a worker that acts: a collector and an evaluator."""

    def work(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> WorkHere:
        """Return collector and evaluator over the environments of this worker."""
        parts = {role: [part] for role, part in self.started_parts(check, rows).items()}
        return WorkHere(agent, self.specs, parts)


@dataclass(kw_only=True, eq=False)
class CpuSampler(WorkerSettings, BaseSampler):
    """Sampler that deals the environments to workers, each of which acts with a copy of the agent.

    Weights and batch lie in shared memory. Every worker writes its own columns of the batch, so one message a batch
    goes each way. The rows are the same for any number of workers. Where EnvCls makes a vector environment, each worker
    has one.
    """

    acts_here: ClassVar[bool] = False
    server: ClassVar[Callable[..., Any]] = CollectorServer

    def start(self, specs: Specs, affinity: Kwargs) -> Check:
        """Start workers, which build environments, after the first has checked one; return the result of the check."""
        self._workers = env_workers(self, specs, affinity, RemoteCollectors.on_loss)
        return self._workers.check_and_build()

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> RemoteCollectors:
        """Collect and evaluate in the workers."""
        assert self._workers is not None, "start comes first"
        return RemoteCollectors(self._workers, agent, check, rows)


AsyncCpuSampler = CpuSampler
"""Its name in asynchronous runs of rlpyt 0.1."""
