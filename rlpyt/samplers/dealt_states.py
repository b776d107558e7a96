"""State of a sampler in pieces, which other numbers of workers, or another class of sampler, can take over.

A state has three lists of pieces: `parts` (environments), `actors`, and `streams` (global generators of processes).
Every piece names the environments that it belongs to. A part that has the environments of one piece takes it as it is.
Else the entries of its environments are taken out of several pieces. Every actor draws the noise of all environments,
so the random streams of all actors stand at the same place between two batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from rlpyt.envs.state_data import Thing
from rlpyt.types import StateDict
from rlpyt.utils.seeds import global_streams, set_global_streams

_LISTS = ("parts", "actors", "streams")
_PER_ENV = {"ended", "resting", "unlogged", "traj_infos", "envs", "seeds", "why"}
_DIM_OF_ENVS = {"last_row": 0, "rnn_state": 1, "exploration_state": 0}
_OF_ALL = {"generator"}


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


def dealt(pieces: Sequence[StateDict], ranks: Sequence[int]) -> StateDict:
    """Return the state of environments: that of the piece with the same ones, or made of several pieces.

    Raises:
        ValueError: if an environment is in no piece, or a piece has an entry that cannot be taken apart.
    """
    for one in pieces:
        if list(one["ranks"]) == list(ranks):
            state: StateDict = one["state"]
            return state
    places = {rank: (one["state"], b) for one in pieces for b, rank in enumerate(one["ranks"])}
    check_ranks(places, ranks)
    sources = [places[rank] for rank in ranks]
    return {name: _entries(name, [(state[name], b) for state, b in sources]) for name in sources[0][0]}


def check_ranks(saved: Iterable[int], ranks: Sequence[int]) -> None:
    """Refuse a state that lacks an environment."""
    missing = sorted(set(ranks) - set(saved))
    if missing:
        raise ValueError(
            f"Loading the state of environments: it has {len(set(saved))}, without those of rank "
            f"{', '.join(map(str, missing))}; expected the {len(ranks)} of this sampler. Give it the batch_B that it "
            "was saved with."
        )


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


def streams_of(process: str, ranks: Sequence[int]) -> StateDict:
    """Return the global generators of this process, as a state of the environments in it.

    Args:
        process: its kind.
        ranks: of its environments.
    """
    return {"streams": [piece(ranks, {"process": process, "generators": global_streams()})]}


def go_on_with_streams(process: str, ranks: Sequence[int], state: StateDict) -> Loaded:
    """Let the global generators of this process go on; those of other processes cannot be dealt.

    Called last, as all else that is loaded may draw.
    """
    for one in state["streams"]:
        if one["state"]["process"] == process and list(one["ranks"]) == list(ranks):
            set_global_streams(one["state"]["generators"])
            return Loaded(n_streams=1)
    return Loaded(n_without_stream=1)
