"""The sampler without workers: agent and environments in the master's process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlpyt.core import Agent
from rlpyt.samplers.base import BaseSampler, threads_of, whole_setting
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Check, Fleet, check_one
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parts import LocalPart, Part
from rlpyt.samplers.work import WorkHere


@dataclass(kw_only=True, eq=False)
class SerialSampler(BaseSampler):
    """Sampler that steps all environments in this process; the easiest to debug, the fastest for one cheap environment.

    Where EnvCls makes a vector environment (it takes `num_envs`), one native call steps all environments of a part.
    """

    notes_progress: ClassVar[bool] = True

    n_parts: int = 1
    """Parts into which the environments are dealt; while one steps, the other gets its actions. Worth 2 with native
    environments, which step in threads of their own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if whole_setting(self, "n_parts") > self.batch_spec.B:
            raise ValueError(
                f"{type(self).__name__}: n_parts is {self.n_parts}; expected 1 to batch_B, {self.batch_spec.B}: every "
                "part needs an environment."
            )
        self._fleets: list[Fleet] = []

    def start(self, specs: Specs, affinity: Mapping[str, Any]) -> Check:
        """Check one environment, then build all; return the result of the check."""
        check = check_one(specs[FleetRole.TRAIN])
        dealt = specs[FleetRole.TRAIN].deal(whole_setting(self, "n_parts"))
        for spec in [*dealt, *(spec for role, spec in specs.items() if role is FleetRole.EVAL)]:
            self._fleets.append(Fleet(spec))
            check.accept([self._fleets[-1].built])
        return check

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> WorkHere:
        """Put collector and evaluator together."""
        parts: dict[FleetRole, list[Part]] = {}
        for role, of_role in rows.items():
            fleets = [fleet for fleet in self._fleets if fleet.spec.role is role]
            columns = of_role.deal([len(fleet.spec.env_ranks) for fleet in fleets])
            parts[role] = [self.make_part(fleet, some, check) for fleet, some in zip(fleets, columns, strict=True)]
        if self._progress is not None and not all(
            isinstance(part, LocalPart) for some in parts.values() for part in some
        ):
            self._progress.beat_from_now()  # parts of a subclass may note nothing
        return WorkHere(agent, self._specs, parts, n_threads=threads_of(self))

    def make_part(self, fleet: Fleet, rows: Rows, check: Check) -> Part:
        """Return the environments of a fleet as a part that stands at its first row."""
        return fleet.started_part(rows, check, self._progress)

    @property
    def running(self) -> bool:
        """Whether there are environments."""
        return bool(self._fleets)

    def shutdown(self) -> None:
        """Close the environments."""
        super().shutdown()
        fleets, self._fleets = self._fleets, []
        for fleet in fleets:
            fleet.close()


AsyncSerialSampler = SerialSampler
"""Its name in asynchronous runs of rlpyt 0.1."""
