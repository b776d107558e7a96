"""Defaults of the settings of a class, read from the source: importing the class would take seconds."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNKNOWN = object()
"""Default that is no plain value, such as a class."""


def defaults_of(path: str) -> dict[str, object]:
    """Return the defaults of a recorded class such as "rlpyt.algos:PPO"; empty for one that is not of rlpyt."""
    module, _, name = path.partition(":")
    return _defaults(module.split(".")[1], name) if module.startswith("rlpyt.") else {}


def _defaults(room: str, name: str) -> dict[str, object]:
    """Return the defaults of a class, those of its bases first; bases of other rooms have no settings."""
    found, defaults = _class(room, name), dict[str, object]()
    for base in reversed(found.bases) if found else ():
        base_name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        defaults |= _defaults(room, base_name) if base_name != name else {}
    for x in found.body if found else ():
        if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name) and x.value is not None:
            defaults[x.target.id] = _value(x.value)
    return defaults


@cache
def _class(room: str, name: str) -> ast.ClassDef | None:
    """Return the definition of a class; a file that has none of its name is not parsed."""
    for path in sorted((ROOT / room).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body if f"\nclass {name}" in text else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
    return None


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
