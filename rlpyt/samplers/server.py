"""Part of a worker that all samplers have: it builds, checks and closes the environments of its plan, on its cores."""

from __future__ import annotations

import numpy as np
import psutil

from rlpyt.samplers.env_set import Built, Check, EnvSet, Plan, check_one


class PlanServer:
    """Environments of one worker.

    Args:
        rank: of the worker.
        progress: where the environment (its rank), the step and the row at hand are noted for the master.
        plan: says what to build.
        cpus: cores to run on; None leaves that to the system.
    """

    def __init__(self, rank: int, progress: np.ndarray, plan: Plan, cpus: list[int] | None) -> None:
        if cpus is not None:
            psutil.Process().cpu_affinity(cpus)
        self.plan, self.progress = plan, progress
        progress[0] = plan.env_ranks[0]
        self._env_set: EnvSet | None = None

    @property
    def env_set(self) -> EnvSet:
        """The environments, once they are built."""
        assert self._env_set is not None, "asked for work before its environments were built"
        return self._env_set

    def build(self, with_check: bool) -> tuple[Check | None, Built]:
        """Build the environments; with a check, of one that is thrown away before."""
        check = check_one(self.plan) if with_check else None
        self._env_set = EnvSet(self.plan)
        return check, self._env_set.built

    def close(self) -> None:
        """Close the environments."""
        if self._env_set is not None:
            self._env_set.close()
