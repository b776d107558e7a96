"""Environments in workers that step on the word of the process that acts, row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np

from rlpyt.core import Agent
from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Check, FleetServer
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parts import CompletedTraj, LocalPart, Part
from rlpyt.samplers.states import Loaded, joined, selected
from rlpyt.samplers.stopwatch import Stopwatch
from rlpyt.samplers.work import WorkHere
from rlpyt.samplers.workers import Workers, WorkerSettings, kind_of_workers, worker_cpus
from rlpyt.types import Kwargs, StateDict
from rlpyt.utils.calls import AnyCall, Call, R, call
from rlpyt.utils.progress import Progress
from rlpyt.utils.worker_pool import Message, WorkerPool


class EnvServer(FleetServer):
    """Server of a worker that does not act: parts that the master steps."""

    _parts: dict[FleetRole, LocalPart]
    _stopwatches: dict[FleetRole, Stopwatch]

    def start(self, check: Check, rows: Mapping[FleetRole, Rows]) -> None:
        """Put environments and rows together."""
        self._parts = self.started_parts(check, rows)
        self._stopwatches = {role: Stopwatch() for role in rows}

    def step(self, role: FleetRole, place: int, t: int) -> list[CompletedTraj] | None:
        """Take the actions of a row; return the trajectories that ended, None for none.

        Args:
            role: of the environments.
            place: of the batch in the memory of the rows.
            t: row.
        """
        part, stopwatch = self._parts[role], self._stopwatches[role]
        stopwatch.start()
        if part.rows.place != place:
            part.rows.turn_to(place)
        part.send(t)
        completed = part.recv(t)
        stopwatch.lap(part.waits_for)
        return completed or None

    def resume(self, role: FleetRole, place: int, t: int) -> list[CompletedTraj] | None:
        """Take the actions of a row in place of a worker that was lost there; its episodes are truncated."""
        self._parts[role].rows.turn_to(place)
        self._parts[role].rows.truncate(t)
        return self.step(role, place, t)

    def reset(self, role: FleetRole, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere."""
        self._parts[role].reset(seeds)

    def wake(self, role: FleetRole) -> None:
        """Reset the environments that rest."""
        self._parts[role].wake()

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call."""
        return self._stopwatches[FleetRole.TRAIN].take()

    def state_dict(self) -> StateDict:
        """Return where the training environments and this process's generators stand."""
        return self.with_streams(self._parts[FleetRole.TRAIN].state_dict())

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned."""
        return self.loaded(self._parts[FleetRole.TRAIN].load_state_dict(state_dict), state_dict)

    @staticmethod
    def on_loss(progress: Progress, request: AnyCall[EnvServer]) -> AnyCall[EnvServer]:
        """Take the same step again, which begins new episodes; reset with other seeds than those of the lost worker."""
        if request.is_of(EnvServer.step):
            return request._replace(method=EnvServer.resume)
        return request.but(seeds=None) if request.is_of(EnvServer.reset) else request


class RemotePart(Part):
    """Environments dealt to workers, which write their columns of the rows.

    Args:
        pool: the workers.
        ranks_of: for each worker with environments of this part, their global ranks, in the order of the columns.
        rows: the memory of all these environments, shared.
        role: of the fleets that the environments belong to.
        null_action: see `Part`.
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
        self._pool, self._role = pool, role
        self._workers = list(ranks_of)
        self._bounds = list(pairwise(accumulate((len(ranks) for ranks in ranks_of.values()), initial=0)))
        # Made once: pickling costs more than a hand-over.
        self._steps = [
            [self._to_all(call(EnvServer.step, role, place, t)) for t in range(rows.T)]
            for place in range(len(rows.places))
        ]

    def _to_all(self, request: Call[EnvServer, R]) -> dict[int, Message[EnvServer, R]]:
        return dict.fromkeys(self._workers, Message.of(request))

    def reset(self, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere."""
        shares = [None if seeds is None else seeds[lo:hi] for lo, hi in self._bounds]
        calls = {
            w: call(EnvServer.reset, self._role, seeds=some) for w, some in zip(self._workers, shares, strict=True)
        }
        self._pool.ask(calls)

    def send(self, t: int) -> None:
        """Let the workers take the actions of row t."""
        if self.progress is not None:
            self.progress.step += 1
            self.progress.row = t
        self._pool.post(self._steps[self.rows.place][t])

    def recv(self, t: int) -> list[CompletedTraj]:
        """Wait until all workers have completed row t."""
        replies = self._pool.receive(self._workers)
        return [completed for reply in replies if reply for completed in reply]

    def wake(self) -> None:
        """Let the workers reset the environments that rest, while this process goes on."""
        self._pool.post(self._to_all(call(EnvServer.wake, self._role)))

    def ready(self) -> None:
        """Wait until the workers have reset the environments that were woken."""
        self._pool.settle(self._workers)

    def state_dict(self) -> StateDict:
        """Return where the environments of every worker stand."""
        return joined(self._pool.ask(dict.fromkeys(self._workers, call(EnvServer.state_dict))))

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned, of any workers."""
        states = [selected(state_dict, self.ranks[lo:hi]) for lo, hi in self._bounds]
        requests = {w: call(EnvServer.load_state_dict, state) for w, state in zip(self._workers, states, strict=True)}
        return Loaded.merge(self._pool.ask(requests))


@dataclass(kw_only=True, eq=False)
class SteppingSettings(WorkerSettings):
    """Settings of the samplers whose workers step, while one process selects the actions, or several do."""

    server: ClassVar[Callable[..., Any]] = EnvServer
    n_parts: ClassVar[int] = 1
    """Shares of the workers; while one steps, the other gets its actions."""
    overlap: ClassVar[bool] = True
    """Whether two of them may step at the same time."""

    servers: int | Sequence[Kwargs] = 1
    """Action servers: a number, or a dictionary for each with its `cuda_idx`, `workers_cpus`, `master_cpus` and
    `master_torch_threads`. Environments and workers are dealt to them. 1 is this process itself. The affinity of the
    run may have the dictionaries instead, as `sampler`."""


class Stepping:
    """Workers that step environments, for a collector and an evaluator in this process.

    Args:
        settings: of the workers.
        n_threads: torch threads of this process while it collects; None leaves them as they are.
        specs: the fleets to deal to the workers.
        affinity: of the run; see `rlpyt.utils.affinity`.
        on_cut: see `Workers`.
        progress: of this process, where it is itself a worker.
    """

    def __init__(
        self,
        settings: SteppingSettings,
        n_threads: int | None,
        specs: Specs,
        affinity: Kwargs,
        on_cut: Callable[[int], None],
        progress: Progress | None = None,
    ) -> None:
        self._settings, self._n_threads, self._specs, self._progress = settings, n_threads, specs, progress
        cpus, kind = worker_cpus(settings, len(specs[FleetRole.TRAIN].env_ranks), affinity), kind_of_workers(settings)
        args_of = lambda rank, some: (some, cpus[rank], kind.own_generators)  # noqa: E731
        of_losses, on_wait = (EnvServer.on_loss, on_cut), (progress or Progress()).beat
        self.workers = Workers(settings, kind, specs, len(cpus), args_of, *of_losses, settings.n_parts, on_wait=on_wait)

    def work(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> WorkHere:
        """Return collector and evaluator, once the environments are built; see `BaseSampler.build`."""
        workers, specs_of = self.workers, self.workers.specs
        workers.begin([call(EnvServer.start, check, some) for some in workers.rows_of_each(rows)])
        everyone = np.arange(len(specs_of))
        shares = {role: [everyone] for role in rows} | {
            FleetRole.TRAIN: np.array_split(everyone, self._settings.n_parts)
        }
        parts: dict[FleetRole, list[RemotePart]] = {}
        for role, of_role in shares.items():
            ranks = [{w: specs_of[w][role].env_ranks for w in some.tolist() if role in specs_of[w]} for some in of_role]
            columns = rows[role].deal([sum(map(len, ranks_of.values())) for ranks_of in ranks])
            parts[role] = [
                RemotePart(workers.pool, ranks_of, some, role, check.examples.action)
                for ranks_of, some in zip(ranks, columns, strict=True)
            ]
        # Its row is at hand when those of the other parts are.
        parts[FleetRole.TRAIN][-1].progress = self._progress
        times = partial(workers.ask_all, call(EnvServer.times))
        return WorkHere(agent, self._specs, parts, self._settings.overlap, self._n_threads, times_of_others=times)
