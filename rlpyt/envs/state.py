"""State of an environment as plain data, read from its attributes, for environments without `state_dict`.

An environment is a graph of objects. Objects keep their identity: they are found by their place in a fresh environment
of the same class, and their attributes are set. Data (numbers, arrays, lists, dictionaries, generators) is made anew.
Every reference is followed, closures among them, so that two names of one array are two names of one array again.
What cannot be followed (an emulator, a socket, a window) raises `StateError`: no state is better than half of one.
Module globals, attributes of classes and what a number stands for outside of Python (a client of a simulator) are not
seen; `restores_exactly` finds out whether they matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag
from functools import partial
from types import FunctionType, MemberDescriptorType, MethodType

import numpy as np
from gymnasium import Space

from rlpyt.envs.state_data import (
    ARRAY_KINDS,
    GENERATORS,
    MAPPINGS,
    SEQUENCES,
    StateError,
    Thing,
    base_array,
    class_name,
    generator_state,
    pack_array,
    pack_scalar,
    pack_view,
)
from rlpyt.envs.state_kept import has_spaces, is_constant, is_left_out, left_out, text
from rlpyt.envs.state_mujoco import is_mujoco, mujoco_state
from rlpyt.envs.state_pair import has_pair, save_pair
from rlpyt.envs.state_reader import Reader
from rlpyt.types import StateDict

_LEAVES = (type(None), bool, int, float, str)
_DATA = {"scalar", "array", "view", "generator", "bytes", "bytearray", "complex", *SEQUENCES, *MAPPINGS}
_IMMUTABLE = (tuple, frozenset, partial)
# Objects of their classes are Python around a number that names something of the process: a library, a pipe.
_MODULES_OF_HANDLES = {"ctypes", "multiprocessing"}


class _Plain:
    """Class without a base, to compare the sizes of objects with."""


def save_graph(roots: Mapping[str, object], layers: Iterable[object]) -> StateDict:
    """Return objects, and all that they refer to, as plain data.

    Args:
        roots: objects by name.
        layers: environment and wrappers; one that has `state_dict` and `load_state_dict` is asked for its own state.

    Raises:
        StateError: if something cannot be saved; the message has its place.
    """
    writer = _Writer(layers)
    try:
        codes = {name: writer.save(root, name) for name, root in roots.items()}
    except RecursionError:
        raise StateError("its attributes are nested too deeply") from None
    writer.check_own_arrays()
    return {"roots": codes, "nodes": writer.nodes}


def load_graph(state: StateDict, fresh: Mapping[str, object]) -> StateDict:
    """Restore objects in place, and return the roots; nothing is changed if the state does not fit.

    Args:
        state: as `save_graph` returned it, or a snapshot of that.
        fresh: objects of the same classes, by name.

    Raises:
        ValueError: if an object is of another class or shape than the saved one.
    """
    reader = Reader(state["nodes"])
    roots = {name: reader.load(code, fresh[name], name) for name, code in state["roots"].items()}
    for commit in reader.commits:
        commit()
    return roots


class _Writer:
    """Graph of objects that becomes a list of nodes; a reference to a node is a list with its number."""

    def __init__(self, layers: Iterable[object]) -> None:
        self.nodes: list[StateDict] = []
        self._numbers: dict[int, int] = {}
        self._held: list[object] = []  # the id of an object that is gone could come again
        self._open: set[int] = set()
        self._layers = {id(layer) for layer in layers}
        self._own: list[object] = []
        self._arrays: list[tuple[np.ndarray, str]] = []

    def save(self, value: Thing, place: str) -> Thing:
        if type(value) in _LEAVES or (type(value) is tuple and all(type(item) in _LEAVES for item in value)):
            return value
        if id(value) in self._open:
            raise StateError(f"{place} is a {type(value).__name__} that contains itself")
        if id(value) not in self._numbers:
            number = self._numbers[id(value)] = len(self.nodes)
            self._held.append(value)
            self.nodes.append({})
            if isinstance(value, _IMMUTABLE):
                self._open.add(id(value))
            self.nodes[number] = self._node(value, place)
            self._open.discard(id(value))
        return [self._numbers[id(value)]]

    def saved_data(self, value: Thing, place: str) -> Thing:
        """Return a value as plain data; refuse what a fresh environment would have to have, too."""
        n_before = len(self.nodes)
        code = self.save(value, place)
        if any(node["kind"] not in _DATA for node in self.nodes[n_before:]):
            raise StateError(f"{place} is more than plain data")
        return code

    def undo(self) -> Callable[[], None]:
        """Return a function that forgets what was saved after this call."""
        lists = [(some, len(some)) for some in (self.nodes, self._held, self._own, self._arrays)]
        numbers, open_ = dict(self._numbers), set(self._open)

        def forget() -> None:
            for some, length in lists:
                del some[length:]
            self._numbers, self._open = numbers, open_

        return forget

    def check_own_arrays(self) -> None:
        """Refuse an array that a wrapper shares with an environment that saves itself."""
        own = {id(base_array(x)): layer for layer in self._own for x in vars(layer).values() if type(x) is np.ndarray}
        for array, place in self._arrays:
            if id(array) in own:
                raise StateError(f"{place} is an array of {type(own[id(array)]).__name__}, which has its own state")

    def _node(self, value: Thing, place: str) -> StateDict:
        name = class_name(type(value))
        try:
            for find in (self._data, self._function, self._kept):
                node = find(value, name, place)
                if node is not None:
                    return node
        except (StateError, RecursionError):
            raise
        except Exception as error:  # of a state_dict of its own, or of an object that does not let itself be read
            raise StateError(f"{place} ({name}): saving its state raised {type(error).__name__}: {error}") from error
        return {"kind": "object", "class": name, "attributes": self._attributes(value, place)}

    def _data(self, value: Thing, name: str, place: str) -> StateDict | None:
        """Return the node of what is made anew."""
        kind = type(value).__name__
        if isinstance(value, np.generic):
            return {"kind": "scalar", **pack_scalar(value, place)}
        if type(value) is np.ndarray:
            return self._array(value, place)
        if type(value) is SEQUENCES.get(kind):
            return self._sequence(value, kind, place)
        if type(value) is MAPPINGS.get(kind):
            items = [(self.save(k, f"a key of {place}"), self.save(v, f"{place}[{k!r}]")) for k, v in value.items()]
            factory = self.save(value.default_factory, place) if kind == "defaultdict" else None
            return {"kind": kind, "items": items, "factory": factory}
        if type(value) in (bytes, bytearray, complex):
            return {"kind": kind, **pack_array(np.asarray(value) if kind == "complex" else np.frombuffer(value, "u1"))}
        if isinstance(value, tuple) and "_fields" in vars(type(value)):
            return {"kind": "named", "class": name, "items": [self.save(item, place) for item in value]}
        if type(value) in GENERATORS:
            return {"kind": "generator", **generator_state(value, place, self.save)}
        return None

    def _array(self, value: np.ndarray, place: str) -> StateDict:
        base = base_array(value)
        owner: object = base.base
        if value.dtype.kind not in ARRAY_KINDS:
            raise StateError(f"{place} is an array of dtype {value.dtype}")
        if owner is not None and not isinstance(owner, bytes):
            raise StateError(f"{place} is an array whose memory belongs to a {class_name(type(owner))}")
        if not base.flags.forc:
            raise StateError(f"{place} is an array that is contiguous in no order")
        if base is value:
            self._arrays.append((value, place))
            return {"kind": "array", **pack_array(value)}
        return {"kind": "view", "base": self.save(base, place), **pack_view(value, base)}

    def _sequence(self, value: Thing, kind: str, place: str) -> StateDict:
        if kind in ("set", "frozenset") and list(SEQUENCES[kind](list(value))) != list(value):
            raise StateError(f"{place} is a set whose order cannot be made again")
        items = [self.save(item, f"{place}[{i}]") for i, item in enumerate(value)]
        if kind in ("list", "deque"):
            # A list may be longer or shorter in the fresh environment, which has no object to restore then.
            objects = [i for i, code in enumerate(items) if type(code) is list and self._is_object(code[0])]
            if objects:
                raise StateError(f"{place}[{objects[0]}] is an object in a list ({type(value[objects[0]]).__name__})")
        return {"kind": kind, "items": items, "maxlen": value.maxlen if kind == "deque" else None}

    def _is_object(self, number: int) -> bool:
        return self.nodes[number].get("kind", "object") in ("object", "own", "pair", "mujoco", "function")

    def _function(self, value: Thing, name: str, place: str) -> StateDict | None:
        if isinstance(value, MethodType):
            parts = self.save(value.__self__, f"{place}.__self__")
            function = value.__func__
            return {"kind": "method", "name": function.__name__, "function": text(function), "self": parts}
        if type(value) is partial:
            parts = [self.save(x, place) for x in (value.func, value.args, value.keywords)]
            return {"kind": "partial", "items": parts}
        if isinstance(value, FunctionType) and "<locals>" in value.__qualname__:
            cells = {
                name: self.save(cell.cell_contents, f"{name} in {place}")
                for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            }
            defaults = [self.save(x, place) for x in (value.__defaults__, value.__kwdefaults__, value.__dict__)]
            return {"kind": "function", "name": text(value), "cells": cells, "defaults": defaults}
        return None

    def _kept(self, value: Thing, name: str, place: str) -> StateDict | None:
        """Return the node of what stays the object that it is in the fresh environment, except for plain objects."""
        if is_left_out(value):
            return {"kind": "left out"}
        if isinstance(value, Enum):
            bits = value.value if isinstance(value, Flag) else None  # several flags together are no member
            return {"kind": "enum", "class": name, "name": value.name, "bits": bits}
        if is_constant(value):
            return {"kind": "constant", "text": text(value)}
        if is_mujoco(name):
            model = self.save(value.model, f"{place}.model") if name.endswith("MjData") else None
            return {"kind": "mujoco", "class": name, "model": model, "state": mujoco_state(value)}
        if isinstance(value, Space):
            parts = {key: part for key, part in vars(value).items() if key == "_np_random" or has_spaces(part)}
            return {"kind": "object", "class": name, "space": text(value), "attributes": self._values(parts, place)}
        if id(value) in self._layers and hasattr(type(value), "state_dict"):
            if not hasattr(type(value), "load_state_dict"):
                raise StateError(f"{place} ({name}) has state_dict, but no load_state_dict")
            self._own.append(value)
            return {"kind": "own", "class": name, "state": value.state_dict()}
        if id(value) in self._layers and has_pair(value):
            pair = save_pair(self, value, self._own_values(value), place)
            return None if pair is None else {"kind": "pair", "class": name, **pair}
        return None

    def _attributes(self, value: Thing, place: str) -> StateDict:
        """Return the attributes of an object of a class that is written in Python."""
        kind = type(value)
        if any(class_name(base).partition(".")[0] in _MODULES_OF_HANDLES for base in kind.__mro__):
            raise StateError(f"{place} is a {class_name(kind)}, which stands for something outside of Python")
        has_all = hasattr(value, "__dict__") and kind.__basicsize__ <= _Plain.__basicsize__ and not kind.__itemsize__
        if not has_all or _has_slots(kind):
            raise StateError(f"{place} is a {class_name(kind)}, which cannot be read")
        return self._values(self._own_values(value), place)

    def _own_values(self, value: Thing) -> StateDict:
        return {k: v for k, v in vars(value).items() if k not in left_out(type(value))}

    def _values(self, values: Mapping[str, object], place: str) -> StateDict:
        return {key: self.save(item, f"{place}.{key}") for key, item in values.items()}


def _has_slots(kind: type) -> bool:
    """Return whether objects of a class have `__slots__` beside their attributes."""
    return any(type(x) is MemberDescriptorType for base in kind.__mro__ for x in vars(base).values())
