"""Action server: a process that runs the network for its share of the environments, in workers of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
import psutil
import torch

from rlpyt.core import Agent
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Built, Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.stepping import SteppingSettings, start_stepping, work_over
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.samplers.work import Collects
from rlpyt.types import Kwargs
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import allowed_cpus
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, set_seed, stream_seed


class ServerAffinity(NamedTuple):
    """Cores and device of an action server."""

    cores: Affinity
    device: str | None
    """Where it selects the actions; None is the device of the run."""


def server_affinity(affinity: Kwargs) -> ServerAffinity:
    """Return the cores and device that a dictionary names; without `cuda_idx` the device is the CPU."""
    cores = Affinity.from_mapping(affinity)
    ComputeSettings(device=cores.device)  # refuses a device that is not there, before any process
    return ServerAffinity(cores, cores.device)


def dealt_affinities(affinity: Kwargs, n: int) -> list[ServerAffinity]:
    """Return those of n action servers on the device of the run, which share the cores of its workers."""
    cpus = list(affinity.get("workers_cpus") or ())
    shares = [share.tolist() for share in np.array_split(np.arange(len(cpus)), n)]
    pinned = bool(affinity.get("set_affinity", True))
    cores = [Affinity(workers_cpus=[cpus[i] for i in share], set_affinity=pinned) for share in shares]
    return [ServerAffinity(one, None) for one in cores]


class ActionServer(Collects):
    """Server of a process with workers of its own, which answers the calls that a worker that acts is sent.

    Args:
        rank: of the action server.
        progress: where the work at hand is noted for the master.
        specs: its share of the environments.
        settings: of the workers that step them.
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
        settings: SteppingSettings,
        n_threads: int | None,
        affinity: Affinity,
        device: str | None,
    ) -> None:
        self.specs, self.progress, self.device = specs, progress, device
        self._settings, self._n_threads = settings, n_threads
        progress.env_rank = specs[FleetRole.TRAIN].env_ranks[0]
        # A lost worker ends its server: none is replaced here, and nothing is counted.
        self._workers = start_stepping(settings, specs, vars(affinity), lambda n: None, progress)
        if affinity.set_affinity and affinity.master_cpus:
            psutil.Process().cpu_affinity(allowed_cpus(affinity.master_cpus, "affinity's master_cpus"))
        torch.set_num_threads(affinity.master_torch_threads or 1)
        # Models may draw from the global generators. Streams of this role without an iteration are of others.
        spec = specs[FleetRole.TRAIN]
        set_seed(stream_seed(spec.seed, Role.SAMPLER, progress.env_rank, spec.restarts + 1))

    def check(self) -> Check:
        """Build, try and close one environment in a worker; return what it is like."""
        return self._workers.check()

    def build(self) -> list[Built]:
        """Build all environments; return what each fleet is like."""
        return self._workers.build()

    def start(self, check: Check, agent: Agent, weights: WeightStore, rows: Mapping[FleetRole, Rows]) -> None:
        """Put agent, environments and rows together; see `Collects.start`."""
        agent.to_device(agent.compute if self.device is None else replace(agent.compute, device=self.device))
        weights.take(agent)
        self._agent, self._weights, self._rows = agent, weights, rows[FleetRole.TRAIN]
        self._work = work_over(
            self._workers, self._settings, agent, self.specs, check, rows, self._n_threads, self.progress
        )

    def close(self) -> None:
        """Stop the workers, which close their environments."""
        self._workers.close()
