"""Imports inside `rlpyt/samplers`: only from the lines above in the table of docs/reference/architecture.md."""

from __future__ import annotations

from tests.markdown import ROOT, quoted, tables
from tests.shape import room


def test_imports_go_to_the_lines_above():
    pages = tables(ROOT / "docs" / "reference" / "architecture.md")
    [table] = [t for t in pages if t[0] == ["modules", "what they have"]]
    floor_of = {f"rlpyt.samplers.{name}": i for i, (names, _) in enumerate(table[1:]) for name in quoted(names)}
    imports = room("samplers")
    assert floor_of.keys() == imports.keys()
    wrong = [(name, x) for name, others in imports.items() for x in others if floor_of[x] >= floor_of[name]]
    assert not wrong
    assert "rlpyt.samplers.buffer" in imports["rlpyt.samplers.parts"]
