"""The shape of the library: limits on how much a class, a file and a room is, which may only fall.

Each limit is today's figure. The aim beside it is that of the design: no class that is many things, no long chains of
bases, and nothing that an editor cannot follow. A figure above its limit fails, and so does one that has fallen below
it: lower the limit then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from rlpyt.core import Agent
from tests import shape


class Limit(NamedTuple):
    """Largest figure that is allowed, and the one that is aimed at."""

    what: str
    measure: Callable[[], int]
    limit: int
    aim: int


LIMITS = [
    Limit("most methods of a class", lambda: max(len(shape.methods(cls)) for cls in shape.classes()), 25, 25),
    Limit("methods of core.Agent", lambda: len(shape.methods(Agent)), 16, 16),
    Limit("longest chain of bases", lambda: max(map(shape.depth, shape.classes())), 4, 4),
    Limit("circles of files", lambda: len(shape.circles(shape.imported())), 0, 0),
    Limit("inner floors of any room", lambda: max(shape.floors(shape.room(r)) for r in shape.rooms()), 8, 8),
    Limit("requests that are told apart by texts", lambda: len(shape.places(shape.tagged_requests)), 0, 0),
    Limit("metaclasses, and classes that name one", lambda: len(shape.places(shape.is_metaclass)), 0, 0),
    Limit("reads of source, bytecode or frames", lambda: len(shape.places(shape.reads_code)), 0, 0),
    Limit("objects whose __dict__ is replaced", lambda: len(shape.places(shape.replaces_dict)), 0, 0),
    Limit("questions whether a method was overridden", lambda: len(shape.places(shape.probes_override)), 0, 0),
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.what)
def test_a_figure_of_the_shape_only_falls(limit: Limit) -> None:
    figure = limit.measure()
    assert figure <= limit.limit, f"{limit.what}: {figure}; the limit is {limit.limit}, and the aim {limit.aim}"
    assert figure == limit.limit, f"{limit.what} fell to {figure}: lower the limit of {limit.limit} in this file"


# ---- the measures ----


def test_circles_and_floors() -> None:
    graph = {"a": ["b"], "b": ["c", "d"], "c": ["b"], "d": [], "e": ["a", "outside"]}
    assert shape.circles(graph) == [{"b", "c"}]
    assert shape.floors(graph) == 4


@pytest.mark.parametrize(
    ("measure", "source", "n"),
    [
        (
            shape.tagged_requests,
            'match x:\n case ("act", y):\n  pass\n case ["stop"]:\n  pass\n case (1, y):\n  pass',
            2,
        ),
        (shape.is_metaclass, "class A(type):\n pass\nclass B(metaclass=A):\n pass\nclass C(B):\n pass", 2),
        (shape.reads_code, "import ast\ninspect.getsource(f)\nsys._getframe()\nf.code", 3),
        (shape.replaces_dict, "x.__dict__ = y\nx.__dict__.update(y)\nvars(x).clear()\nx.y.update(z)\nvars(x)[1]", 3),
        (shape.probes_override, "type(self).f is Base.f\ncls.f is not Base.f\nself.f is None\nself.f is self.g", 2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_places_are_found(measure, source: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import ast

    monkeypatch.setattr(shape, "sources", lambda: {"m": ast.parse(source)})
    assert len(shape.places(measure)) == n
