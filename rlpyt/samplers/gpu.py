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
from rlpyt.samplers.fleet_spec import FleetRole, Specs, by_process
from rlpyt.samplers.remote_collectors import RemoteCollectors
from rlpyt.samplers.stepping import SteppingSettings, start_stepping, work_over
from rlpyt.samplers.work import Collects, Work
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
        self._samplers: list[GpuSampler] = []  # those whose settings the action servers have
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
        if servers:
            self._workers = _start_servers(self, specs, servers)
        else:
            self._samplers = []
            self._workers = start_stepping(self, specs, affinity, partial(count_cut, self))
        return self._workers.check_and_build()

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> Work:
        """Start the environments, and put collector and evaluator together; or let the action servers do so."""
        assert self._workers is not None, "start comes first"
        if self._samplers:
            return RemoteCollectors(self._workers, agent, check, rows, wake=False)
        return work_over(self._workers, self, agent, self._specs, check, rows, threads_of(self))

    def plan(self) -> dict[str, object]:
        """Return where the work runs."""
        of_servers = [sampler.n_workers or 0 for sampler in self._samplers]
        return super().plan() | ({"servers": len(of_servers), "workers": sum(of_servers)} if of_servers else {})


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


def _start_servers(sampler: GpuSampler, specs: Specs, servers: Sequence[ServerAffinity]) -> Workers[Collects]:
    """Start a process with workers of its own for each share of the environments."""
    if sampler.start_method == HERE:  # this process is not theirs to pin
        servers = [one._replace(cores=replace(one.cores, set_affinity=False)) for one in servers]
    dealt = by_process({role: spec.deal(len(servers)) for role, spec in specs.items()})
    sizes = [len(some[FleetRole.TRAIN].env_ranks) for some in dealt]
    samplers = sampler._samplers = _samplers_of_servers(sampler, sizes, servers)
    role, n_threads = "Action server", threads_of(sampler)
    return Workers(
        sampler,
        local_workers(ActionServer, sampler.start_method, has_workers=True, role=role),
        dealt,
        lambda rank, some: (some, samplers[rank], n_threads, *servers[rank]),
        RemoteCollectors.on_loss,
        partial(count_cut, sampler),
        role,
    )


def _samplers_of_servers(
    sampler: GpuSampler, sizes: Sequence[int], servers: Sequence[ServerAffinity]
) -> list[GpuSampler]:
    """Return a sampler with the settings of each action server; the loss of a worker ends its server."""
    n, n_workers = len(servers), sampler.n_workers
    samplers: list[GpuSampler] = []
    for i, (size, (cores, _)) in enumerate(zip(sizes, servers, strict=True)):
        usual = len(cores.workers_cpus) or max(sampler.least_workers, min(available_cores() // n, size))
        samplers.append(
            sampler.replace(
                batch_B=size,
                n_workers=usual if n_workers is None else n_workers // n + (i < n_workers % n),
                servers=1,
                restart_workers=0,
                # An action server is a process with one thread, which may be copied; a forkserver imports torch.
                start_method="fork" if sampler.start_method == "forkserver" else sampler.start_method,
            )
        )
    return samplers


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
