"""Samplers whose environments step in workers while this process selects all actions, on the agent's device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import psutil
import torch

from rlpyt.core import Agent, PopulationPolicyAgent
from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.base import BaseSampler, threads_of
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import Stopwatch
from rlpyt.samplers.fleet import Built, Check, FleetServer
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parts import CompletedTraj, LocalPart, Part
from rlpyt.samplers.states import Loaded, joined, selected
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.samplers.work import Collects, RemoteCollectors, Work, WorkHere
from rlpyt.samplers.workers import Workers, WorkerSettings, env_workers
from rlpyt.types import Kwargs, StateDict
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.calls import AnyCall, call
from rlpyt.utils.checks import whole_number
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import allowed_cpus, available_cores
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, set_seed, stream_seed
from rlpyt.utils.worker_pool import HERE, Message, WorkerPool, local_workers


class EnvServer(FleetServer):
    """Server of a worker that does not act: parts that the master steps."""

    _parts: dict[FleetRole, LocalPart]
    _stopwatch: Stopwatch

    def start(self, check: Check, rows: Mapping[FleetRole, Rows]) -> None:
        """Put environments and rows together."""
        self._parts, self._stopwatch = self.started_parts(check, rows), Stopwatch()
        self.training = self._parts[FleetRole.TRAIN]

    def step(self, role: FleetRole, place: int, t: int) -> list[CompletedTraj] | None:
        """Take the actions of row t of the batch in a place; return the trajectories that ended, None for none."""
        part = self._parts[role]
        self._stopwatch.start()
        if part.rows.place != place:
            part.rows.turn_to(place)
        part.send(t)
        completed = part.recv(t)
        if part is self.training:
            self._stopwatch.lap(part.waits_for)
        return completed or None

    def resume(self, role: FleetRole, place: int, t: int) -> list[CompletedTraj] | None:
        """Take the actions of a row in place of a worker that was lost there; its episodes are truncated."""
        self._parts[role].rows.turn_to(place)
        self._parts[role].rows.truncate(t)
        return self.step(role, place, t)

    def reset(self, role: FleetRole, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere."""
        self._parts[role].reset(seeds)

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call."""
        return self._stopwatch.take()

    @staticmethod
    def on_loss(progress: Progress, request: AnyCall[EnvServer]) -> AnyCall[EnvServer]:
        """Take the same step again, which begins new episodes; reset with other seeds than those of the lost worker."""
        if request.is_of(EnvServer.step):
            return request._replace(method=EnvServer.resume)
        return request.but(seeds=None) if request.is_of(EnvServer.reset) else request


class RemotePart(Part):
    """Environments dealt to workers, which write their columns of the rows.

    `ranks_of` has, for each worker with environments of this part, their global ranks in the order of the columns.
    """

    waits_for = "waiting"
    progress: Progress | None = None
    """Where the row at hand is noted, if this process is itself a worker."""

    def __init__(
        self,
        pool: WorkerPool[EnvServer],
        ranks_of: Mapping[int, Sequence[int]],
        rows: Rows,
        role: FleetRole,
        null_action: Buffer,
    ) -> None:
        self.rows, self.null_action = rows, null_action
        self.ranks = [rank for ranks in ranks_of.values() for rank in ranks]
        self._pool, self._role, self._ranks_of = pool, role, ranks_of
        self._workers = list(ranks_of)
        # Made once: pickling costs more than a hand-over.
        self._steps = [
            [Message.of(call(EnvServer.step, role, place, t)) for t in range(rows.T)]
            for place in range(len(rows.places))
        ]

    def reset(self, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere."""
        seed_of = None if seeds is None else dict(zip(self.ranks, seeds, strict=True))
        shares = {w: None if seed_of is None else [seed_of[r] for r in ranks] for w, ranks in self._ranks_of.items()}
        self._pool.ask({w: call(EnvServer.reset, self._role, seeds=share) for w, share in shares.items()})

    def send(self, t: int) -> None:
        """Send the workers to step with the actions of row t."""
        if self.progress is not None:
            self.progress.step += 1
            self.progress.row = t
        self._pool.post(dict.fromkeys(self._workers, self._steps[self.rows.place][t]))

    def recv(self, t: int) -> list[CompletedTraj]:
        """Wait until all workers have completed row t."""
        replies = self._pool.receive(self._workers)
        return [completed for reply in replies if reply for completed in reply]

    def wake(self) -> None:
        """Reset the environments that rest in the workers, while this process goes on."""
        self._pool.post(dict.fromkeys(self._workers, Message.of(call(EnvServer.wake))))

    def ready(self) -> None:
        """Wait until the workers have reset the environments that were woken."""
        self._pool.settle(self._workers)

    def state_dict(self) -> StateDict:
        """Return the states of the environments of every worker."""
        return joined(self._pool.ask(dict.fromkeys(self._workers, call(EnvServer.state_dict))))

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Load the result of `state_dict`, of any workers."""
        states = {w: selected(state_dict, ranks) for w, ranks in self._ranks_of.items()}
        return Loaded.merge(self._pool.ask({w: call(EnvServer.load_state_dict, s) for w, s in states.items()}))


@dataclass(kw_only=True, eq=False)
class GpuSampler(WorkerSettings, BaseSampler):
    """Sampler that steps the environments in workers, and selects all actions in one forward pass, on a GPU or the CPU.

    The batch lies in shared memory; one message a row goes each way. With several action servers each selects the
    actions of its share of the environments, in a process of its own.
    """

    server: ClassVar[Callable[..., Any]] = EnvServer

    servers: int | Sequence[Kwargs] = 1
    """Action servers: a number, or a dictionary for each with its `cuda_idx`, `workers_cpus`, `master_cpus` and
    `master_torch_threads`. Environments and workers are dealt to them. 1 is this process itself. The affinity of the
    run may have the dictionaries instead, as `sampler`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._n_served: list[int] = []  # workers of each action server; empty where this process acts
        _affinities_of_servers(self, {})

    def start(self, specs: Specs, affinity: Kwargs) -> Check:
        """Start workers, or action servers, which start theirs; build all after one environment was checked."""
        servers = _affinities_of_servers(self, affinity)
        shares = specs[FleetRole.TRAIN].deal(len(servers)) if servers else []
        own = [_sampler_of_server(self, servers, rank, len(share.env_ranks)) for rank, share in enumerate(shares)]
        self._n_served = [one.n_workers or 0 for one in own]
        if own:
            kind = local_workers(ActionServer, self.start_method, role="Action server")
            args = [(one, *server) for one, server in zip(own, servers, strict=True)]
            self._workers = Workers(self, kind, specs, args, RemoteCollectors.on_loss, role="Action server")
        else:
            self._workers = env_workers(self, specs, affinity, EnvServer.on_loss)
        return self._workers.check_and_build()

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> Work:
        """Start the environments, and put collector and evaluator together; or let the action servers do so.

        Raises:
            ValueError: if lost workers are replaced and the agent is a population: a cut episode would count as whole.
        """
        assert self._workers is not None, "start comes first"
        if self._n_served:
            return RemoteCollectors(self._workers, agent, check, rows)
        # An action server is lost with its actors, and the next ones record it.
        if self.restart_workers and agent.kind == PopulationPolicyAgent.kind:
            raise ValueError(
                f"{type(self).__name__}: restart_workers is {self.restart_workers}, and the agent has a population; "
                "expected 0. A cut episode would count as a whole one. Set it to 0, or use CpuSampler."
            )
        return _work_over(self, self._workers, self._specs, agent, check, rows)

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Sampler`."""
        n_served = self._n_served
        return super().plan() | ({"servers": len(n_served), "workers": sum(n_served)} if n_served else {})


def _work_over(
    sampler: GpuSampler,
    workers: Workers[EnvServer],
    specs: Specs,
    agent: Agent,
    check: Check,
    rows: Mapping[FleetRole, Rows],
    progress: Progress | None = None,
) -> WorkHere:
    """Start the work in workers whose environments are built; return collector and evaluator, in this process."""
    workers.begin([call(EnvServer.start, check, some) for some in workers.rows_of_each(rows)])
    parts: dict[FleetRole, list[RemotePart]] = {}
    for role, of_role in rows.items():
        shares = np.array_split(np.arange(len(workers.specs)), sampler.n_parts if role is FleetRole.TRAIN else 1)
        ranks = [
            {w: workers.specs[w][role].env_ranks for w in some.tolist() if role in workers.specs[w]} for some in shares
        ]
        columns = of_role.deal([sum(map(len, ranks_of.values())) for ranks_of in ranks])
        parts[role] = [
            RemotePart(workers.pool, ranks_of, some, role, check.examples.action)
            for ranks_of, some in zip(ranks, columns, strict=True)
        ]
    # Its row is at hand when those of the other parts are.
    parts[FleetRole.TRAIN][-1].progress = progress
    times = partial(workers.ask_all, call(EnvServer.times))
    return WorkHere(agent, specs, parts, sampler.overlap, threads_of(sampler), times_of_others=times)


class ActionServer(Collects):
    """Server of a process that runs the network for its share of the environments, in workers of its own.

    `sampler` has the settings of its workers. A device of None is that of the run.
    """

    process: ClassVar[str] = "action server"

    def __init__(
        self, rank: int, progress: Progress, specs: Specs, sampler: GpuSampler, affinity: Affinity, device: str | None
    ) -> None:
        super().__init__(rank, progress, specs, cpus=None)
        self._sampler, self._device, spec = sampler, device, specs[FleetRole.TRAIN]
        self._workers = env_workers(sampler, specs, vars(affinity), EnvServer.on_loss, progress.beat)
        # By the start method "here" this process is not the server's to pin.
        if affinity.set_affinity and affinity.master_cpus and sampler.start_method != HERE:
            psutil.Process().cpu_affinity(allowed_cpus(affinity.master_cpus, "affinity's master_cpus"))
        torch.set_num_threads(affinity.master_torch_threads or 1)
        # Models may draw from the global generators. Streams of this role without an iteration are of others.
        set_seed(stream_seed(spec.seed, Role.SAMPLER, progress.env_rank, spec.restarts + 1))

    def check(self) -> Check:
        """Build, try and close one environment in a worker; return the result of the check."""
        return self._workers.check()

    def build(self) -> list[Built]:
        """Build all environments; return what each fleet is like."""
        return self._workers.build()

    def start(self, check: Check, agent: Agent, weights: WeightStore, rows: Mapping[FleetRole, Rows]) -> None:
        """Put agent, environments and rows together; see `Collects.start`."""
        agent.to_device(agent.compute if self._device is None else replace(agent.compute, device=self._device))
        super().start(check, agent, weights, rows)

    def work(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> WorkHere:
        """Return collector and evaluator over the workers of this process."""
        return _work_over(self._sampler, self._workers, self.specs, agent, check, rows, self.progress)

    def close(self) -> None:
        """Stop the workers, which close their environments."""
        self._workers.pool.stop()


Servers = Sequence[tuple[Affinity, str | None]]
"""Cores of every action server, and its device, None for that of the run."""


def _affinities_of_servers(sampler: GpuSampler, affinity: Kwargs) -> Servers:
    """Return the affinity of every action server; none if the process of the sampler selects the actions.

    The affinity of the run says which there are, where the setting does not.
    """
    name, B = type(sampler).__name__, sampler.batch_spec.B
    given = sampler.servers if isinstance(sampler.servers, Sequence) else affinity.get("sampler", ())
    expected = "a whole number from 1, or a dictionary for each action server"
    n = len(given) or whole_number(name, "servers", sampler.servers, 1, expected)
    some = min(B, B if sampler.n_workers is None else int(sampler.n_workers))
    if n > 1 and n * sampler.n_parts > some:
        raise ValueError(
            f"{name}: it is to have {n} action servers, and {some} environments or workers for them; expected at least "
            f"{n * sampler.n_parts}. Raise batch_B or n_workers."
        )
    if given:
        of_each = [Affinity.from_mapping(one) for one in given]
        # The settings refuse a device that is not there, before any process.
        return [(one, ComputeSettings(device=one.device).device) for one in of_each]
    if n == 1:
        return []
    cpus, pinned = list(affinity.get("workers_cpus") or ()), bool(affinity.get("set_affinity", True))
    shares = [[cpus[i] for i in share] for share in np.array_split(np.arange(len(cpus)), n)]
    return [(Affinity(workers_cpus=share, set_affinity=pinned), None) for share in shares]


def _sampler_of_server(sampler: GpuSampler, servers: Servers, rank: int, size: int) -> GpuSampler:
    """Return a sampler with the settings of an action server; the loss of one of its workers ends it."""
    n = len(servers)
    if sampler.n_workers is None:
        usual = max(sampler.n_parts, min(available_cores() // n, size))
        n_workers = len(servers[rank][0].workers_cpus) or usual
    else:
        n_workers = sampler.n_workers // n + (rank < sampler.n_workers % n)
    # An action server is a process with one thread, which may be copied; a forkserver imports torch.
    start_method = "fork" if sampler.start_method == "forkserver" else sampler.start_method
    return sampler.replace(batch_B=size, n_workers=n_workers, servers=1, restart_workers=0, start_method=start_method)


@dataclass(kw_only=True, eq=False)
class AlternatingSampler(GpuSampler):
    """`GpuSampler` with two halves of workers: one steps its environments while the other gets actions."""

    n_parts: ClassVar[int] = 2


@dataclass(kw_only=True, eq=False)
class NoOverlapAlternatingSampler(GpuSampler):
    """`AlternatingSampler` in which never both halves step at once: only one, beside the network."""

    n_parts: ClassVar[int] = 2
    overlap: ClassVar[bool] = False


AsyncGpuSampler = GpuSampler
AsyncAlternatingSampler = AlternatingSampler
AsyncNoOverlapAlternatingSampler = NoOverlapAlternatingSampler
"""Their names in asynchronous runs of rlpyt 0.1."""
