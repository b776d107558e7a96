"""Checks of settings, which say what was expected."""

from __future__ import annotations

from numbers import Real
from typing import Any


def whole_number(owner: str, name: str, value: Any, least: int, expected: str | None = None) -> int:
    """Return a setting as an int.

    Args:
        owner: what has the setting, first word of an error.
        name: of the setting.
        value: what was given; 3.0 is a whole number, 2.5, NaN and infinity are none.
        least: the smallest that is allowed.
        expected: what to say instead of "a whole number from ...".

    Raises:
        TypeError: if it is no number (True is none).
        ValueError: if it is none of the expected numbers.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and value == value // 1 and value >= least:
        return int(value)
    text = f"{owner}: {name} is {value!r}; expected {expected or f'a whole number from {least}'}."
    raise ValueError(text) if is_number else TypeError(text)
