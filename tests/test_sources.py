"""What no test of behaviour would see in the sources: names that some allowed numpy has not, options that mislead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlpyt

ROOT = Path(rlpyt.__file__).parent.parent
SOURCES = sorted(p for folder in ("rlpyt", "examples", "benchmarks") for p in (ROOT / folder).rglob("*.py"))

SINCE_NUMPY_2 = """
    acos acosh asin asinh astype atan atan2 atanh bitwise_count bitwise_invert bitwise_left_shift bitwise_right_shift
    bool concat cumulative_prod cumulative_sum isdtype long matrix_transpose matvec permute_dims pow strings trapezoid
    ulong unique_all unique_counts unique_inverse unique_values unstack vecdot vecmat
"""
"""setup.py allows numpy 1.26, which the tests are not run with; `np.bool` is an error there."""


def nodes(source: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(source))


def names_since_numpy_2(source: str) -> list[str]:
    attributes = [node for node in nodes(source) if isinstance(node, ast.Attribute)]
    return [
        f"line {node.lineno}: np.{node.attr}"
        for node in attributes
        if isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy") and node.attr in SINCE_NUMPY_2.split()
    ]


def options_that_are_always_true(source: str) -> list[str]:
    """`bool("False")` is True: of an option of this type every value but the empty one is."""
    return [
        f"line {node.value.lineno}: type=bool"
        for node in nodes(source)
        if isinstance(node, ast.keyword) and node.arg == "type"
        if isinstance(node.value, ast.Name) and node.value.id == "bool"
    ]


@pytest.mark.parametrize("find", [names_since_numpy_2, options_that_are_always_true])
def test_no_source_has(find):
    assert len(SOURCES) > 100
    found = {str(path): find(path.read_text()) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_they_are_found():
    assert names_since_numpy_2("import numpy as np\nx = np.zeros(3, np.bool)\ny = np.bool_") == ["line 2: np.bool"]
    assert options_that_are_always_true("parser.add_argument('--x', type=bool)") == ["line 1: type=bool"]
