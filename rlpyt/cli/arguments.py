"""Kinds of arguments that several commands take."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from rlpyt.cli.values import PLAIN, Values, pairs_of, text_of, value_of


def _one(metavar: str, read: Callable[[str], object]) -> PrimitiveConstructorSpec[Any]:
    """Return an option of one value, and how its text is read."""
    return PrimitiveConstructorSpec(
        1, metavar, lambda texts: read(texts[0]), lambda x: x is None or isinstance(x, PLAIN), lambda x: [text_of(x)]
    )


_WHOLE = _one("N", partial(value_of, kinds=frozenset([int])))
Steps: TypeAlias = Annotated[float | None, _one("N", partial(value_of, kinds=frozenset([int, float])))]
"""Number, which may be written as 5e4; None where it is not given."""
Whole: TypeAlias = Annotated[int | None, _WHOLE]
"""Whole number; None where it is not given."""
Count: TypeAlias = Annotated[int, _WHOLE]
"""Whole number with a default."""
Text: TypeAlias = Annotated[str | None, _one("TEXT", str)]
"""Text; None where it is not given."""
Pairs: TypeAlias = Annotated[
    Values,
    PrimitiveConstructorSpec("*", "KEY=VALUE ...", pairs_of, lambda x: isinstance(x, dict), lambda x: [text_of(x)]),
    tyro.conf.arg(help_behavior_hint=""),
]
"""Values by name."""
NO_PAIRS: Values = {}
Modules: TypeAlias = Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODULE ...", help_behavior_hint="")]
"""Modules of the user's."""
Names: TypeAlias = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")]
"""Parts by name, with their settings in brackets; see `rlpyt.cli.named`."""
Columns: TypeAlias = Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN ...", help_behavior_hint="")]
"""Columns of the log."""

OF_GRID = re.compile(r"--(vary|slurm)")
OF_RUN = re.compile(r"--(trust|track|hooks|line-columns|([\w.-]+-)?(kwargs|overrides))")
"""Options that take several values, and may be given several times."""


def joined(arguments: Sequence[str], of_several: re.Pattern[str] = OF_RUN) -> list[str]:
    """Return the arguments with all values of an option of several behind one, as the parser keeps the last alone."""
    others: list[str] = []
    lists: dict[str, list[str]] = {}
    place = others
    for argument in arguments:
        name, equals, value = argument.partition("=")
        name = name.replace("_", "-")
        if of_several.fullmatch(name):
            place = lists.setdefault(name, [])
            if equals:
                place.append(value)
                place = others
            continue
        if argument.startswith("-"):
            place = others
        place.append(argument)
    return [*others, *(word for name, values in lists.items() for word in (name, *values))]
