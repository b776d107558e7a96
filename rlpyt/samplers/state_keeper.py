"""Keeper of a sampler's state: what is checked, seeded and said when it is saved or loaded."""

from __future__ import annotations

from collections.abc import Callable

from rlpyt.logging import current_logger
from rlpyt.samplers.dealt_states import Loaded, check_ranks
from rlpyt.samplers.fleet_spec import FleetSpec
from rlpyt.types import StateDict


class StateKeeper:
    """Keeper of the state of one sampler.

    Args:
        name: of the sampler, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.next_itr = 0
        """The iteration after the last batch."""
        self._said = False

    def saved(self, pieces: StateDict, spec: FleetSpec) -> StateDict:
        """Return the state made of pieces; say once why an environment in it has no state."""
        whys = (why for one in pieces["parts"] for why in one["state"].get("why", ()))
        self.say_why(next(filter(None, whys), None))
        return {**pieces, "global_B": spec.global_B, "itr": self.next_itr}

    def say_why(self, why: str | None) -> None:
        """Say once that an environment has no state."""
        if why is not None and not self._said:
            self._said = True
            current_logger().warn(f"{why} Its open episode ends where the run is resumed.")

    def noted(self, why: str | None) -> str | None:
        """Return why an environment has no state, which the caller says."""
        self._said = self._said or why is not None
        return why

    def _to_load(self, state: StateDict, spec: FleetSpec) -> StateDict:
        """Check a state, and give environments that cannot be restored new seeds.

        A fresh environment would go on with the random stream of the start, and play the same episodes again.

        Raises:
            ValueError: if it is the state of other environments.
        """
        if state["global_B"] != spec.global_B:
            raise ValueError(
                f"{self.name}: loading a state: it is that of {state['global_B']} environments; expected one of "
                f"{spec.global_B}. Give the sampler batch_B={state['global_B']}, the environments of all replicas "
                "together, or start a new run."
            )
        check_ranks({rank for one in state["parts"] for rank in one["ranks"]}, spec.env_ranks)
        self.next_itr = state["itr"]
        seeds = dict(zip(spec.env_ranks, spec.seeds(max(1, self.next_itr)), strict=True))
        return {**state, "new_seeds": seeds}

    def load(self, state: StateDict, spec: FleetSpec, load: Callable[[StateDict], Loaded]) -> int:
        """Load a state, and say what does not go on where it stood; return how many episodes end by that."""
        loaded, streams = load(self._to_load(state, spec)), state["streams"]
        logger = current_logger()
        if loaded.reasons:
            logger.warn(
                f"{loaded.n_cut} open episodes end here, truncated in the data, as their environments could not be "
                f"restored. {loaded.reasons[0]}"
            )
        if loaded.n_without_stream or loaded.n_streams < len(streams):
            logger.log(
                f"{self.name}: the state is that of other processes, {len(streams)} with global generators of their "
                f"own (random, numpy, torch), and here are {loaded.n_streams + loaded.n_without_stream}. The "
                "generators stay as they were seeded, which matters to environments that draw from them."
            )
        return loaded.n_cut
