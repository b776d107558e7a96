"""Record of a part: its class and its settings as JSON values, from which `runner_from_params` makes the part again.

None, bool, int, str, a finite float    the value itself
list, dict with text keys               the same with recorded values
schedule, dataclass                     {"class": "rlpyt.functional:Linear", "settings": {"start": 0.001, ...}}
part                                    {"class": "rlpyt.algos:PPO", "settings": {...}, "at_default": ["discount", ...]}
class or function                       {"name": "torch.optim:Adam"}
functools.partial                       {"partial": {"function": ..., "args": [...], "keywords": {...}}}
tuple                                   {"tuple": [...]}
nan, inf, -inf                          {"float": "nan"}
dict with other keys                    {"dict": [[key, value], ...]}
array or tensor                         {"array": [...], "dtype": "float32"}, {"tensor": [...], "dtype": "float32"}
space of gymnasium                      {"space": "Box", "settings": {"low": ..., ...}}
torch.dtype, torch.device, Path         {"dtype": "float32"}, {"device": "cpu"}, {"path": "..."}
anything else                           {"unrecorded": "what it was"}
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.logging import Logger
from rlpyt.logging.params import MAX_ARRAY_SIZE
from rlpyt.logging.space_record import Json, record_of_space, unrecorded_in
from rlpyt.settings import Settings, all_settings

NUMBERS = ("float", "int", "uint", "bool")
"""Beginnings of the types of array that are recorded."""
TAGS = frozenset(
    ("class", "name", "partial", "tuple", "float", "dict", "array", "tensor", "space", "dtype", "device", "path")
    + ("unrecorded",)
)
"""Keys that mark a recorded value; a dictionary that has one of them is recorded as pairs."""
_MAX_DEPTH = 15
_PLAIN = (bool, int, float, str, type(None))
_WEIGHTS = object()
GIVEN_WEIGHTS = "given"
"""What stands for weights that a run starts from in the settings of all its starts."""
_NOWHERE = "which stands in no module by that name"
_NAMED = (type, FunctionType, BuiltinFunctionType, MethodType)


def record_of(part: Settings) -> tuple[dict[str, Json], list[str]]:
    """Return the record of a part, and of every setting that it lacks the place and the reason; never raises.

    Its class is recorded by its name, its settings as `all_settings(part)` returns them.
    """
    recorder = _Recorder()
    return recorder.part(part), recorder.missing


def write_record(part: Settings, logger: Logger) -> None:
    """Write the settings of a runner and of its parts into params.json, and log which of them cannot be written."""
    record, missing = record_of(part)
    logger.record_params({"runner": record})
    if missing and logger.directory is not None:
        logger.log(
            "params.json cannot hold these settings, so runner_from_params must be given them: " + "; ".join(missing)
        )


def settings_of(part: Settings) -> dict[str, Json]:
    """Return the plain settings of a part and of the parts in it, by their places, such as `algo.learning_rate`.

    Classes and functions are left out: those of a script have other names in other processes.
    """
    return plain_settings(record_of(part)[0])


def plain_settings(record: Json) -> dict[str, Json]:
    """Return what `settings_of` returns, of the record of a part."""
    return dict(_leaves(record, ""))


def at_default(part: Settings) -> set[str]:
    """Return the places of the settings of a part, and of the parts in it, that have their default."""
    parts = {name: x for name, x in all_settings(part).items() if isinstance(x, Settings)}
    return {f"{name}.{place}" for name, x in parts.items() for place in at_default(x)} | set(_own_at_default(part))


def _own_at_default(part: object) -> list[str]:
    """Return the names of the settings of a part that have their default: the same object, value or empty container."""
    if not is_dataclass(part):
        return []
    given, own = all_settings(part), [f for f in fields(part) if f.init]
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in own}
    return [name for name, default in defaults.items() if name in given and _is_default(given[name], default)]


def _is_default(value: object, default: object) -> bool:
    if isinstance(value, dict | list | tuple):
        return value is default or (not value and not default)
    return value is default or (isinstance(value, _PLAIN) and value == default)


def settings_of_all_starts(runner: Settings, n_replicas: int) -> dict[str, object]:
    """Return the settings of a runner that are the same in all starts of a run, by their places.

    Of its parts, and of the classes and functions among their settings, they have the names; of an agent's weights,
    that they are given.
    """
    given, names = all_settings(runner), dict[str, object]()
    for place in ("algo", "agent", "sampler"):
        part = given[place]
        settings = all_settings(part) if isinstance(part, Settings) else {}
        names[place] = type(part).__name__
        names |= {f"{place}.{key}": value.__name__ for key, value in settings.items() if isinstance(value, _NAMED)}
        if place == "agent":  # without them one explores until the first update
            names |= {f"agent.{key}": GIVEN_WEIGHTS for key in _given_weights(settings)}
    return {**names, **settings_of(runner), "replicas": n_replicas}


def _given_weights(settings: Mapping[str, object]) -> list[str]:
    """Return the names of the settings that are weights or a state of an optimiser to start from."""
    return [x for x, value in settings.items() if re.fullmatch("initial_.*_state_dict", x) and value is not None]


def _leaves(value: Json, place: str) -> Iterator[tuple[str, Json]]:
    if not isinstance(value, dict | list):
        yield place, value
        return
    items = enumerate(value) if isinstance(value, list) else value.items()
    if isinstance(value, dict) and not TAGS.isdisjoint(value):
        if "settings" not in value and not {"name", "unrecorded"}.isdisjoint(value):
            return
        settings = value.get("settings")
        items = settings.items() if isinstance(settings, dict) else items
    for key, item in items:
        yield from _leaves(item, f"{place}.{key}".removeprefix("."))


def path_of(value: Any) -> str | None:
    """Return "module:qualified.name" of a class or function; None where that path leads to something else.

    The module is the shortest package that exports the value, so that a record outlives moves between its modules.
    """
    parts = str(value.__module__).split(".")
    modules = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
    paths = [(module, name) for name in (value.__qualname__, value.__name__) for module in modules]
    found = (f"{m}:{name}" for m, name in paths if m in sys.modules and value == found_in(sys.modules[m], name))
    return next(found, None)


def found_in(module: ModuleType, name: str) -> Any:
    """Return what a module has under a qualified name; None if there is nothing. Runs no code of the module."""
    first, *others = name.split(".")
    found = vars(module).get(first)
    for part in others:
        found = inspect.getattr_static(found, part, None) if isinstance(found, type) else None
    return found


class _Recorder:
    """Recorder of values; `missing` has a line for each that cannot be made again."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self._places: list[str] = []
        self._parents: list[int] = []

    def part(self, part: Settings) -> dict[str, Json]:
        """Record the class of a part, its settings and the names of those at their default; weights are left out."""
        given = all_settings(part)
        recorded = self._settings(part, {**given, **dict.fromkeys(_given_weights(given), _WEIGHTS)})
        return {**recorded, "at_default": list[Json](_own_at_default(part))}

    def value(self, value: object) -> Json:
        """Record any value."""
        if id(value) in self._parents or len(self._parents) > _MAX_DEPTH:
            return self._lacks(f"a {type(value).__name__} inside itself")
        self._parents.append(id(value))
        try:
            return self._value(value)
        except Exception as error:  # of a property, an iterator or a comparison of the user's: no reason to end a run
            return self._lacks(f"{_article(type(value))}, which raised {type(error).__name__}")
        finally:
            self._parents.pop()

    def _value(self, value: Any) -> Json:
        if value is None or type(value) in (bool, int, str):
            return value  # type: ignore[no-any-return]
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": str(float(value))}
        if value is _WEIGHTS:
            return self._lacks("weights")
        for kinds, record in self._kinds().items():
            if isinstance(value, kinds):
                return record(value)
        if is_dataclass(value):
            return self._settings(value, {f.name: getattr(value, f.name) for f in fields(value) if f.init})
        return self._lacks(_article(type(value)))

    def _kinds(self) -> dict[Any, Callable[[Any], Json]]:
        return {
            Settings: self.part,
            np.generic: lambda x: self.value(x.item()),
            np.ndarray | torch.Tensor: self._array,
            spaces.Space: self._space,
            Mapping: self._mapping,
            list: lambda x: [self.value(item) for item in x],
            tuple: self._tuple,
            partial: self._partial,
            _NAMED: self._named,
            torch.dtype: lambda x: {"dtype": str(x).removeprefix("torch.")},
            torch.device: lambda x: {"device": str(x)},
            PurePath: lambda x: {"path": str(x)},
        }

    def _settings(self, part: object, settings: Mapping[str, object]) -> dict[str, Json]:
        recorded = self._items(settings)
        return {"class": self._path(type(part)), "settings": recorded}

    def _items(self, items: Mapping[str, object]) -> dict[str, Json]:
        recorded: dict[str, Json] = {}
        for name, value in items.items():
            self._places.append(name)
            recorded[name] = self.value(value)
            self._places.pop()
        return recorded

    def _mapping(self, value: Mapping[Any, object]) -> Json:
        if all(type(key) is str for key in value) and not TAGS.intersection(value):
            return self._items(value)
        return {"dict": [[self.value(key), self.value(item)] for key, item in value.items()]}

    def _tuple(self, value: tuple[object, ...]) -> Json:
        if type(value) is not tuple:
            return self._lacks(_article(type(value)))
        return {"tuple": [self.value(item) for item in value]}

    def _partial(self, value: partial[Any]) -> Json:
        keywords = dict(value.keywords)
        content = {"function": value.func, "args": list(value.args), "keywords": keywords}
        return {"partial": {name: self.value(item) for name, item in content.items()}}

    def _array(self, value: np.ndarray | torch.Tensor) -> Json:
        tag, dtype = ("tensor" if isinstance(value, torch.Tensor) else "array"), str(value.dtype)
        dtype = dtype.removeprefix("torch.")
        if math.prod(value.shape) > MAX_ARRAY_SIZE or not dtype.startswith(NUMBERS):
            return self._lacks(f"{tag} of shape {tuple(value.shape)} and type {dtype}")
        return {tag: self.value(value.tolist()), "dtype": dtype, "shape": list(value.shape)}

    def _space(self, value: spaces.Space[Any]) -> Json:
        record = record_of_space(value)
        what = unrecorded_in(record)
        return record if what is None else self._lacks(what)

    def _named(self, value: Any) -> Json:
        path = path_of(value)
        return {"name": path} if path else self._lacks(f"{value.__module__}.{value.__qualname__}, {_NOWHERE}")

    def _path(self, cls: type) -> Json:
        return path_of(cls) or self._lacks(f"class {cls.__qualname__}, {_NOWHERE}")

    def _lacks(self, what: str) -> dict[str, Json]:
        self.missing.append(f"{'.'.join(self._places) or 'the runner'} ({what})")
        return {"unrecorded": what}


def _article(cls: type) -> str:
    return f"an object of {cls.__module__}.{cls.__qualname__}"
