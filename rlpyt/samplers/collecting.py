"""Interface of a process that acts: a worker, an action server, or a worker on another machine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.dealt_states import Loaded
from rlpyt.samplers.fleet import Builds, Check
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.samplers.parts import CompletedTraj
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import StateDict


class Collects(Builds):
    """Server of a process that collects and evaluates."""

    @abstractmethod
    def start(self, check: Check, agent: Agent, weights: WeightStore, rows: Mapping[FleetRole, Rows]) -> None:
        """Put agent, environments and rows together.

        Args:
            check: result of the check at the start.
            agent: copy that acts here.
            weights: those that it acts by, taken before every batch and evaluation.
            rows: those of the environments here, in shared memory.
        """

    @abstractmethod
    def collect(self, itr: int, first_t: int | None) -> list[CompletedTraj]:
        """Fill the rows of a batch; return the completed trajectories.

        Args:
            itr: iteration of the batch.
            first_t: row to go on from, in place of a process that was lost there; None begins the batch.
        """

    @abstractmethod
    def wake(self) -> None:
        """Reset the environments that rest."""

    @abstractmethod
    def evaluate(self, itr: int, deterministic: bool, after_loss: bool) -> EvalResult:
        """Run this process's quota of episodes.

        Args:
            itr: iteration of the run.
            deterministic: whether the agent acts by its best actions.
            after_loss: whether a process was lost in this evaluation, perhaps by its seeds: others are taken.
        """

    @abstractmethod
    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return where the training environments stand."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned."""

    @abstractmethod
    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
