"""Parts of an environment that are not saved, as the fresh environment has them: classes, functions, what draws."""

from __future__ import annotations

import hashlib
import logging
import re
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec

from rlpyt.envs.state_data import Thing, class_name

# Stay as they are in the fresh environment, which must have the same. Their text is compared.
_CONSTANTS = (type, ModuleType, np.dtype, np.ufunc, Enum, re.Pattern, PurePath, range, slice)
# Stay as they are, whatever they are: the future of an environment does not depend on them.
_LEFT_OUT = (EnvSpec, logging.Logger)
_LEFT_OUT_CLASSES = (
    "gymnasium.envs.mujoco.mujoco_rendering.MujocoRenderer",
    "pygame.surface.Surface",
    "pygame.time.Clock",
)
_LEFT_OUT_NAMES = {"_cached_spec", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs"}
# Views of the data of MuJoCo, buffers that are written before they are read, and what draws.
_LEFT_OUT_OF_PHYSICS = {"_named", "_warnings", "_warnings_before", "_new_warnings", "_contexts", "_contexts_lock"}


def is_left_out(value: object) -> bool:
    """Return whether an object stays as it is in the fresh environment, whatever it is."""
    kind = type(value)
    return isinstance(value, _LEFT_OUT) or kind.__name__ == "EnvSpec" or class_name(kind) in _LEFT_OUT_CLASSES


def left_out(kind: type) -> set[str]:
    """Return the names of attributes on which the future of an object does not depend."""
    is_physics = any(class_name(base) == "dm_control.mujoco.engine.Physics" for base in kind.__mro__)
    return _LEFT_OUT_NAMES | (_LEFT_OUT_OF_PHYSICS if is_physics else set())


def has_spaces(value: object) -> bool:
    """Return whether a value is a space, or contains one."""
    return isinstance(value, Space) or (
        isinstance(value, dict | tuple | list)
        and any(isinstance(x, Space) for x in (value.values() if isinstance(value, dict) else value))
    )


def is_constant(value: object) -> bool:
    """Return whether a value does not change, so that the fresh environment has to have the same."""
    if isinstance(value, FunctionType):
        return "<locals>" not in value.__qualname__
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, ModuleType)
    return isinstance(value, _CONSTANTS)


def text(value: Thing) -> str:
    """Return the text by which a constant or a function is recognised."""
    if isinstance(value, FunctionType) and "<" in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__} {_digest(value.__code__)}"
    if isinstance(value, type):
        return class_name(value)
    if isinstance(value, FunctionType | BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, ModuleType):
        return value.__name__
    if not isinstance(value, (*_CONSTANTS, Space)):
        return class_name(type(value))
    return f"{class_name(type(value))} {value!r:.200}"


def _digest(code: CodeType) -> str:
    """Return what tells apart functions of one name, such as the lambdas of a class, wherever they stand."""
    constants = [_digest(x) if isinstance(x, CodeType) else _sorted(x) for x in code.co_consts]
    parts = (code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _sorted(constant: object) -> object:
    """Return a constant of a function; that of `x in {"a", "b"}` has another order in every process."""
    return sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
