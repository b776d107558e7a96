"""State of an environment with `get_state` and `set_state` of its own, as several libraries have them.

Such a pair often has the state of an emulator, and not the counters and generators around it. So the attributes that
can be read are saved too, and set after `set_state`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Protocol, cast

from rlpyt.envs.state_data import StateError, Thing
from rlpyt.types import StateDict


class Writer(Protocol):
    """Graph that becomes plain data; see `rlpyt.envs.state`."""

    def save(self, value: Thing, place: str) -> Thing:
        """Return a value as plain data, or raise `StateError`."""

    def saved_data(self, value: Thing, place: str) -> Thing:
        """Return a value without objects as plain data, or raise `StateError`."""

    def undo(self) -> Callable[[], None]:
        """Return a function that forgets what was saved after this call."""


class Reader(Protocol):
    """Plain data that becomes a graph again; see `rlpyt.envs.state`."""

    commits: list[Callable[[], None]]

    def load(self, code: Thing, fresh: Thing, place: str) -> Thing:
        """Return what `Writer.save` was given."""


def has_pair(value: Thing) -> bool:
    """Return whether an environment has `get_state()` and `set_state(state)`; that of MuJoCo takes two arguments."""
    kind = type(value)
    if not (callable(getattr(kind, "get_state", None)) and callable(getattr(kind, "set_state", None))):
        return False
    try:
        return [_n_required(value.get_state), _n_required(value.set_state)] == [0, 1]
    except (TypeError, ValueError):  # a compiled function may have no signature
        return False


def _n_required(function: Callable[..., object]) -> int:
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def save_pair(writer: Writer, value: Thing, attributes: Mapping[str, object], place: str) -> StateDict | None:
    """Return what `get_state` gives, with the attributes that can be read; None if it is no plain data."""
    undo = writer.undo()
    try:
        state = writer.saved_data(value.get_state(), f"{place}.get_state()")
    except StateError:
        undo()
        return None
    return {"state": state, "attributes": dict(_readable(writer, attributes, place))}


def _readable(writer: Writer, attributes: Mapping[str, object], place: str) -> Iterator[tuple[str, Thing]]:
    for key, item in attributes.items():
        undo = writer.undo()
        try:
            yield key, writer.save(item, f"{place}.{key}")
        except StateError:
            undo()


def load_pair(reader: Reader, node: StateDict, fresh: Thing, place: str) -> None:
    """Let `set_state` be called, and then the attributes be set."""
    state = reader.load(node["state"], None, f"{place}.get_state()")
    reader.commits.append(partial(fresh.set_state, state))
    old = cast(MutableMapping[str, object], vars(fresh))
    new = {key: reader.load(code, old.get(key), f"{place}.{key}") for key, code in node["attributes"].items()}
    reader.commits.append(partial(old.update, new))
