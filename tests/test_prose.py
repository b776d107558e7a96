"""The prose of pages and docstrings: wrapped lines, docstrings that open with a noun.

The list of docstrings below only shrinks: delete a name when its docstring is mended, and add none.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import rlpyt
from tests.markdown import PAGES, ROOT, split

LIBRARY = Path(rlpyt.__file__).parent

COLUMNS = 100
OPENINGS = ("What", "Where", "How", "Which", "When", "Who", "Whether")
NOT_YET_A_NOUN = """
    rlpyt.algos.dqn.ActedRows rlpyt.algos.dqn.ErrorBatch
    rlpyt.algos.off_policy.Outputs rlpyt.algos.policy_gradient rlpyt.algos.qpg rlpyt.types.AgentInputs
    rlpyt.types.AgentInputsRnn rlpyt.types.AgentStep rlpyt.types.AgentSamples rlpyt.types.EnvSamples
"""
"""Modules and classes whose docstring opens with one of `OPENINGS`."""

every_page = pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda p: p.name
)


def too_wide(text: str) -> list[str]:
    """Return the lines of prose over 100 columns; the target of a link takes none, as it cannot be broken."""
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    return [line for line in lines if len(re.sub(r"\]\([^)]*\)", "]", line)) > COLUMNS]


def openings_that_are_no_noun(module: str, source: str) -> list[str]:
    """Return the name of a module, and those of its classes, whose docstring opens with one of `OPENINGS`."""
    named = {module: (tree := ast.parse(source))} | {
        f"{module}.{node.name}": node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }
    return [name for name, node in named.items() if (ast.get_docstring(node) or " ").split(" ")[0] in OPENINGS]


# ---- pages ----


@every_page
def test_prose_is_wrapped(page: Path) -> None:
    assert too_wide(split(page)[0]) == []


def test_what_counts_as_prose() -> None:
    assert too_wide("x" * 101) == ["x" * 101]
    assert too_wide("|" + "x" * 101) == too_wide("[a](" + "x" * 101 + ")") == []


# ---- docstrings ----


def test_docstrings_open_with_a_noun() -> None:
    found = [
        name
        for path in sorted(LIBRARY.rglob("*.py"))
        for name in openings_that_are_no_noun(
            ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts), path.read_text()
        )
    ]
    assert set(found) <= set(NOT_YET_A_NOUN.split()), (
        "begin with the noun of what it is: Ring buffer of ..., Settings of ..."
    )


def test_openings_are_found() -> None:
    source = '"""Rows of a batch."""\nclass A:\n    """What it is."""\nclass B:\n    """Buffer that is shared."""\n'
    assert openings_that_are_no_noun("m", source) == ["m.A"]
    assert openings_that_are_no_noun("m", '"""Where it is."""') == ["m"]
