"""State of the statistics of a trajectory, of which users have classes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlpyt.core import TrajStates
from rlpyt.envs.state import load_graph, save_graph, set_attributes
from rlpyt.envs.state_data import StateError
from rlpyt.types import StateDict, TrajInfo


class TypedTrajStates(TrajStates):
    """States of trajectories whatever their class keeps, with its types."""

    def saved(self, traj_infos: Sequence[TrajInfo]) -> list[StateDict]:
        """Return the attributes of trajectories; those of one that has no state are left out."""
        return [{"info": saved_info(info)[0], "ended_at": info.ended_at} for info in traj_infos]

    def restored(self, saved: Sequence[StateDict], new_traj_info: Callable[[], TrajInfo]) -> list[TrajInfo]:
        """Return the trajectories that were saved, as far as they have a state."""
        infos = [new_traj_info() for _ in saved]
        for info, state in zip(infos, saved, strict=True):
            if (ended_at := state.get("ended_at")) is not None:  # checkpoints of earlier versions do not have it
                info.ended_at = ended_at
        return [info for info, state in zip(infos, saved, strict=True) if restore_info(info, state["info"])]


def saved_info(info: TrajInfo) -> tuple[StateDict | None, str | None]:
    """Return the attributes of statistics as plain data, with their types; or None, and why they have no state."""
    try:
        return save_graph({"info": vars(info)}), None
    except StateError as error:
        return None, f"{type(info).__name__}: the statistics of a trajectory cannot be saved: {error}."


def restore_info(info: TrajInfo, saved: StateDict | None) -> bool:
    """Give fresh statistics the attributes of the saved ones; return whether that can be done."""
    if saved is None:
        return False
    try:
        attributes = load_graph(saved, {"info": vars(info)})["info"]
    except ValueError:
        return False
    # An attribute that comes with the first step may be there, and not in the saved.
    set_attributes(info, attributes, set(vars(info)) - set(attributes))
    return True
