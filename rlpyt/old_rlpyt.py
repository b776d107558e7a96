"""The ways into `rlpyt.compat`, which has what rlpyt 0.1 had: it is loaded when something of that kind is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

PAGE = "docs/start/from_rlpyt_0_1.md"
"""Where users of rlpyt 0.1 find what has changed."""

_ON_OLD_PATHS = (
    "agents.base agents.dqn agents.qpg algos.dqn algos.qpg distributions.categorical distributions.epsilon_greedy "
    "distributions.gaussian envs.atari envs.gym models.dueling models.pg models.qpg models.utils replays.sum_tree "
    "runners.async_rl runners.base runners.sync_rl samplers.buffer samplers.serial spaces"
)
ON_OLD_PATHS = frozenset(f"rlpyt.{name}" for name in _ON_OLD_PATHS.split())
"""Modules of today, and no packages, in which rlpyt 0.1 had other names or modules."""

C = TypeVar("C", bound=type)


def compat(module: str) -> ModuleType:
    """Return a module of `rlpyt.compat`."""
    return importlib.import_module(f"rlpyt.compat.{module}")


class OldPaths:
    """Finder of modules that Python asks first: it answers where a module below `rlpyt` is one of rlpyt 0.1.

    A module of today that an old path leads through gets an empty `__path__`. Then Python asks for what lies below it,
    and for the module `module.Name` where `from module import Name` finds no such name. No other module gets one, as
    `python -m` would take it for a package.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return what Python needs to load a module; None leaves it to the next finder."""
        if not name.startswith("rlpyt."):
            return None
        others = [finder for finder in sys.meta_path if finder is not OldPaths]
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path, target))), None)
        if spec is None or (spec.loader is None and not _has_python(spec.submodule_search_locations)):
            return compat("names").find_spec(name)
        if name in ON_OLD_PATHS and spec.submodule_search_locations is None:
            spec.submodule_search_locations = []
        return spec


def _has_python(folders: Iterable[str] | None) -> bool:
    """Return whether folders without `__init__.py` hold more than the `__pycache__` that a checkout of 0.1 leaves."""
    return any(True for folder in folders or () for _ in Path(folder).rglob("*.py"))


def tells_old_attributes(cls: C) -> C:
    """Decorate a class whose objects, asked for an attribute of rlpyt 0.1 that they lack, say what to do."""

    def tell(part: Any, name: str) -> Any:
        try:
            return super(cls, part).__getattr__(name)  # type: ignore[arg-type]  # of torch.nn.Module beside it, for one
        except AttributeError:
            text = "" if name.startswith("__") else compat("methods").old_attribute(type(part), name)
        if text:
            raise AttributeError(text) from None
        return object.__getattribute__(part, name)

    cls.__getattr__ = tell  # type: ignore[attr-defined]
    return cls


def check_class(cls: type) -> None:
    """Refuse a class of a user's with a method that nothing would call, or could not call.

    Raises:
        TypeError: if there is one.
    """
    if cls.__module__.split(".")[0] != "rlpyt":
        compat("methods").check_subclass(cls)
