"""Cross-products of options: the suite runs rows that have all pairs of values, `make nightly` the whole product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def pairwise(
    *axes: Sequence[Any], strength: int = 2, possible: Callable[..., bool] = lambda *values: True
) -> list[tuple[Any, ...]]:
    """Return rows of a product that together have every value of an axis with every value of every other axis.

    Each row is the one with the most pairs that no row before it has; among these, one of values that few rows have
    so far, and the first such one. So the choice is always the same.

    Args:
        axes: values of each option.
        strength: 1 to have every value at least once, 2 for all pairs, 3 for all triples.
        possible: whether there is such a row, given a value of each axis.
    """
    rows = [row for row in product(*(range(len(axis)) for axis in axes)) if possible(*at(axes, row))]
    places = list(combinations(range(len(axes)), strength))
    pairs = {row: {tuple((k, row[k]) for k in place) for place in places} for row in rows}
    missing = set().union(*pairs.values())
    chosen: list[tuple[int, ...]] = []
    used: Counter[tuple[int, int]] = Counter()
    while missing:
        chosen.append(max(rows, key=lambda row: (len(pairs[row] & missing), -sum(used[x] for x in enumerate(row)))))
        missing -= pairs[chosen[-1]]
        used.update(enumerate(chosen[-1]))
    return [at(axes, row) for row in sorted(chosen)]


def crossed(
    *axes: Sequence[Any], strength: int = 2, possible: Callable[..., bool] = lambda *values: True
) -> list[ParameterSet]:
    """Return the whole product as cases for `parametrize`: those that `pairwise` does not choose are nightly.

    Args:
        axes: values of each option.
        strength: as of `pairwise`.
        possible: as of `pairwise`.
    """
    indices = [range(len(axis)) for axis in axes]
    suite = set(pairwise(*indices, strength=strength, possible=lambda *row: possible(*at(axes, row))))
    rows = [row for row in product(*indices) if possible(*at(axes, row))]
    return [pytest.param(*at(axes, row), marks=() if row in suite else pytest.mark.nightly) for row in rows]


def others_nightly(cases: Iterable[Any], suite: Collection[Any]) -> list[Any]:
    """Return cases for `parametrize`, of which the suite has some and `make nightly` the others too.

    Args:
        cases: all of them; a tuple has a value of each argument.
        suite: those of the suite.
    """
    marks = pytest.mark.nightly
    return [
        case if case in suite else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks)
        for case in cases
    ]


def at(axes: Sequence[Sequence[Any]], row: Sequence[int]) -> tuple[Any, ...]:
    """Return the values at some places of the axes."""
    return tuple(axis[k] for axis, k in zip(axes, row, strict=True))
