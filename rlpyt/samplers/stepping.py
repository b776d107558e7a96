"""Environments in workers that step on the word of the process that acts, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.dealt_states import Loaded, joined, selected
from rlpyt.samplers.fleet import Check, FleetServer
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.samplers.parts import CompletedTraj, LocalPart, Part
from rlpyt.samplers.stopwatch import Stopwatch
from rlpyt.types import StateDict
from rlpyt.utils.calls import AnyCall, Call, R, call
from rlpyt.utils.progress import Progress
from rlpyt.utils.worker_pool import Message, WorkerPool


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
        self._pool, self._role, self._ranks_of = pool, role, ranks_of
        self._workers = list(ranks_of)
        # Made once: pickling costs more than a hand-over.
        self._steps = [
            [self._to_all(call(EnvServer.step, role, place, t)) for t in range(rows.T)]
            for place in range(len(rows.places))
        ]

    def _to_all(self, request: Call[EnvServer, R]) -> dict[int, Message[EnvServer, R]]:
        return dict.fromkeys(self._workers, Message.of(request))

    def reset(self, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere."""
        seed_of = None if seeds is None else dict(zip(self.ranks, seeds, strict=True))
        shares = {w: None if seed_of is None else [seed_of[r] for r in ranks] for w, ranks in self._ranks_of.items()}
        self._pool.ask({w: call(EnvServer.reset, self._role, seeds=share) for w, share in shares.items()})

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
        self._pool.post(self._to_all(call(EnvServer.wake)))

    def ready(self) -> None:
        """Wait until the workers have reset the environments that were woken."""
        self._pool.settle(self._workers)

    def state_dict(self) -> StateDict:
        """Return where the environments of every worker stand."""
        return joined(self._pool.ask(dict.fromkeys(self._workers, call(EnvServer.state_dict))))

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned, of any workers."""
        states = {w: selected(state_dict, ranks) for w, ranks in self._ranks_of.items()}
        return Loaded.merge(self._pool.ask({w: call(EnvServer.load_state_dict, s) for w, s in states.items()}))

    def why_no_state(self) -> str | None:
        """Return why an environment of the workers has no state."""
        return next(filter(None, self._pool.ask(dict.fromkeys(self._workers, call(EnvServer.why_no_state)))), None)
