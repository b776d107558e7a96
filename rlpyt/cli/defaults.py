"""Defaults of the settings of a class, read from the source: importing the class would take seconds."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class _Class(NamedTuple):
    bases: list[str]
    defaults: dict[str, object]


UNKNOWN = object()
"""Default that is no plain value, such as a class."""


def defaults_of(path: str) -> dict[str, object]:
    """Return the defaults of a recorded class by name; empty for a class that is not of rlpyt.

    Args:
        path: such as "rlpyt.algos:PPO".
    """
    module, _, name = path.partition(":")
    if not module.startswith("rlpyt."):
        return {}
    return _defaults(module.split(".")[1], name)


def _defaults(room: str, name: str) -> dict[str, object]:
    """Return the defaults of a class, those of its bases first; bases of other rooms have no settings."""
    found = _classes(room).get(name)
    if found is None:
        return {}
    inherited = [_defaults(room, base) for base in reversed(found.bases) if base != name]
    return {key: value for defaults in [*inherited, found.defaults] for key, value in defaults.items()}


@cache
def _classes(room: str) -> dict[str, _Class]:
    folder = ROOT / room
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))]
    nodes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: _Class([_name(base) for base in node.bases], _fields(node)) for node in nodes}


def _fields(node: ast.ClassDef) -> dict[str, object]:
    pairs = [(x.target, x.value) for x in node.body if isinstance(x, ast.AnnAssign) and x.value is not None]
    return {target.id: _value(value) for target, value in pairs if isinstance(target, ast.Name)}


def _value(node: ast.expr) -> object:
    """Return what an expression of a default stands for."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "field":
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if "default" not in given:
            return {} if ast.unparse(given.get("default_factory", node)) == "dict" else UNKNOWN
        node = given["default"]
    if ast.unparse(node) in ("inf", "math.inf"):
        return float("inf")
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def _name(base: ast.expr) -> str:
    """Return the name of a base, without its module and its parameters."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]
