"""State of an environment as plain data: its own, or else that of the objects which its attributes lead to.

Data (numbers, arrays, containers, generators) is made anew. So are objects, as bare ones of a class that a fresh
environment knows; layers, spaces, functions and what has parts that stay are those of the fresh environment. So no code
of a file runs, and no class is imported. Two names of one thing are two names of one thing again. What cannot be read
(an emulator, a file, a lock) raises `StateError`: no state is better than half of one. Module globals, attributes of
classes and what a number stands for outside of Python are not seen; `rlpyt.envs.state_check` finds out whether they
matter.
"""

from __future__ import annotations

import inspect
import logging
import operator
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, Flag
from functools import partial
from itertools import chain
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import NoReturn

import numpy as np
import torch
from gymnasium import Space

from rlpyt.envs import state_data
from rlpyt.envs.state_data import GENERATORS, StateError, Thing, address, base_array, class_name
from rlpyt.envs.state_mujoco import CLASSES, load_mujoco, save_mujoco
from rlpyt.types import StateDict

_LEAVES = (type(None), bool, int, float, str)
_BYTES: StateDict = {"bytes": bytes, "bytearray": bytearray, "complex": complex}
_MUTABLE: StateDict = {kind.__name__: kind for kind in (list, deque, dict, OrderedDict, defaultdict, Counter)}
_CONTAINERS: StateDict = {**_MUTABLE, "tuple": tuple, "set": set, "frozenset": frozenset}
_OBJECTS = {"object", "own", "pair", "mujoco", "function"}
# Stay as they are in the fresh environment, which must have the same. Their text is compared.
_CONSTANTS = (type, ModuleType, np.dtype, np.ufunc, re.Pattern, PurePath, range, slice, logging.Logger)
# Objects of their classes are Python around a number that names something of the process: a library, a pipe.
_MODULES_OF_HANDLES = {"ctypes", "multiprocessing"}
# Attributes of layers that stay as they are: what draws, by its class, and what never changes, by its name.
_LEFT_OUT = {
    "gymnasium.envs.mujoco.mujoco_rendering.MujocoRenderer",
    "pygame.surface.Surface",
    "pygame.time.Clock",
}
_LEFT_OUT_NAMES = {"_cached_spec", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs"}
# Attributes on which the future of an object does not depend, by its class: the frames of a video; and views of the
# data of MuJoCo, buffers that are written before they are read, and what draws.
_OF_PHYSICS = {"_named", "_warnings", "_warnings_before", "_new_warnings", "_contexts", "_contexts_lock"}
_LEFT_OUT_OF = {
    "gymnasium.wrappers.rendering.RecordVideo": {"recorded_frames", "render_history"},
    "dm_control.mujoco.engine.Physics": _OF_PHYSICS,
}
_PLAIN_SIZE = type("_Plain", (), {}).__basicsize__  # of an object with attributes only


def save_graph(roots: Mapping[str, object], layers: Iterable[object] = ()) -> StateDict:
    """Return objects by name, and all that they refer to, as plain data.

    Layers are environment and wrappers; one with a state of its own is asked for it.

    Raises:
        StateError: if something cannot be saved; the message has its place.
    """
    return _Writer(layers).graph(roots)


def load_graph(state: StateDict, fresh: Mapping[str, object], layers: Iterable[object] = ()) -> StateDict:
    """Restore fresh objects of the same classes in place, and return the roots.

    Raises:
        StateError: if something cannot be restored; nothing is changed then.
    """
    writer = _Writer(layers, reads_own=False)
    writer.graph(fresh)
    return _Reader(state, writer).load_all()


class _Writer:
    """Graph of objects that becomes a list of nodes; a reference to a node is a list with its number.

    With `reads_own`, environments with a state of their own, and MuJoCo, are asked for it.
    """

    def __init__(self, layers: Iterable[object], reads_own: bool = True) -> None:
        self.nodes: list[StateDict] = []
        self.held: list[object] = []  # by number: the id of an object that is gone could come again
        self._numbers: dict[int, int] = {}
        self._objects: list[tuple[int, str]] = []  # with their places; their attributes are read after all else
        self._layers, self._reads_own, self._pairs = list(layers), reads_own, list[str]()
        self._memory: dict[int, str] = {}

    def graph(self, roots: Mapping[str, object]) -> StateDict:
        """Return what stands for some objects, and for all that they lead to."""
        try:
            codes = {name: self.save(root, name) for name, root in roots.items()}
            for number, place in self._objects:  # more come while these are read
                self.nodes[number] = self._object_node(self.held[number], place)
        except RecursionError:
            raise StateError("its attributes are nested too deeply") from None
        for layer, node in zip(self.held, self.nodes, strict=True):
            for part in vars(layer).values() if node["kind"] == "own" else ():
                held = None if self._is_layer(part) else self._numbers.get(id(part))
                shared = held is not None and "kept" in self.nodes[held]
                array = self._memory.get(address(base_array(part))) if type(part) is np.ndarray else None
                if shared or array is not None:
                    what = f"{array} is an array" if array else f"a wrapper holds an object ({type(part).__name__})"
                    raise StateError(f"{what} of {type(layer).__name__}, which has its own state")
        return {"roots": codes, "nodes": self.nodes}

    def save(self, value: Thing, place: str) -> Thing:
        if type(value) in _LEAVES or (type(value) is tuple and all(type(item) in _LEAVES for item in value)):
            return value
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.nodes)
            self.held.append(value)
            self.nodes.append({})
            self.nodes[number] = self._data_node(value, place) or self._container_node(value, place) or {}
            if not self.nodes[number]:
                self._objects.append((number, place))
        return [number]

    def _data_node(self, value: Thing, place: str) -> StateDict | None:
        kind = type(value)
        if kind in (np.ndarray, torch.Tensor):
            node = state_data.save_array(value, place, self.save) if kind is np.ndarray else _tensor_node(value, place)
            owns = node["kind"] == "tensor" or value.base is None
            if owns and value.nbytes and self._memory.setdefault(address(value), place) != place:
                other = self._memory[address(value)]
                raise StateError(f"{place} shares its memory with {other}, of which one is a tensor")
            return node
        if kind in GENERATORS:
            return {"kind": "generator", **state_data.save_generator(value, place, self.save)}
        if isinstance(value, np.generic):
            return {**state_data.save_array(np.asarray(value), place), "kind": "scalar"}
        if kind in _BYTES.values():
            array = np.asarray(value) if kind is complex else np.frombuffer(value, np.uint8)
            return {**state_data.save_array(array, place), "kind": kind.__name__}
        if isinstance(value, Enum):
            bits = value.value if isinstance(value, Flag) else None  # several flags together are no member
            return {"kind": "enum", "class": class_name(kind), "name": value.name, "bits": bits}
        return {"kind": "constant", "text": _text(value)} if _is_constant(value) else None

    def _container_node(self, value: Thing, place: str) -> StateDict | None:
        kind = type(value).__name__
        if type(value) is _CONTAINERS.get(kind):
            is_set = isinstance(value, set | frozenset)
            if is_set and list(type(value)(list(value))) != list(value):
                raise StateError(f"{place} is a set whose order cannot be made again")
            if isinstance(value, dict):
                keys = [self._save_key(key, f"a key of {place}") for key in value]
                items = list(zip(keys, [self.save(x, f"{place}[{key!r}]") for key, x in value.items()], strict=True))
            else:
                save = self._save_key if is_set else self.save
                items = [save(item, f"{place}[{i}]") for i, item in enumerate(value)]
            factory = self.save(getattr(value, "default_factory", None), place)
            return {"kind": kind, "items": items, "maxlen": getattr(value, "maxlen", None), "factory": factory}
        if isinstance(value, tuple) and "_fields" in vars(type(value)):
            items = [self.save(item, place) for item in value]
            return {"kind": "named", "class": class_name(type(value)), "items": items}
        if type(value) is partial:
            return {"kind": kind, "items": [self.save(x, place) for x in (value.func, value.args, value.keywords)]}
        if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
            text, owner = _text(value.__func__), self.save(value.__self__, f"{place}.__self__")
            return {"kind": kind, "name": value.__func__.__name__, "function": text, "self": owner}
        return None

    def _save_key(self, value: Thing, place: str) -> Thing:
        if not _is_plain(value):  # it would be asked for its hash before it has its attributes
            raise StateError(f"{place} is an object as a key, or in a set ({type(value).__name__})")
        return self.save(value, place)

    def _object_node(self, value: Thing, place: str) -> StateDict:
        """Return the node of what stays the object that it is in the fresh environment, or is made anew."""
        name = class_name(type(value))
        if isinstance(value, FunctionType):
            free, cells = value.__code__.co_freevars, [cell.cell_contents for cell in value.__closure__ or ()]
            inner = {name: self.save(x, f"{name} in {place}") for name, x in zip(free, cells, strict=True)}
            defaults = [self.save(x, place) for x in (value.__defaults__, value.__kwdefaults__, value.__dict__)]
            return {"kind": "function", "name": _text(value), "cells": inner, "defaults": defaults}
        if name in CLASSES:
            model = self.save(value.model, f"{place}.model") if name.endswith("MjData") else None
            return {"kind": "mujoco", "class": name, "model": model, "state": self._reads_own and save_mujoco(value)}
        node: StateDict = {"kind": "object", "class": name}
        if isinstance(value, Space):
            parts = {key: part for key, part in vars(value).items() if key in ("_np_random", "spaces")}
            return {**node, "space": _text(value), "attributes": self._values(parts, place)}
        own = self._own_state(value, name, place) if self._is_layer(value) else {}
        if own.get("kind") == "own":
            return {**node, **own}
        if not own and (why := _why_unreadable(type(value))):
            if place.startswith(tuple(self._pairs)) and not place.endswith("]"):
                return {"kind": "left out"}  # it is what a state of its own is given for
            raise StateError(f"{place} is a {name}, which {why}")
        attributes = self.attributes(value)
        # All others are made anew: two environments may hold one object, which is a global of their module.
        kept = self._is_layer(value) or hasattr(type(value), "__del__") or len(attributes) < len(vars(value))
        kept = kept or place.startswith(tuple(self._pairs))
        return {**node, "kept": kept, **own, "attributes": self._values(attributes, place)}

    def _own_state(self, value: Thing, name: str, place: str) -> StateDict:
        """Return the state that a layer gives itself; empty if it gives none."""
        if hasattr(type(value), "state_dict"):
            if not hasattr(type(value), "load_state_dict"):
                raise StateError(f"{place} ({name}) has state_dict, but no load_state_dict")
            return {"kind": "own", "state": self._reads_own and value.state_dict()}
        if not (_takes(value, "get_state") and _takes(value, "set_state", None)):
            return {}
        # Such a state often is that of an emulator, without the counters and generators around it.
        self._pairs.append(f"{place}.")
        return {"kind": "pair", "state": self.save(value.get_state(), f"get_state() of {place}")}

    def attributes(self, value: object) -> StateDict:
        """Return the attributes on which the future of an object may depend."""
        is_layer = self._is_layer(value)
        names = set[str]().union(*(_LEFT_OUT_OF.get(class_name(base), ()) for base in type(value).__mro__))
        names |= _LEFT_OUT_NAMES if is_layer else set()
        parts = {key: part for key, part in vars(value).items() if key not in names}
        return {key: part for key, part in parts.items() if not (is_layer and _is_left_out(part))}

    def _is_layer(self, value: object) -> bool:
        return any(value is layer for layer in self._layers)

    def _values(self, values: Mapping[str, object], place: str) -> StateDict:
        return {key: self.save(item, f"{place}.{key}") for key, item in values.items()}


class _Reader:
    """Nodes that become data and objects: first every object is found or made, and at last all get their attributes."""

    def __init__(self, state: StateDict, fresh: _Writer) -> None:
        self._nodes, self._fresh = list[StateDict](state["nodes"]), fresh
        self._roots: StateDict = state["roots"]
        self._constants, self._classes = dict[str, Thing](), dict[str, type]()
        self._free: defaultdict[object, deque[Thing]] = defaultdict(deque)
        for value, node in zip(fresh.held, fresh.nodes, strict=True):
            if node["kind"] in _OBJECTS and node.get("kept", True):
                self._free[_key(node)].append(value)
            if node["kind"] == "constant":
                self._constants[node["text"]] = value
            elif "class" in node and "space" not in node and node["class"] not in self._classes:
                module = type(value).__module__
                beside = vars(sys.modules[module]).values() if module in sys.modules else ()
                kinds = [x for x in beside if isinstance(x, type) and getattr(x, "__module__", None) == module]
                self._classes |= {class_name(kind): kind for kind in (*kinds, type(value))}
        self._place = ""
        self._made = {i: self._found(node) for i, node in enumerate(self._nodes) if node["kind"] in _OBJECTS}

    def load_all(self) -> StateDict:
        """Return the roots, with all that they lead to; nothing is changed before all is known to fit."""
        roots = {name: self.load(code) for name, code in self._roots.items()}
        # New objects go first, as a state of its own may have some, and models of MuJoCo before what they simulate.
        changes: tuple[list[Callable[[], None]], ...] = [], [], [], []
        for one, node in [(x, self._nodes[i]) for i, x in self._made.items() if self._nodes[i]["kind"] in _OBJECTS]:
            if node["kind"] == "mujoco":
                changes[1 + (node["class"] != CLASSES[0])].append(load_mujoco(node["state"], one))
            elif node["kind"] == "own":
                changes[2].append(partial(one.load_state_dict, node["state"]))
            elif node["kind"] == "pair":
                changes[2].append(partial(one.set_state, self.load(node["state"])))
            changes[3 if node.get("kept", True) else 0].extend(self._parts(one, node))
        for change in chain(*changes):
            change()
        return roots

    def _parts(self, one: Thing, node: StateDict) -> Iterator[Callable[[], None]]:
        """Give what sets the attributes of an object."""
        if node["kind"] == "function":
            for cell, code in zip(one.__closure__ or (), node["cells"].values(), strict=True):
                yield partial(setattr, cell, "cell_contents", self.load(code))
            for name, code in zip(("__defaults__", "__kwdefaults__", "__dict__"), node["defaults"], strict=True):
                yield partial(setattr, one, name, self.load(code))
            return
        for key, code in node.get("attributes", {}).items():
            self._place = f"{type(one).__name__}.{key}: "
            if type(code) is not list or self._nodes[code[0]]["kind"] != "left out":
                # Not by setattr: an object may have a method for that.
                yield partial(operator.setitem, vars(one), key, self.load(code))
        if node["kind"] == "object" and "space" not in node:
            for key in set(self._fresh.attributes(one)) - set(node["attributes"]):
                yield partial(operator.delitem, vars(one), key)

    def load(self, code: Thing) -> Thing:
        if type(code) is not list:
            return code
        if code[0] not in self._made:
            node = self._nodes[code[0]]
            self._made[code[0]] = self._container(node, code[0]) if "items" in node else self._data(node, node["kind"])
        return self._made[code[0]]

    def _found(self, node: StateDict) -> Thing:
        """Return an object of the fresh environment that is none yet, or one without attributes."""
        name = node.get("class") or f"function {node['name']}"
        if self._free[_key(node)]:
            return self._free[_key(node)].popleft()
        if node["kind"] == "object" and "space" not in node:
            kind = self._class(name)
            if _why_unreadable(kind) is None and not hasattr(kind, "__del__"):
                return object.__new__(kind)
        self._refuse(name, "an object that a fresh environment has")

    def _class(self, name: str) -> type:
        if name not in self._classes:
            self._refuse(name, "a class that a fresh environment knows")
        return self._classes[name]

    def _refuse(self, got: str, expected: str) -> NoReturn:
        raise StateError(f"loading the state of an environment: {self._place}got {got}, expected {expected}")

    def _data(self, node: StateDict, kind: str) -> Thing:
        if kind == "tensor":
            return torch.as_tensor(node["data"]).clone()
        if kind == "generator":
            return state_data.load_generator(node, self.load)
        if kind == "enum":
            members: Thing = self._class(node["class"])
            if not issubclass(members, Enum):
                self._refuse(node["class"], "an enumeration")
            return members[node["name"]] if node["bits"] is None else members(node["bits"])
        if kind == "constant":
            if node["text"] not in self._constants:
                self._refuse(node["text"], "one that a fresh environment has")
            return self._constants[node["text"]]
        if kind == "method":
            owner = self.load(node["self"])
            for function in (vars(base).get(node["name"]) for base in type(owner).__mro__):
                if isinstance(function, FunctionType) and _text(function) == node["function"]:
                    return MethodType(function, owner)
            self._refuse(node["function"], "a method of its object")
        array = state_data.load_array(node, self.load(node["base"]) if kind == "view" else None)
        return array if kind in ("array", "view") else array[()] if kind == "scalar" else _BYTES[kind](array)

    def _container(self, node: StateDict, number: int) -> Thing:
        kind = node["kind"]
        if kind in _MUTABLE:
            made: Thing = deque(maxlen=node["maxlen"]) if kind == "deque" else _MUTABLE[kind]()
            self._made[number] = made  # before its items, as it may contain itself
            if kind == "defaultdict":
                made.default_factory = self.load(node["factory"])
            if not isinstance(made, dict):
                made.extend(map(self.load, node["items"]))
                return made
            for key, value in node["items"]:
                made[self.load(key)] = self.load(value)
            return made
        items = list(map(self.load, node["items"]))
        if kind == "partial":
            called = _called(items[0])
            if all(type(x) is not partial or _called(x.func) is not called for x in self._fresh.held):
                self._refuse(f"a partial of {_text(items[0])}", "one that a fresh environment has")
            return partial(items[0], *items[1], **items[2])
        return tuple.__new__(self._class(node["class"]), items) if kind == "named" else _CONTAINERS[kind](items)


def _key(node: StateDict) -> object:
    """Return what objects have in common that can take each other's place."""
    return tuple(node.get(part) for part in ("kind", "class", "space", "name"))


def _called(value: Thing) -> Thing:
    """Return the function of a method, of which every access makes another object; all else as it is."""
    return value.__func__ if isinstance(value, MethodType) else value


def _takes(value: Thing, name: str, *arguments: object) -> bool:
    """Return whether an object has a method that can be called so; `set_state` of MuJoCo takes two arguments."""
    try:
        inspect.signature(getattr(type(value), name)).bind(value, *arguments)
    except (AttributeError, TypeError, ValueError):  # a compiled function may have no signature
        return False
    return True


def _why_unreadable(kind: type) -> str | None:
    """Return why objects of a class cannot be read; None if it is written in Python, and has no slots."""
    if any(class_name(base).partition(".")[0] in _MODULES_OF_HANDLES for base in kind.__mro__):
        return "stands for something outside of Python"
    is_plain = kind.__dictoffset__ and kind.__basicsize__ <= _PLAIN_SIZE and not kind.__itemsize__
    has_slots = any(type(x) is MemberDescriptorType for base in kind.__mro__ for x in vars(base).values())
    return None if is_plain and not has_slots else "cannot be read"


def _tensor_node(tensor: torch.Tensor, place: str) -> StateDict:
    if tensor.requires_grad or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise StateError(f"{place} is a tensor that needs a gradient, is sparse, or is on another device than the CPU")
    return {"kind": "tensor", "data": tensor.clone()}


def _is_plain(value: object) -> bool:
    """Return whether a key, or an element of a set, is made of data that stays as it is."""
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, value))
    return isinstance(value, (*_LEAVES, bytes, complex, np.generic, Enum)) or _is_constant(value)


def _is_left_out(value: object) -> bool:
    if isinstance(value, list | tuple | dict):
        parts = list(value.values() if isinstance(value, dict) else value)
        return bool(parts) and all(map(_is_left_out, parts))
    return type(value).__name__ == "EnvSpec" or class_name(type(value)) in _LEFT_OUT


def _is_constant(value: object) -> bool:
    """Return whether a value does not change, so that the fresh environment has to have the same."""
    if isinstance(value, FunctionType):
        return "<locals>" not in value.__qualname__
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, ModuleType)
    return isinstance(value, _CONSTANTS)


def _text(value: Thing) -> str:
    """Return the text by which a constant is recognised; a function without a name of its own has its place."""
    if isinstance(value, type):
        return class_name(value)
    if isinstance(value, FunctionType | BuiltinFunctionType):
        name = f"{value.__module__}.{value.__qualname__}"
        if not isinstance(value, FunctionType) or "<" not in name:
            return name
        columns = [column for _, _, column, _ in value.__code__.co_positions() if column]
        return f"{name}, line {value.__code__.co_firstlineno}, column {min(columns, default=0)}"
    return value.__name__ if isinstance(value, ModuleType) else f"{class_name(type(value))} {value!r:.200}"
