"""Initial content of params.json: the settings of the user and the logger, and the origin of the run."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import platform
import subprocess
import sys
import types
from collections.abc import Mapping, Set
from importlib import metadata
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
import torch

MAX_ARRAY_SIZE = 1000
"""Larger arrays are described by shape and dtype instead of written out."""


RESERVED = ("name", "run_ID", "logger", "runner", "plan", "algo", "compute", "spaces", "track", "log_params")
"""Names in params.json that the run writes itself; a user's settings of these names are kept under log_params."""


@runtime_checkable
class _NamedTuple(Protocol):
    def _asdict(self) -> dict[str, object]: ...


_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_WRITTEN_AS_TEXT = (PathLike, torch.device, torch.dtype, np.dtype)


def to_json(value: object) -> Any:
    """Return `value` as JSON values, for people to read; never raises.

    Classes and functions become `module.name`, enum members their name, dataclasses and named tuples dictionaries,
    arrays and tensors lists, numbers that are not finite text, and anything else its repr. A record that can be read
    back is made by `rlpyt.runners.record_of`.

    Args:
        value: anything.

    Returns:
        None, bool, int, float or str, or lists and dictionaries of them with str keys.
    """
    return _convert(value, frozenset())


def _convert(value: object, parents: frozenset[int]) -> Any:
    if id(value) in parents or len(parents) > 50:
        return f"<{type(value).__name__} inside itself>"
    try:
        return _convert_container(value, parents | {id(value)})
    except Exception:
        # The __repr__, property or iterator of another library may raise anything. A log must not end a run.
        return f"<{type(value).__name__}>"


def _convert_container(value: object, parents: frozenset[int]) -> Any:
    if isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return _convert(_array_content(value), parents)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return {name: _convert(getattr(value, name), parents) for name in fields}
    if isinstance(value, tuple) and isinstance(value, _NamedTuple):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {_key(key): _convert(item, parents) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted((_convert(item, parents) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [_convert(item, parents) for item in value]
    return _convert_leaf(value, parents)


def _convert_leaf(value: object, parents: frozenset[int]) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, _NAMED):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, functools.partial):
        parts = {"function": value.func, "arguments": value.args, "keywords": value.keywords}
        return _convert(parts, parents)
    return str(value) if isinstance(value, _WRITTEN_AS_TEXT) else repr(value)


def _array_content(value: np.ndarray | np.generic | torch.Tensor) -> Any:
    shape = tuple(value.shape)
    if math.prod(shape) > MAX_ARRAY_SIZE:
        return f"<{type(value).__name__} of shape {shape}, {value.dtype}>"
    content = value.tolist()
    # tolist gives numpy back for types that Python has no word for, such as long double.
    return repr(value) if isinstance(content, np.ndarray | np.generic) else content


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(to_json(key))


def run_params(
    log_params: Mapping[str, object] | None, name: str, run_ID: int | str, logger: Mapping[str, object]
) -> dict[str, Any]:
    """Return the first content of params.json as JSON values.

    The user's `log_params` stand at the top level, beside `name`, `run_ID` and `logger`, the arguments of
    `logger_context`; and `versions`, `git_commit` (None outside a repository) and `argv`, unless there are settings of
    these names. Settings with a name of `RESERVED` are also kept under `log_params`.
    """
    origin = {"versions": versions(), "git_commit": _git_commit(), "argv": list(sys.argv)}
    given = {_key(key): to_json(value) for key, value in (log_params or {}).items()}
    own: dict[str, object] = {"name": name, "run_ID": run_ID, "logger": logger}
    kept = {key: given[key] for key in RESERVED if key in given and given[key] != own.get(key)}
    params: dict[str, Any] = to_json({**origin, **given, **own, **({"log_params": kept} if kept else {})})
    return params


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the libraries that the numbers of a run depend on."""
    try:
        rlpyt_version = metadata.version("rlpyt")
    except metadata.PackageNotFoundError:
        rlpyt_version = None
    return {
        "rlpyt": rlpyt_version,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        "python": platform.python_version(),
    }


def _git_commit() -> str | None:
    command = ["git", "rev-parse", "HEAD"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=5, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
