"""The sampler without workers: agent and environments in the master's process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlpyt.core import Agent
from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import start_collector
from rlpyt.samplers.evaluator import start_evaluator
from rlpyt.samplers.fleet import Check, Fleet, check_one
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parts import Part
from rlpyt.utils.progress import Progress


@dataclass(kw_only=True, eq=False)
class SerialSampler(BaseSampler):
    """Sampler that steps all environments in this process; the easiest to debug, the fastest for one cheap environment.

    Where EnvCls makes a vector environment (it takes `num_envs`), one native call steps all environments of a part.
    """

    n_parts: int = 1
    """Parts into which the environments are dealt; while one steps, the other gets its actions. Worth 2 with native
    environments, which step in threads of their own."""

    def __post_init__(self) -> None:
        """Refuse a part without an environment."""
        super().__post_init__()
        if self._whole("n_parts") > self.batch_spec.B:
            raise ValueError(
                f"{type(self).__name__}: n_parts is {self.n_parts}; expected 1 to batch_B, {self.batch_spec.B}: every "
                "part needs an environment."
            )
        self._fleets: list[Fleet] = []
        self._progress: Progress | None = None

    def note_progress(self, progress: Progress) -> bool:
        """Let the parts note what they are at; those of a subclass may be others."""
        self._progress = progress
        return type(self).make_part is SerialSampler.make_part

    def start(self, specs: Specs, affinity: Mapping[str, Any]) -> Check:
        """Check one environment, then build all; return the result of the check."""
        check = check_one(specs[FleetRole.TRAIN])
        dealt = specs[FleetRole.TRAIN].deal(self._whole("n_parts"))
        for spec in [*dealt, *(spec for role, spec in specs.items() if role is FleetRole.EVAL)]:
            self._fleets.append(Fleet(spec))
            check.accept([self._fleets[-1].built])
        return check

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> None:
        """Put collector and evaluator together."""
        train = [fleet for fleet in self._fleets if fleet.spec.role is FleetRole.TRAIN]
        columns = rows[FleetRole.TRAIN].deal([len(fleet.spec.env_ranks) for fleet in train])
        parts = [self.make_part(fleet, some, check) for fleet, some in zip(train, columns, strict=True)]
        self._collector = start_collector(self._specs[FleetRole.TRAIN], agent, parts)
        if FleetRole.EVAL in rows:
            part = self.make_part(self._fleets[-1], rows[FleetRole.EVAL], check)
            self._evaluator = start_evaluator(self._specs[FleetRole.EVAL], agent, part)

    def make_part(self, fleet: Fleet, rows: Rows, check: Check) -> Part:
        """Return the environments of a fleet as a part that stands at its first row."""
        return fleet.started_part(rows, check, self._progress)

    def _n_threads(self) -> int | None:
        # With several parts the other cores are for the environments' own threads.
        return super()._n_threads() or (1 if self.n_parts > 1 else None)

    @property
    def running(self) -> bool:
        """Whether there are environments."""
        return bool(self._fleets)

    def shutdown(self) -> None:
        """Close the environments."""
        fleets, self._fleets = self._fleets, []
        for fleet in fleets:
            fleet.close()


AsyncSerialSampler = SerialSampler
"""Its name in asynchronous runs of rlpyt 0.1."""
