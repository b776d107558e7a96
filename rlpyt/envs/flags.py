"""Flags that environments return: the end of an episode, and what info says of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlpyt.envs.info import as_array
from rlpyt.envs.several_agents import SEVERAL_AGENTS

_KINDS = "biuf"  # numpy's kinds of numbers: bool, int, unsigned int, float


def as_flag(value: object, name: str) -> bool:
    """Return one flag as a bool.

    Args:
        value: a bool of Python or numpy, the number 0 or 1, or an array or tensor of one such element.
        name: of the flag, for messages.

    Raises:
        TypeError: for everything else. `bool` would take the text "False", a list and a dictionary for True.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, list | tuple | Mapping | str | bytes):
        array = as_array(value)
        if array is not None and array.size == 1 and array.dtype.kind in _KINDS and array.item() in (0, 1):
            return bool(array.item())
    raise TypeError(f"{name}: expected True or False, got {type(value).__name__} {value!r:.100}.{_hint(value, name)}")


def as_flags(value: object, name: str, n: int) -> np.ndarray:
    """Return the flags of a vector environment as bool [n].

    Args:
        value: n flags, each as in `as_flag`.
        name: of the flags, for messages.
        n: number of environments.

    Raises:
        TypeError: if they are no flags.
        ValueError: if they are not n.
    """
    if type(value) is np.ndarray and value.dtype == np.bool_ and value.shape == (n,):
        return value
    array = None if value is None or isinstance(value, Mapping | str | bytes) else as_array(value)
    if array is None or array.dtype.kind not in _KINDS:
        raise TypeError(
            f"{name}: expected an array of {n} bools, got {type(value).__name__} {value!r:.100}.{_hint(value, name)}"
        )
    if array.shape != (n,):
        raise ValueError(f"{name}: expected shape {(n,)}, got {array.shape}.")
    if array.dtype.kind != "b" and not ((array == 0) | (array == 1)).all():
        raise TypeError(f"{name}: expected an array of {n} bools, got the numbers {array}.")
    return array.astype(np.bool_)


def _hint(value: object, name: str) -> str:
    if name == "truncated" and isinstance(value, Mapping):
        return " Is it the info? The five are observation, reward, terminated, truncated, info."
    if isinstance(value, Mapping):
        return f" One value for each of several agents is not supported; {SEVERAL_AGENTS}."
    return ""
