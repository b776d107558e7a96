"""Reader of the state of an environment: plain data becomes the attributes of a fresh environment again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import NoReturn, cast

import numpy as np

from rlpyt.envs.state_data import (
    MAPPINGS,
    SEQUENCES,
    StateError,
    Thing,
    base_array,
    class_name,
    make_array,
    make_generator,
    make_scalar,
    make_view,
)
from rlpyt.envs.state_kept import left_out, text
from rlpyt.envs.state_mujoco import load_mujoco
from rlpyt.envs.state_pair import load_pair
from rlpyt.types import StateDict


class Reader:
    """Nodes that become data and objects; nothing is changed before `commits` are called.

    Args:
        nodes: of `rlpyt.envs.state`.
    """

    def __init__(self, nodes: list[StateDict]) -> None:
        self._nodes = nodes
        self._made: dict[int, Thing] = {}
        self._taken: dict[int, str] = {}
        self.commits: list[Callable[[], None]] = []

    def load(self, code: Thing, fresh: Thing, place: str) -> Thing:
        """Return what was saved as this code, in the objects of the fresh environment."""
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
        make = SEQUENCES[node["kind"]]
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
        made = self._made[number] = MAPPINGS[node["kind"]]()
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
        """Bind a function of its owner's class, as the fresh environment may have another method there."""
        owner = self.load(node["self"], fresh.__self__ if isinstance(fresh, MethodType) else None, f"{place}.__self__")
        # That of the fresh environment may be of no class; compiled functions have only their name to tell them apart.
        is_same = isinstance(fresh, MethodType) and fresh.__func__.__name__ == node["name"]
        functions: list[Thing] = [fresh.__func__] if is_same else []
        functions += [vars(kind).get(node["name"]) for kind in type(owner).__mro__]
        for function in functions:
            if text(function) == node["function"]:
                return MethodType(function, owner)
        _refuse(place, f"the method {node['function']}", text(fresh))

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

    def _make_enum(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        self._check_class(node, fresh, place)
        return type(fresh)[node["name"]] if node["bits"] is None else type(fresh)(node["bits"])

    def _make_pair(self, node: StateDict, fresh: Thing, place: str, number: int) -> Thing:
        self._check_class(node, fresh, place)
        self._take(fresh, place, number)
        load_pair(self, node, fresh, place)
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
        node: StateDict = self._nodes[code[0]] if type(code) is list else {}
        if node.get("kind") == "enum":  # any member of the class leads to the others
            return bool(node["class"] == class_name(type(key)))
        return node == {"kind": "constant", "text": text(key)}

    def _check_class(self, node: StateDict, fresh: Thing, place: str) -> None:
        if fresh is None:
            raise StateError(f"{place} is a {node['class']}, which an environment does not have that has just begun")
        if class_name(type(fresh)) != node["class"]:
            _refuse(place, f"a {node['class']}", f"a {class_name(type(fresh))}")

    def _take(self, fresh: Thing, place: str, number: int) -> None:
        """Note an object that is restored: two saved objects cannot become one."""
        if id(fresh) in self._taken:
            _refuse(place, "an object of its own", f"the same object as {self._taken[id(fresh)]}")
        self._taken[id(fresh)] = place
        self._made[number] = fresh


_MAKERS = (
    dict.fromkeys(SEQUENCES, "sequence")
    | dict.fromkeys(MAPPINGS, "mapping")
    | dict.fromkeys(("bytes", "bytearray", "complex"), "bytes")
    | {"left out": "left_out"}
)
_FIXED = {"env", "observation_space", "action_space", "_observation_space", "_action_space"}


def _refuse(place: str, came: str, expected: str) -> NoReturn:
    """Refuse what is of another environment, a layer or space; all else may change in one, which is lost then."""
    error = ValueError if set(place.split(".")) <= _FIXED else StateError
    raise error(f"loading the state of an environment: {place}: got {came}, expected {expected}.")


def _set_attributes(fresh: Thing, new: StateDict) -> None:
    attributes = cast(dict[str, object], vars(fresh))
    attributes.clear()
    attributes.update(new)
