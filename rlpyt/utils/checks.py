"""Checks of the values of settings."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import torch


def share_of(owner: str, name: str, value: int, n: int) -> int:
    """Return a share of a number that n replicas have together.

    Raises:
        ValueError: if it is no multiple of n.
    """
    if value % n:
        raise ValueError(
            f"{owner}: {name} is {value}, given for {n} replicas together; expected a multiple of {n}. Give {n} times "
            "what each is to have."
        )
    return value // n


def whole_number(owner: str, name: str, value: Any, least: int, expected: str | None = None) -> int:
    """Return a setting as an int.

    Args:
        owner: the class that has the setting, first word of the message.
        name: of the setting.
        value: the value given. 3.0 is a whole number; 2.5, NaN and infinity are not.
        least: the smallest value that is allowed.
        expected: text of the message instead of "a whole number from ...".

    Raises:
        TypeError: if the value is not a number; True is not one.
        ValueError: if it is not a whole number, or below the least.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and value == value // 1 and value >= least:
        return int(value)
    text = f"{owner}: {name} is {value!r}; expected {expected or f'a whole number from {least}'}."
    raise ValueError(text) if is_number else TypeError(text)


def described(x: object) -> str:
    """Return in words what a function of a user's has returned, for messages: the shapes of arrays, else the type."""
    if isinstance(x, np.ndarray):
        return f"an array {x.dtype} {list(x.shape)}"
    if isinstance(x, torch.Tensor):
        return f"a tensor {list(x.shape)}"
    if isinstance(x, tuple | list):
        return f"a {type(x).__name__} of {len(x)}: {', '.join(map(described, x))}"
    return "None" if x is None else f"the class {x.__name__}" if isinstance(x, type) else f"a {type(x).__name__}"
