"""Pages of the algorithms: every one has a page, which explains its metrics and says its defaults."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from rlpyt import algos
from rlpyt.core import Algorithm
from tests.markdown import ROOT, quoted, tables

FOLDER = ROOT / "docs" / "reference" / "algorithms"
NAMES = {"CategoricalDQN": "c51"}
"""Pages with another name than the class."""
BASES = (algos.RlAlgorithm, algos.PolicyGradientAlgo, algos.OffPolicyAlgo, algos.QpgAlgo)
ALGORITHMS = [
    AlgoCls
    for _, AlgoCls in inspect.getmembers(algos, inspect.isclass)
    if issubclass(AlgoCls, Algorithm) and AlgoCls not in BASES
]
every_algorithm = pytest.mark.parametrize("AlgoCls", ALGORITHMS, ids=lambda AlgoCls: AlgoCls.__name__)


def page_of(AlgoCls: type[Any]) -> Path:
    return FOLDER / f"{NAMES.get(AlgoCls.__name__, AlgoCls.__name__.lower())}.md"


def rows_of(page: Path, *head: str) -> list[list[str]]:
    """Return the rows of all tables of a page whose heads begin with some words."""
    return [row for table in tables(page) if table[0][: len(head)] == list(head) for row in table[1:]]


@every_algorithm
def test_every_algorithm_has_a_page_that_explains_its_metrics(AlgoCls: type[Any]) -> None:
    page = page_of(AlgoCls)
    assert page.exists(), f"{AlgoCls.__name__} has no page: write {page.relative_to(ROOT)}"
    explained = {name for row in rows_of(page, "metric") for name in quoted(row[0])}
    assert [name for name in AlgoCls.opt_info_fields if name not in explained] == []


@every_algorithm
def test_settings_have_the_defaults_that_the_page_says(AlgoCls: type[Any]) -> None:
    rows = rows_of(page_of(AlgoCls), "setting", "default")
    own = [row for row in rows if " of " not in row[0]]  # others are of the agent, say
    said = {name: text for row in own for name, text in zip(quoted(row[0]), said_in(row), strict=True)}
    algo = AlgoCls()
    assert said
    assert {name: text for name, text in said.items() if not is_said(getattr(algo, name), text)} == {}


def said_in(row: list[str]) -> list[str]:
    """Return what the second cell says of each of the names in the first one."""
    cells = [cell.strip("`") for cell in row[1].split(", ")]
    return [cells[0].removesuffix(" each")] * len(quoted(row[0])) if cells[0].endswith(" each") else cells


def is_said(value: object, text: str) -> bool:
    """Return whether a text says a value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(text.replace(",", "")) == value
    if isinstance(value, type):
        return text == f"torch.optim.{value.__name__}"
    if isinstance(value, dict):
        return text == f"dict({', '.join(f'{name}={x!r}' for name, x in value.items())})"
    return text in (str(value), f'"{value}"')
