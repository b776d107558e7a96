"""Numbers as users write them: 5e4 is a whole number."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from tyro.constructors import PrimitiveConstructorSpec


def whole_or_float(text: str) -> int | float:
    """Return the number of a text; a whole one is an int, also where it is written as 5e4.

    Raises:
        ValueError: if it is no number.
    """
    try:
        return int(text)
    except ValueError:
        number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _number(arguments: list[str]) -> int | float:
    return whole_or_float(arguments[0])


Steps: TypeAlias = Annotated[
    float,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="N",
        instance_from_str=_number,
        is_instance=lambda x: isinstance(x, int | float),
        str_from_instance=lambda x: [f"{x:g}"],
    ),
]
"""Number of steps, which may be written as 5e4."""
