"""Record of a space as JSON values, from which `rlpyt.runners.runner_from_params` makes the space again.

{"space": "Box", "settings": {"low": -1.0, "high": {"float": "inf"}, "shape": [3], "dtype": "float32"}}

Bounds that differ from entry to entry are {"array": [...], "dtype": "float32", "shape": [3]}.
"""

from __future__ import annotations

import math

import numpy as np
from gymnasium import spaces

from rlpyt.logging.context import current_logger
from rlpyt.logging.params import MAX_ARRAY_SIZE
from rlpyt.spaces import EnvSpaces, FrameStack, Space, subspaces

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""JSON value."""

SPACES = (
    *(spaces.Box, FrameStack, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Dict, spaces.Tuple),
)
"""Spaces that are recorded; a subclass that is not here may mean something else."""


def record_spaces(env_spaces: EnvSpaces) -> None:
    """Write the spaces of a run's environments to params.json, so that its agent can be made again without them."""
    observation, action = map(record_of_space, env_spaces)
    current_logger().record_params({"spaces": {"observation": observation, "action": action}})


def record_of_space(space: Space) -> dict[str, Json]:
    """Return the record of a space; {"unrecorded": what it is} where it has none."""
    settings = _settings(space) if type(space) in SPACES else None
    if settings is None:
        return {"unrecorded": f"an object of {type(space).__module__}.{type(space).__qualname__}"}
    return {"space": type(space).__name__, "settings": settings}


def unrecorded_in(record: Json) -> str | None:
    """Return what a space, or a part of it, was that has no record; None if all have one."""
    if isinstance(record, dict) and "unrecorded" in record:
        return str(record["unrecorded"])
    parts = list(record.values()) if isinstance(record, dict) else record if isinstance(record, list) else []
    return next((found for part in parts if (found := unrecorded_in(part)) is not None), None)


def _settings(space: Space) -> dict[str, Json] | None:
    """Return the arguments of a space's class; None if an array is too large."""
    match space:
        case spaces.Box():
            return _box(space)
        case spaces.Discrete():
            dtype: dict[str, Json] = {} if space.dtype == np.int64 else {"dtype": str(space.dtype)}
            return {"n": int(space.n), "start": int(space.start), **dtype}
        case spaces.MultiDiscrete():
            arrays = {"nvec": _array(space.nvec), "start": _array(space.start)}
            return None if None in arrays.values() else {**arrays, "dtype": str(space.dtype)}
        case spaces.MultiBinary():
            return {"n": [int(n) for n in space.shape] if np.ndim(space.n) else int(np.asarray(space.n))}
        case _:
            return {"spaces": [[key, record_of_space(part)] for key, part in subspaces(space)]}


def _box(space: spaces.Box) -> dict[str, Json] | None:
    low, high = _bound(space.low), _bound(space.high)
    if low is None or high is None:
        return None
    frames: dict[str, Json] = {"n_frames": space.n_frames} if isinstance(space, FrameStack) else {}
    return {"low": low, "high": high, "shape": list(space.shape), "dtype": str(space.dtype), **frames}


def _bound(values: np.ndarray) -> Json:
    """Return one number where all are the same, as of images."""
    # An empty array cannot be made of a number and a shape.
    return _bound_number(values.flat[0].item()) if values.size and (values == values.flat[0]).all() else _array(values)


def _array(values: np.ndarray) -> Json:
    if values.size > MAX_ARRAY_SIZE:
        return None
    flat = [_number(x) for x in values.ravel().tolist()]
    return {"array": flat, "dtype": str(values.dtype), "shape": list(values.shape)}


def _bound_number(x: float | np.longdouble) -> Json:
    """Return a bound as gymnasium takes it; it refuses a bool, though it takes an array of them."""
    return _number(int(x) if isinstance(x, bool) else x)


def _number(x: float | np.longdouble) -> Json:
    x = float(x) if isinstance(x, np.longdouble) else x  # Python has no number of long doubles
    return x if math.isfinite(x) else {"float": str(x)}
