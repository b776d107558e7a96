"""State of an environment as plain data, read from its attributes, for environments without `state_dict`.

An environment is a graph of objects. Objects keep their identity: they are found by their place in a fresh environment
of the same class, and their attributes are set. Data (numbers, arrays, lists, dictionaries, generators) is made anew.
Every reference is followed, closures among them, so that two names of one array are two names of one array again.
What cannot be followed (an emulator, a socket, a window) raises `StateError`: no state is better than half of one.
Module globals and attributes of classes are not seen; `restores_exactly` finds out whether they matter.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import cast

import numpy as np
from gymnasium import Space

from rlpyt.envs.state_data import (
    ARRAY_KINDS,
    GENERATORS,
    StateError,
    Thing,
    base_array,
    class_name,
    generator_state,
    make_array,
    make_generator,
    make_scalar,
    make_view,
    pack_array,
    pack_scalar,
    pack_view,
)
from rlpyt.envs.state_kept import has_spaces, is_constant, is_left_out, left_out, text
from rlpyt.envs.state_mujoco import is_mujoco, load_mujoco, mujoco_state
from rlpyt.types import StateDict

_LEAVES = (type(None), bool, int, float, str)
_SEQUENCES: StateDict = {
    "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque
}  # fmt: skip
_MAPPINGS: StateDict = {"dict": dict, "OrderedDict": OrderedDict, "defaultdict": defaultdict}
_IMMUTABLE = (tuple, frozenset, partial)


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
    reader = _Reader(state["nodes"])
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

    def check_own_arrays(self) -> None:
        """Refuse an array that a wrapper shares with an environment that saves itself."""
        own = {id(base_array(x)): layer for layer in self._own for x in vars(layer).values() if type(x) is np.ndarray}
        for array, place in self._arrays:
            if id(array) in own:
                raise StateError(f"{place} is an array of {type(own[id(array)]).__name__}, which has its own state")

    def _node(self, value: Thing, place: str) -> StateDict:
        name = class_name(type(value))
        for find in (self._data, self._function, self._kept):
            node = find(value, name, place)
            if node is not None:
                return node
        return {"kind": "object", "class": name, "attributes": self._attributes(value, place)}

    def _data(self, value: Thing, name: str, place: str) -> StateDict | None:
        """Return the node of what is made anew."""
        kind = type(value).__name__
        if isinstance(value, np.generic):
            return {"kind": "scalar", **pack_scalar(value, place)}
        if type(value) is np.ndarray:
            return self._array(value, place)
        if type(value) is _SEQUENCES.get(kind):
            return self._sequence(value, kind, place)
        if type(value) is _MAPPINGS.get(kind):
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
        if kind in ("set", "frozenset") and list(_SEQUENCES[kind](list(value))) != list(value):
            raise StateError(f"{place} is a set whose order cannot be made again")
        items = [self.save(item, f"{place}[{i}]") for i, item in enumerate(value)]
        if kind in ("list", "deque"):
            # A list may be longer or shorter in the fresh environment, which has no object to restore then.
            objects = [i for i, code in enumerate(items) if type(code) is list and self._is_object(code[0])]
            if objects:
                raise StateError(f"{place}[{objects[0]}] is an object in a list ({type(value[objects[0]]).__name__})")
        return {"kind": kind, "items": items, "maxlen": value.maxlen if kind == "deque" else None}

    def _is_object(self, number: int) -> bool:
        return self.nodes[number].get("kind", "object") in ("object", "own", "mujoco", "function")

    def _function(self, value: Thing, name: str, place: str) -> StateDict | None:
        if isinstance(value, MethodType):
            parts = self.save(value.__self__, f"{place}.__self__")
            return {"kind": "method", "name": value.__func__.__name__, "self": parts}
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
        return None

    def _attributes(self, value: Thing, place: str) -> StateDict:
        """Return the attributes of an object of a class that is written in Python."""
        kind = type(value)
        has_all = hasattr(value, "__dict__") and kind.__basicsize__ <= _Plain.__basicsize__ and not kind.__itemsize__
        if not has_all:
            raise StateError(f"{place} is a {class_name(kind)}, which cannot be read")
        return self._values({k: v for k, v in vars(value).items() if k not in left_out(kind)}, place)

    def _values(self, values: Mapping[str, object], place: str) -> StateDict:
        return {key: self.save(item, f"{place}.{key}") for key, item in values.items()}


class _Reader:
    """Nodes that become data and objects; nothing is changed before `commits` are called."""

    def __init__(self, nodes: list[StateDict]) -> None:
        self._nodes = nodes
        self._made: dict[int, Thing] = {}
        self._taken: dict[int, str] = {}
        self.commits: list[Callable[[], None]] = []

    def load(self, code: Thing, fresh: Thing, place: str) -> Thing:
        if type(code) is not list:
            return code
        number = code[0]
        if number not in self._made:
            node = self._nodes[number]
            make = cast(Callable[..., Thing], getattr(self, f"_make_{_MAKERS.get(node['kind'], node['kind'])}"))
            self._made[number] = make(node, fresh, place, number)
        return self._made[number]

    def _make_scalar(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        return make_scalar(node)

    def _make_array(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        return make_array(node)

    def _make_bytes(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        array = make_array(node)
        return {"bytes": bytes, "bytearray": bytearray, "complex": complex}[node["kind"]](array)

    def _make_view(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        base = base_array(fresh) if type(fresh) is np.ndarray else None
        return make_view(node, self.load(node["base"], base, place))

    def _make_generator(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        return make_generator(node, lambda code: self.load(code, None, place))

    def _make_sequence(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        make = _SEQUENCES[node["kind"]]
        old: list[Thing] = list(fresh) if isinstance(fresh, list | tuple | deque) else []
        old += [None] * (len(node["items"]) - len(old))
        empty = deque(maxlen=node["maxlen"]) if make is deque else make(())
        if isinstance(empty, list | deque):
            self._made[number] = empty  # it may contain itself
        items = [self.load(code, old[i], f"{place}[{i}]") for i, code in enumerate(node["items"])]
        if not isinstance(empty, list | deque):
            return make(items)
        empty.extend(items)
        return empty

    def _make_mapping(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        old = fresh if isinstance(fresh, dict) else {}
        made = self._made[number] = _MAPPINGS[node["kind"]]()
        if isinstance(made, defaultdict):
            made.default_factory = self.load(node["factory"], getattr(fresh, "default_factory", None), place)
        for key_code, code in node["items"]:
            key = self.load(key_code, next((k for k in old if self._is_key(key_code, k)), None), place)
            made[key] = self.load(code, old.get(key), f"{place}[{key!r}]")
        return made

    def _make_named(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        self._check_class(node, fresh, place)
        return type(fresh)._make(self.load(code, old, place) for code, old in zip(node["items"], fresh, strict=True))

    def _make_method(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        if not isinstance(fresh, MethodType) or fresh.__func__.__name__ != node["name"]:
            _refuse(place, f"the method {node['name']}", text(fresh))
        return MethodType(fresh.__func__, self.load(node["self"], fresh.__self__, f"{place}.__self__"))

    def _make_partial(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        if type(fresh) is not partial:
            _refuse(place, "a partial", text(fresh))
        parts = (fresh.func, fresh.args, fresh.keywords)
        func, args, keywords = (self.load(code, old, place) for code, old in zip(node["items"], parts, strict=True))
        return partial(func, *args, **keywords)

    def _make_function(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        if not isinstance(fresh, FunctionType) or text(fresh) != node["name"]:
            _refuse(place, node["name"], text(fresh))
        self._take(fresh, place, number)
        for (name, code), cell in zip(node["cells"].items(), fresh.__closure__ or (), strict=True):
            self.commits.append(partial(setattr, cell, "cell_contents", self.load(code, cell.cell_contents, name)))
        names = ("__defaults__", "__kwdefaults__", "__dict__")
        for name, code in zip(names, node["defaults"], strict=True):
            self.commits.append(partial(setattr, fresh, name, self.load(code, getattr(fresh, name), place)))
        return fresh

    def _make_left_out(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        return fresh

    def _make_constant(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        if text(fresh) != node["text"]:
            _refuse(place, node["text"], text(fresh))
        return fresh

    def _make_mujoco(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        self._check_class(node, fresh, place)
        self._take(fresh, place, number)
        if node["model"] is not None:
            self.load(node["model"], fresh.model, f"{place}.model")
        self.commits.append(load_mujoco(node["state"], fresh, place))
        return fresh

    def _make_own(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        self._check_class(node, fresh, place)
        self._take(fresh, place, number)
        self.commits.append(partial(fresh.load_state_dict, node["state"]))
        return fresh

    def _make_object(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        self._check_class(node, fresh, place)
        self._take(fresh, place, number)
        if node.get("space", text(fresh)) != text(fresh):
            _refuse(place, node["space"], text(fresh))
        old = vars(fresh)
        new = {key: self.load(code, old.get(key), f"{place}.{key}") for key, code in node["attributes"].items()}
        kept = {k: v for k, v in old.items() if "space" in node or k in left_out(type(fresh))}
        self.commits.append(partial(_set_attributes, fresh, {**kept, **new}))
        return fresh

    def _is_key(self, code: Thing, key: object) -> bool:
        return type(code) is list and self._nodes[code[0]] == {"kind": "constant", "text": text(key)}

    def _check_class(self, node: StateDict, fresh: Thing, place: str) -> None:
        if class_name(type(fresh)) != node["class"]:
            _refuse(place, f"a {node['class']}", f"a {class_name(type(fresh))}")

    def _take(self, fresh: Thing, place: str, number: int) -> None:
        """Note an object that is restored: two saved objects cannot become one."""
        if id(fresh) in self._taken:
            _refuse(place, "an object of its own", f"the same object as {self._taken[id(fresh)]}")
        self._taken[id(fresh)] = place
        self._made[number] = fresh


_MAKERS = (
    dict.fromkeys(_SEQUENCES, "sequence")
    | dict.fromkeys(_MAPPINGS, "mapping")
    | dict.fromkeys(("bytes", "bytearray", "complex"), "bytes")
    | {"left out": "left_out"}
)


def _refuse(place: str, came: str, expected: str) -> None:
    raise ValueError(f"loading the state of an environment: {place}: got {came}, expected {expected}.")


def _set_attributes(fresh: Thing, new: StateDict) -> None:
    attributes = cast(dict[str, object], vars(fresh))
    attributes.clear()
    attributes.update(new)
