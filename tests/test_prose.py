"""The prose of pages and docstrings: wrapped lines, short sentences, docstrings that open with a noun.

The list of docstrings below only shrinks: delete a name when its docstring is mended, and add none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlpyt
from tests.markdown import PAGES, ROOT, split

LIBRARY = Path(rlpyt.__file__).parent

COLUMNS = 100
WORDS = 25
"""Words of a sentence at most."""
OPENINGS = ("What", "Where", "How", "Which", "When", "Who", "Whether")
NOT_YET_A_NOUN = """
    rlpyt.agents.model_kwargs rlpyt.algos.dqn.ActedRows rlpyt.algos.dqn.ErrorBatch
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


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a page, each as one line; no tables, no headings, no indented code."""
    lines: list[str] = []
    in_list = False
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        is_item = re.match(r"([-*]|\d+\.) ", stripped) is not None
        is_prose = bool(stripped) and not stripped.startswith(("|", "#"))
        is_prose = is_prose and (in_list or bool(lines) or not line.startswith("    "))
        if lines and (is_item or not is_prose):
            yield " ".join(lines)
            lines = []
        if is_prose:
            lines.append(stripped)
            in_list = is_item or (in_list and line.startswith(" "))


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph, a code span or a list of code spans as one word."""
    plain = re.sub(r"`[^`]+`", "code", paragraph)
    plain = re.sub(r"code(, (and |or )?code)+", "code", plain)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    return re.split(r"(?<=[.!?])\)? +(?=[A-Z(\[*]|code)", plain)


def long_sentences(text: str, limit: int) -> list[str]:
    found = [sentence for paragraph in paragraphs(text) for sentence in sentences(paragraph)]
    return [s for s in found if sum(re.search(r"\w", word) is not None for word in s.split()) > limit]


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


@every_page
def test_sentences_are_short(page: Path) -> None:
    assert long_sentences(split(page)[0], WORDS) == []


def test_what_counts_as_prose() -> None:
    code_and_table = "    code = 1\n\n| a | b |\n|---|---|"
    text = f"# A head\n\nOne `a b c`, `d`\nand two. Three (four).\n\n{code_and_table}\n- five\n  six\n- seven\n"
    assert list(paragraphs(text)) == ["One `a b c`, `d` and two. Three (four).", "- five six", "- seven"]
    assert long_sentences(text, 2) == ["One code and two."]
    assert long_sentences("[a b](c) d e. (F g h i.) J", 3) == ["a b d e.", "(F g h i."]
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
