"""State of a sampler in pieces, which other numbers of workers, or another class of sampler, can take over.

A state has three lists of pieces: `parts` (environments), `actors`, and `streams` (global generators of processes).
Every piece names the environments that it belongs to. A part that has the environments of one piece takes it as it is.
Else the entries of its environments are taken out of several pieces. Every actor draws the noise of all environments,
so the random streams of all actors stand at the same place between two batches.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from rlpyt.core import TrajStates
from rlpyt.envs import EnvAdapter
from rlpyt.envs.making import LARGE, data_size
from rlpyt.envs.state import load_graph, save_graph
from rlpyt.envs.state_data import StateError, Thing
from rlpyt.logging.snapshots import snapshot_content
from rlpyt.types import StateDict, TrajInfo

_LISTS = ("parts", "actors", "streams")
_PER_ENV = {"ended", "resting", "unlogged", "traj_infos", "envs", "seeds", "why"}
_DIM_OF_ENVS = {"last_row": 0, "rnn_state": 1, "exploration_state": 0}
_OF_ALL = {"generator"}
_MANY = 2**12  # objects, such as the rows of a table of lists: to read and set these takes half a second


class Loaded(NamedTuple):
    """Report of a state that was loaded."""

    n_cut: int = 0
    """Episodes that end here, as their environment could not be restored."""
    reasons: tuple[str, ...] = ()
    """Why not, of one environment of each part."""
    n_streams: int = 0
    """Processes whose global generators go on where they stood."""
    n_without_stream: int = 0
    """Processes whose global generators stay as they are."""

    @classmethod
    def merge(cls, all_loaded: Iterable[Loaded]) -> Loaded:
        """Return the reports of several parts or processes as one."""
        n_cut, reasons, *streams = zip(cls(), *all_loaded, strict=True)
        return cls(sum(n_cut), tuple(reason for some in reasons for reason in some), *map(sum, streams))


# ---- pieces ----


def piece(ranks: Sequence[int], state: StateDict) -> StateDict:
    """Return the state of some environments as a piece."""
    return {"ranks": list(ranks), "state": state}


def joined(states: Iterable[StateDict]) -> StateDict:
    """Return the states of several parts or processes, or of the samplers of several replicas, as one."""
    states = list(states)
    return {name: [one for state in states for one in state.get(name, ())] for name in _LISTS}


def selected(state: StateDict, ranks: Sequence[int]) -> StateDict:
    """Return a state without the pieces that have none of these environments."""
    some = {name: [one for one in state[name] if set(one["ranks"]) & set(ranks)] for name in _LISTS}
    return {**state, **some}


def why_no_state(state: StateDict) -> str | None:
    """Return why an environment whose state this should be has none; None if all have one."""
    whys = (why for one in state.get("parts", ()) for why in one["state"].get("why", ()))
    return next(filter(None, whys), None)


def dealt(pieces: Sequence[StateDict], ranks: Sequence[int]) -> StateDict:
    """Return the state of environments: that of the piece with the same ones, or made of several pieces."""
    for one in pieces:
        if list(one["ranks"]) == list(ranks):
            state: StateDict = one["state"]
            return state
    places = {rank: (one["state"], b) for one in pieces for b, rank in enumerate(one["ranks"])}
    sources = [places[rank] for rank in ranks]
    return {name: _entries(name, [(state[name], b) for state, b in sources]) for name in sources[0][0]}


def _entries(name: str, sources: Sequence[tuple[Thing, int]]) -> Thing:
    """Return an entry of the state of some environments, each in an entry of a piece at some place."""
    first = sources[0][0]
    if name in _PER_ENV:
        return [entry[b] for entry, b in sources]
    if name in _OF_ALL or first is None:
        return first
    if name not in _DIM_OF_ENVS:
        raise ValueError(
            f"Loading the state of environments: it was saved by other workers, and its entry {name!r} cannot be dealt "
            "to these. Give the sampler the class and the n_workers that it was saved with."
        )
    dim = _DIM_OF_ENVS[name]
    if isinstance(first, torch.Tensor):
        return torch.stack([entry.select(dim, b) for entry, b in sources], dim)
    return [torch.stack([entry[i].select(dim, b) for entry, b in sources], dim) for i in range(len(first))]


# ---- statistics of trajectories ----


class TypedTrajStates(TrajStates):
    """States of trajectories whatever their class keeps, with its types."""

    def saved(self, traj_infos: Sequence[TrajInfo]) -> list[StateDict]:
        """Return the attributes of trajectories; those of one that has no state are left out."""
        return [{"info": saved_info(info)[0], "ended_at": info.ended_at} for info in traj_infos]

    def restored(self, saved: Sequence[StateDict], new_traj_info: Callable[[], TrajInfo]) -> list[TrajInfo]:
        """Return the trajectories that were saved, as far as they have a state."""
        infos = []
        for state in saved:
            info = new_traj_info()
            if (ended_at := state.get("ended_at")) is not None:  # checkpoints of earlier versions do not have it
                info.ended_at = ended_at
            if restore_info(info, state["info"]):
                infos.append(info)
        return infos


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
    for name in set(vars(info)) - set(attributes):
        del info[name]
    for name, value in attributes.items():
        info[name] = value
    return True


# ---- environments as they were built ----


class AsBuilt:
    """State of an evaluation environment that was just built, and never reset, which it is set back to.

    It is kept as the content of a snapshot and read anew every time. So later steps do not change it, and a
    `load_state_dict` of the user's gets what it would get from a checkpoint.
    """

    def __init__(self, env: EnvAdapter) -> None:
        self._env, self._content = env, b""
        self.why_not = self._why_too_large()
        """Why it cannot be set back; None if it can, as far as is known."""
        if self.why_not is None:
            state, self.why_not = env.saved_state()
            try:
                self._content = bytes(snapshot_content(state))
            except TypeError as error:
                self.why_not = self._cannot(error)

    def set_back(self) -> str | None:
        """Set the environment back; return why that cannot be done, now and later, if it cannot."""
        self.why_not = self.why_not or self._why_too_large()
        if self.why_not is not None:
            return self.why_not
        # A recorder counts its episodes in the names of its files: those of earlier evaluations would be overwritten.
        recorders = [(x, dict(vars(x))) for x in self._env.layers if type(x).__name__ == "RecordVideo"]
        try:
            self._env.load_state_dict(torch.load(io.BytesIO(self._content), weights_only=True))
        except Exception as error:  # it may have opened something since, which would be lost
            self.why_not = self._cannot(error)
        for recorder, attributes in recorders:
            for name, value in attributes.items():
                setattr(recorder, name, value)
        return self.why_not

    def _why_too_large(self) -> str | None:
        size, n_objects = data_size(self._env.env)
        if size < LARGE and n_objects < _MANY:
            return None
        return self._cannot(f"it holds {size / 2**20:,.0f} MiB of data, {n_objects:,} objects, which is too much")

    def _cannot(self, why: object) -> str:
        return f"{self._env.name} (rank {self._env.rank}) cannot be set back to how it was built: {why}."
