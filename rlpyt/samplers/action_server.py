"""Action server: a process that runs the network for its share of the environments, in workers of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import psutil
import torch

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collecting import Collects
from rlpyt.samplers.dealt_states import Loaded, go_on_with_streams, joined, streams_of
from rlpyt.samplers.fleet import Builds, Built, Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parallel import ParallelSampler
from rlpyt.samplers.parts import CompletedTraj
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import Kwargs, StateDict
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.calls import call
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
    """Server of a process with a sampler of its own, which answers the calls that a worker that acts is sent.

    Args:
        rank: of the action server.
        progress: where the work at hand is noted for the master.
        specs: its share of the environments.
        sampler: steps them in workers, and selects their actions in this process; not started.
        affinity: cores of this process and its workers.
        device: where the actions are selected; None is the device of the run.
    """

    _agent: Agent
    _weights: WeightStore
    _rows: Rows

    def __init__(
        self,
        rank: int,
        progress: Progress,
        specs: Specs,
        sampler: ParallelSampler,
        affinity: Affinity,
        device: str | None,
    ) -> None:
        self.specs, self.sampler, self.progress, self.device = specs, sampler, progress, device
        progress.env_rank = specs[FleetRole.TRAIN].env_ranks[0]
        sampler.start_pool(specs, vars(affinity), progress)
        if affinity.set_affinity and affinity.master_cpus:
            psutil.Process().cpu_affinity(allowed_cpus(affinity.master_cpus, "affinity's master_cpus"))
        torch.set_num_threads(affinity.master_torch_threads or 1)
        # Models may draw from the global generators. Streams of this role without an iteration are of others.
        spec = specs[FleetRole.TRAIN]
        set_seed(stream_seed(spec.seed, Role.SAMPLER, progress.env_rank, spec.restarts + 1))

    @property
    def _ranks(self) -> list[int]:
        return self.specs[FleetRole.TRAIN].env_ranks

    def check(self) -> Check:
        """Build, try and close one environment in a worker; return what it is like."""
        return self.sampler.pool.ask({0: call(Builds.check)})[0]

    def build(self) -> list[Built]:
        """Build all environments; return what each fleet is like."""
        pool = self.sampler.pool
        calls = dict.fromkeys(range(len(pool.workers)), call(Builds.build))
        return [built for some in pool.set_up(calls) for built in some]

    def start(self, check: Check, agent: Agent, weights: WeightStore, rows: Mapping[FleetRole, Rows]) -> None:
        """Put agent, environments and rows together; see `Collects.start`."""
        agent.to_device(agent.compute if self.device is None else replace(agent.compute, device=self.device))
        weights.take(agent)
        self._agent, self._weights, self._rows = agent, weights, rows[FleetRole.TRAIN]
        self.sampler.build(agent, check, rows)

    def collect(self, itr: int, first_t: int | None) -> list[CompletedTraj]:
        """Fill the rows of a batch; see `Collects.collect`."""
        self._weights.take(self._agent)
        if first_t is not None:
            self._rows.turn_to(itr)
            self._rows.truncate(first_t)
        return self.sampler.collect(itr, first_t)

    def wake(self) -> None:
        """Do nothing: the sampler here wakes its environments itself."""

    def evaluate(self, itr: int, deterministic: bool, after_loss: bool) -> EvalResult:
        """Run this server's quota of episodes; see `Collects.evaluate`."""

        def note(done: int) -> None:
            self.progress.episodes = done

        if FleetRole.EVAL not in self.specs:
            return EvalResult([], 0, 0)
        self._weights.take(self._agent)
        # Environments that were lost may have died of their seeds.
        return self.sampler.run_evaluation(itr, note, deterministic, after_loss)

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call."""
        return self.sampler.times()

    def state_dict(self) -> StateDict:
        """Return where the training environments and this process's generators stand."""
        return joined([self.sampler.holder.state_dict(), streams_of("action server", self._ranks)])

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned."""
        loaded = self.sampler.holder.load_state_dict(state_dict)
        return Loaded.merge([loaded, go_on_with_streams("action server", self._ranks, state_dict)])

    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
        return self.sampler.holder.why_no_state()

    def close(self) -> None:
        """Stop the workers, which close their environments."""
        self.sampler.shutdown()
