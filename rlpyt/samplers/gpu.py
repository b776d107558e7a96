"""Samplers whose environments step in workers while this process selects all actions, on the agent's device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rlpyt.core import Agent, PopulationPolicyAgent
from rlpyt.samplers.action_server import ActionServer, ServerAffinity, dealt_affinities, server_affinity
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import start_collector
from rlpyt.samplers.evaluator import start_evaluator
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec, Specs, by_process, restarted
from rlpyt.samplers.parallel import ParallelSampler
from rlpyt.samplers.remote_collectors import RemoteCollectors
from rlpyt.samplers.remote_part import EnvServer, RemotePart
from rlpyt.samplers.stopwatch import mean_of
from rlpyt.types import Kwargs, Run, Samples
from rlpyt.utils.calls import AnyCall, call
from rlpyt.utils.processes import available_cores
from rlpyt.utils.progress import Progress
from rlpyt.utils.worker_pool import HERE, WorkerPool, local_workers


@dataclass(kw_only=True, eq=False)
class GpuSampler(ParallelSampler):
    """Sampler that steps the environments in workers, and selects all actions in one forward pass, on a GPU or the CPU.

    The batch lies in shared memory; one message a row goes each way. With several action servers each selects the
    actions of its share of the environments, in a process of its own.
    """

    server: ClassVar[Callable[..., Any]] = EnvServer
    n_parts: ClassVar[int] = 1
    overlap: ClassVar[bool] = True

    servers: int | Sequence[Kwargs] = 1
    """Action servers: a number, or a dictionary for each with its `cuda_idx`, `workers_cpus`, `master_cpus` and
    `master_torch_threads`. Environments and workers are dealt to them. 1 is this process itself. The affinity of the
    run may have the dictionaries instead, as `sampler`."""

    def __post_init__(self) -> None:
        """Refuse action servers without an environment, and affinities that are none."""
        super().__post_init__()
        self._samplers: list[GpuSampler] = []  # those of the action servers
        self._affinities_of_servers({})

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Build everything; see `BaseSampler.initialize`.

        Raises:
            ValueError: if lost workers are replaced and the agent is a population: a cut episode would count as whole.
        """
        # An action server is lost with its actors, and the next ones record it.
        in_servers = bool(self._affinities_of_servers({} if run is None else dict(run.affinity)))
        if self.restart_workers and agent.kind == PopulationPolicyAgent.kind and not in_servers:
            raise ValueError(
                f"{type(self).__name__}: restart_workers is {self.restart_workers}, and the agent has a population; "
                "expected 0. A cut episode would count as a whole one. Set it to 0, or use CpuSampler."
            )
        return super().initialize(agent, run)

    def _affinities_of_servers(self, affinity: Kwargs) -> list[ServerAffinity]:
        """Return cores and device of every action server; none where this process selects the actions.

        Raises:
            ValueError: if there are more servers than environments or workers for them, or a device is not there.
        """
        given = self.servers if isinstance(self.servers, Sequence) else affinity.get("sampler", ())
        n = len(given) or self._whole("servers", 1, "a whole number from 1, or a dictionary for each action server")
        some = min(self.batch_spec.B, self.batch_spec.B if self.n_workers is None else self._whole("n_workers"))
        if n > 1 and n * self.least_workers > some:
            raise ValueError(
                f"{type(self).__name__}: it is to have {n} action servers, and {some} environments or workers for "
                f"them; expected at least {n * self.least_workers}. Raise batch_B or n_workers."
            )
        if given:
            return [server_affinity(one) for one in given]
        return dealt_affinities(affinity, n) if n > 1 else []

    def start_pool(self, specs: Specs, affinity: Kwargs, progress: Progress | None = None) -> None:
        """Start the workers, or the action servers, which start theirs; see `ParallelSampler.start_pool`."""
        servers = self._affinities_of_servers(affinity)
        if not servers:
            self._samplers, self._role = [], "Worker"
            super().start_pool(specs, affinity, progress)
            return
        if self.start_method == HERE:  # this process is not theirs to pin
            servers = [one._replace(cores=replace(one.cores, set_affinity=False)) for one in servers]
        server_specs = by_process({role: spec.deal(len(servers)) for role, spec in specs.items()})
        sizes = [len(some[FleetRole.TRAIN].env_ranks) for some in server_specs]
        samplers = self._samplers = self._samplers_of_servers(sizes, servers)
        self._specs, self._worker_specs, self._role = specs, server_specs, "Action server"
        self._pool = WorkerPool(
            local_workers(ActionServer, self.start_method, has_workers=True, role=self._role),
            lambda rank, restarts: (restarted(server_specs[rank], restarts), samplers[rank], *servers[rank]),
            len(servers),
            self._whole("restart_workers", 0),
            self._restart_seconds,
            RemoteCollectors.on_loss,
            self._log_loss,
        )

    def _samplers_of_servers(self, sizes: Sequence[int], servers: Sequence[ServerAffinity]) -> list[GpuSampler]:
        """Return the sampler in each action server; the loss of a worker ends its server."""
        n, n_workers = len(servers), self.n_workers
        samplers: list[GpuSampler] = []
        for i, (size, (cores, _)) in enumerate(zip(sizes, servers, strict=True)):
            usual = len(cores.workers_cpus) or max(self.least_workers, min(available_cores() // n, size))
            samplers.append(
                self.replace(
                    batch_B=size,
                    n_workers=usual if n_workers is None else n_workers // n + (i < n_workers % n),
                    servers=1,
                    restart_workers=0,
                    # An action server is a process with one thread, which may be copied; a forkserver imports torch.
                    start_method="fork" if self.start_method == "forkserver" else self.start_method,
                )
            )
        return samplers

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> None:
        """Start the environments, and put collector and evaluator together; or let the action servers do so."""
        if self._samplers:
            self.serve(agent, check, rows, wake=False)
            return
        self._start_work([call(EnvServer.start, check, some) for some in self._rows_of_workers(rows)])
        shares = [share.tolist() for share in np.array_split(np.arange(len(self._worker_specs)), self.n_parts)]
        parts = self._remote_parts(FleetRole.TRAIN, shares, rows[FleetRole.TRAIN], check)
        # Its row is at hand when those of the other parts are.
        parts[-1].progress = self._progress
        self._collector = start_collector(self._specs[FleetRole.TRAIN], agent, parts, self.overlap)
        if FleetRole.EVAL in rows:
            everyone = list(range(len(self._worker_specs)))
            [part] = self._remote_parts(FleetRole.EVAL, [everyone], rows[FleetRole.EVAL], check)
            self._evaluator = start_evaluator(self._specs[FleetRole.EVAL], agent, part)

    def _remote_parts(self, role: FleetRole, shares: list[list[int]], rows: Rows, check: Check) -> list[RemotePart]:
        """Return one part for each share of the workers."""
        ranks = [
            {w: self._worker_specs[w][role].env_ranks for w in workers if role in self._worker_specs[w]}
            for workers in shares
        ]
        columns = rows.deal([sum(map(len, ranks_of.values())) for ranks_of in ranks])
        null_action = check.examples.action
        return [RemotePart(self.pool, x, some, role, null_action) for x, some in zip(ranks, columns, strict=True)]

    def plan(self) -> dict[str, object]:
        """Return where the work runs."""
        of_servers = [sampler.n_workers or 0 for sampler in self._samplers]
        return super().plan() | ({"servers": len(of_servers), "workers": sum(of_servers)} if of_servers else {})

    @staticmethod
    def on_loss(progress: Progress, request: AnyCall[EnvServer]) -> AnyCall[EnvServer]:
        """Take the same step again, which begins new episodes; reset with other seeds than those of the lost worker."""
        if request.is_of(EnvServer.step):
            return request._replace(method=EnvServer.resume)
        return request.but(seeds=None) if request.is_of(EnvServer.reset) else request

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call, as the mean over this process and the workers."""
        if self._remote is not None:
            return super().times()
        master = self._collector.stopwatch.take()
        return mean_of([master, *self._ask_all(call(EnvServer.times))], sum(master.values()))


@dataclass(kw_only=True, eq=False)
class AlternatingSampler(GpuSampler):
    """`GpuSampler` with two halves of workers: one steps its environments while the other gets actions."""

    least_workers: ClassVar[int] = 2
    n_parts: ClassVar[int] = 2
    # A team of threads beside workers that step is many times slower than one thread.
    default_acting_threads: ClassVar[int | None] = 1

    def deal(self, spec: FleetSpec, n_workers: int) -> list[FleetSpec]:
        """Deal half of the training environments to half of the workers; those of the evaluation to all."""
        if spec.role is FleetRole.EVAL:
            return super().deal(spec, n_workers)
        first, second = spec.deal(2)
        return first.deal((n_workers + 1) // 2) + second.deal(n_workers // 2)


@dataclass(kw_only=True, eq=False)
class NoOverlapAlternatingSampler(AlternatingSampler):
    """`AlternatingSampler` in which never both halves step at once: only one, beside the network."""

    overlap: ClassVar[bool] = False


AsyncGpuSampler = GpuSampler
AsyncAlternatingSampler = AlternatingSampler
AsyncNoOverlapAlternatingSampler = NoOverlapAlternatingSampler
"""Their names in asynchronous runs of rlpyt 0.1."""
