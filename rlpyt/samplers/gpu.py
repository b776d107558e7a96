"""Samplers whose environments step in workers while this process selects all actions, on the agent's device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

from rlpyt.core import Agent, PopulationPolicyAgent
from rlpyt.samplers.action_server import ActionServer, ServerAffinity, dealt_affinities, server_affinity
from rlpyt.samplers.base import BaseSampler, count_cut, threads_of
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.remote_collectors import RemoteCollectors
from rlpyt.samplers.stepping import Stepping, SteppingSettings
from rlpyt.samplers.work import Work
from rlpyt.samplers.workers import Workers, check_workers, workers_of_share
from rlpyt.types import Kwargs, Run, Samples
from rlpyt.utils.checks import share_of, whole_number
from rlpyt.utils.processes import available_cores
from rlpyt.utils.worker_pool import HERE, local_workers


@dataclass(kw_only=True, eq=False)
class GpuSampler(SteppingSettings, BaseSampler):
    """Sampler that steps the environments in workers, and selects all actions in one forward pass, on a GPU or the CPU.

    The batch lies in shared memory; one message a row goes each way. With several action servers each selects the
    actions of its share of the environments, in a process of its own.
    """

    shares_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse workers and action servers without an environment, and affinities that are none."""
        super().__post_init__()
        check_workers(self, self.batch_spec.B)
        self._stepping: Stepping | None = None
        self._n_served: list[int] = []  # workers of each action server
        affinities_of_servers(self, {}, self.batch_spec.B)

    def share(self, n_replicas: int) -> Self:
        """Return a sampler for one of some replicas, with its share of the workers, too."""
        batch_B = share_of(type(self).__name__, "batch_B", self.batch_spec.B, n_replicas)
        return self.replace(batch_B=batch_B, n_workers=workers_of_share(self, n_replicas))

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Build everything; see `BaseSampler.initialize`.

        Raises:
            ValueError: if lost workers are replaced and the agent is a population: a cut episode would count as whole.
        """
        # An action server is lost with its actors, and the next ones record it.
        affinity = {} if run is None else dict(run.affinity)
        in_servers = bool(affinities_of_servers(self, affinity, self.batch_spec.B))
        if self.restart_workers and agent.kind == PopulationPolicyAgent.kind and not in_servers:
            raise ValueError(
                f"{type(self).__name__}: restart_workers is {self.restart_workers}, and the agent has a population; "
                "expected 0. A cut episode would count as a whole one. Set it to 0, or use CpuSampler."
            )
        return super().initialize(agent, run)

    def start(self, specs: Specs, affinity: Kwargs) -> Check:
        """Start workers, or action servers, which start theirs; build all after one environment was checked."""
        servers = affinities_of_servers(self, affinity, self.batch_spec.B)
        on_cut, n_threads = partial(count_cut, self), threads_of(self)
        if not servers:
            self._n_served, self._stepping = [], Stepping(self, n_threads, specs, affinity, on_cut)
            self._workers = self._stepping.workers
            return self._workers.check_and_build()
        if self.start_method == HERE:  # this process is not theirs to pin
            servers = [one._replace(cores=replace(one.cores, set_affinity=False)) for one in servers]
        shares = specs[FleetRole.TRAIN].deal(len(servers))
        settings = [_settings_of_server(self, servers, rank, len(one.env_ranks)) for rank, one in enumerate(shares)]
        self._n_served = [one.n_workers or 0 for one in settings]
        self._workers = Workers(
            self,
            local_workers(ActionServer, self.start_method, has_workers=True, role="Action server"),
            specs,
            len(servers),
            lambda rank, some: (some, settings[rank], n_threads, *servers[rank]),
            RemoteCollectors.on_loss,
            on_cut,
            role="Action server",
        )
        return self._workers.check_and_build()

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> Work:
        """Start the environments, and put collector and evaluator together; or let the action servers do so."""
        assert self._workers is not None, "start comes first"
        if self._stepping is None:
            return RemoteCollectors(self._workers, agent, check, rows, wake=False)
        return self._stepping.work(agent, check, rows)

    def shutdown(self) -> None:
        """Stop the workers, which close their environments."""
        self._stepping = None
        super().shutdown()

    def plan(self) -> dict[str, object]:
        """Return where the work runs."""
        n_served = self._n_served
        return super().plan() | ({"servers": len(n_served), "workers": sum(n_served)} if n_served else {})


def affinities_of_servers(settings: SteppingSettings, affinity: Kwargs, B: int) -> list[ServerAffinity]:
    """Return cores and device of every action server; none where the process of the sampler selects the actions.

    Args:
        settings: say how many there are, or which; where they do not, `affinity` does.
        affinity: of the run.
        B: environments.

    Raises:
        ValueError: if there are more servers than environments or workers for them, or a device is not there.
    """
    name = type(settings).__name__
    given = settings.servers if isinstance(settings.servers, Sequence) else affinity.get("sampler", ())
    expected = "a whole number from 1, or a dictionary for each action server"
    n = len(given) or whole_number(name, "servers", settings.servers, 1, expected)
    some = min(B, B if settings.n_workers is None else int(settings.n_workers))
    if n > 1 and n * settings.least_workers > some:
        raise ValueError(
            f"{name}: it is to have {n} action servers, and {some} environments or workers for them; expected at least "
            f"{n * settings.least_workers}. Raise batch_B or n_workers."
        )
    if given:
        return [server_affinity(one) for one in given]
    return dealt_affinities(affinity, n) if n > 1 else []


def _settings_of_server(sampler: GpuSampler, servers: Sequence[ServerAffinity], rank: int, size: int) -> GpuSampler:
    """Return a sampler with the settings of an action server; the loss of one of its workers ends it."""
    n = len(servers)
    if sampler.n_workers is None:
        usual = max(sampler.least_workers, min(available_cores() // n, size))
        n_workers = len(servers[rank].cores.workers_cpus) or usual
    else:
        n_workers = sampler.n_workers // n + (rank < sampler.n_workers % n)
    # An action server is a process with one thread, which may be copied; a forkserver imports torch.
    start_method = "fork" if sampler.start_method == "forkserver" else sampler.start_method
    return sampler.replace(batch_B=size, n_workers=n_workers, servers=1, restart_workers=0, start_method=start_method)


@dataclass(kw_only=True, eq=False)
class AlternatingSampler(GpuSampler):
    """`GpuSampler` with two halves of workers: one steps its environments while the other gets actions."""

    least_workers: ClassVar[int] = 2
    n_parts: ClassVar[int] = 2
    # A team of threads beside workers that step is many times slower than one thread.
    default_acting_threads: ClassVar[int | None] = 1


@dataclass(kw_only=True, eq=False)
class NoOverlapAlternatingSampler(GpuSampler):
    """`AlternatingSampler` in which never both halves step at once: only one, beside the network."""

    least_workers: ClassVar[int] = 2
    n_parts: ClassVar[int] = 2
    overlap: ClassVar[bool] = False
    default_acting_threads: ClassVar[int | None] = 1


AsyncGpuSampler = GpuSampler
AsyncAlternatingSampler = AlternatingSampler
AsyncNoOverlapAlternatingSampler = NoOverlapAlternatingSampler
"""Their names in asynchronous runs of rlpyt 0.1."""
