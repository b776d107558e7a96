"""Imports inside `rlpyt/samplers`: only from the lines above in the table of docs/reference/architecture.md."""

from __future__ import annotations

import ast
from pathlib import Path

import rlpyt.samplers
from tests.markdown import ROOT, quoted, tables

MODULES = {path.stem: path for path in Path(rlpyt.samplers.__file__).parent.glob("*.py") if path.stem != "__init__"}


def floors() -> dict[str, int]:
    [table] = [
        t for t in tables(ROOT / "docs" / "reference" / "architecture.md") if t[0] == ["modules", "what they have"]
    ]
    return {module: floor for floor, (modules, _) in enumerate(table[1:]) for module in quoted(modules)}


def imported(source: str) -> set[str]:
    """Return the modules of the package that a source imports from."""
    names = {node.module or "" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    return {name.removeprefix("rlpyt.samplers.") for name in names if name.startswith("rlpyt.samplers.")}


def test_the_table_has_every_module():
    assert set(floors()) == set(MODULES)


def test_imports_go_to_the_lines_above():
    floor_of = floors()
    wrong = [
        f"{name} imports {other}"
        for name, path in MODULES.items()
        for other in imported(path.read_text())
        if floor_of[other] >= floor_of[name]
    ]
    assert not wrong, wrong
    assert imported("from rlpyt.samplers.buffer import Rows\nfrom rlpyt.core import Agent") == {"buffer"}
