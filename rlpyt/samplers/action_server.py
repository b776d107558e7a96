"""Action server: a process that runs the network for its share of the environments, in workers of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import psutil
import torch

from rlpyt.core import Agent
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Built, Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.stepping import Stepping
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.samplers.work import Collects, WorkHere
from rlpyt.samplers.workers import WorkerSettings
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.processes import allowed_cpus
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, set_seed, stream_seed
from rlpyt.utils.worker_pool import HERE


class ActionServer(Collects):
    """Server of a process with workers of its own, which answers the calls that a worker that acts is sent.

    Args:
        rank: of the action server.
        progress: where the work at hand is noted for the master.
        specs: its share of the environments.
        sampler: has the settings of the workers that step them.
        n_threads: torch threads while it collects; None leaves them as they are.
        affinity: cores of this process and its workers.
        device: where the actions are selected; None is the device of the run.
    """

    process: ClassVar[str] = "action server"

    def __init__(
        self,
        rank: int,
        progress: Progress,
        specs: Specs,
        sampler: WorkerSettings,
        n_threads: int | None,
        affinity: Affinity,
        device: str | None,
    ) -> None:
        self.specs, self.progress, self.device = specs, progress, device
        progress.env_rank = specs[FleetRole.TRAIN].env_ranks[0]
        self._stepping = Stepping(sampler, n_threads, specs, vars(affinity), progress)
        # By the start method "here" the process is not this server's to pin.
        if affinity.set_affinity and affinity.master_cpus and sampler.start_method != HERE:
            psutil.Process().cpu_affinity(allowed_cpus(affinity.master_cpus, "affinity's master_cpus"))
        torch.set_num_threads(affinity.master_torch_threads or 1)
        # Models may draw from the global generators. Streams of this role without an iteration are of others.
        spec = specs[FleetRole.TRAIN]
        set_seed(stream_seed(spec.seed, Role.SAMPLER, progress.env_rank, spec.restarts + 1))

    def check(self) -> Check:
        """Build, try and close one environment in a worker; return what it is like."""
        return self._stepping.workers.check()

    def build(self) -> list[Built]:
        """Build all environments; return what each fleet is like."""
        return self._stepping.workers.build()

    def start(self, check: Check, agent: Agent, weights: WeightStore, rows: Mapping[FleetRole, Rows]) -> None:
        """Put agent, environments and rows together; see `Collects.start`."""
        agent.to_device(agent.compute if self.device is None else replace(agent.compute, device=self.device))
        super().start(check, agent, weights, rows)

    def work(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> WorkHere:
        """Return collector and evaluator over the workers of this process."""
        return self._stepping.work(agent, check, rows)

    def close(self) -> None:
        """Stop the workers, which close their environments."""
        self._stepping.workers.close()
