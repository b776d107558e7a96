"""Server of a worker, common to all samplers: it builds, checks and closes the worker's fleets, on its cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import psutil

from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.dealt_states import Loaded, go_on_with_streams, joined, streams_of
from rlpyt.samplers.fleet import Builds, Built, Check, Fleet, check_one
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parts import LocalPart
from rlpyt.types import StateDict
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, set_seed, stream_seed


class FleetServer(Builds):
    """Environments of one worker, and the calls that all samplers make.

    Args:
        rank: of the worker.
        progress: where the work at hand is noted for the master.
        specs: say what to build.
        cpus: cores to run on; None leaves that to the system.
        own_generators: whether the global generators are this worker's alone; see `rlpyt.utils.worker_pool.WorkerKind`.
    """

    stream: ClassVar[Role] = Role.WORKER
    """Of the global generators of the process."""

    def __init__(
        self, rank: int, progress: Progress, specs: Specs, cpus: list[int] | None, own_generators: bool = True
    ) -> None:
        if cpus is not None:
            psutil.Process().cpu_affinity(cpus)
        self.specs, self.progress, self._own_generators = specs, progress, own_generators
        progress.env_rank = next(iter(specs.values())).env_ranks[0]
        self._fleets: dict[FleetRole, Fleet] = {}
        # Environments may draw from the global generators, which start alike in workers that were forked from one.
        spec = next(iter(specs.values()))
        if own_generators:
            set_seed(stream_seed(spec.seed, self.stream, progress.env_rank, spec.restarts))

    def check(self) -> Check:
        """Build, try and close one environment; return what it is like."""
        return check_one(self.specs[FleetRole.TRAIN])

    def build(self) -> list[Built]:
        """Build all environments; return what each fleet is like."""
        for role, spec in self.specs.items():
            self._fleets[role] = Fleet(spec)
        return [fleet.built for fleet in self._fleets.values()]

    def started_parts(self, check: Check, rows: Mapping[FleetRole, Rows]) -> dict[FleetRole, LocalPart]:
        """Return the parts of this worker, which fill these rows."""
        return {role: fleet.started_part(rows[role], check, self.progress) for role, fleet in self._fleets.items()}

    def with_streams(self, state: StateDict) -> StateDict:
        """Return the state of the training environments with that of the global generators, where it has its own."""
        if not self._own_generators:
            return state
        return joined([state, streams_of("worker", self.specs[FleetRole.TRAIN].env_ranks)])

    def loaded(self, loaded: Loaded, state: StateDict) -> Loaded:
        """Let the global generators go on, after all else was loaded; return the report of both."""
        if not self._own_generators:
            return loaded
        streams = go_on_with_streams("worker", self.specs[FleetRole.TRAIN].env_ranks, state)
        return Loaded.merge([loaded, streams])

    def close(self) -> None:
        """Close the environments."""
        for fleet in self._fleets.values():
            fleet.close()
