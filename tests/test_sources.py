"""Rules of the sources that no test of behaviour would see, such as names that some allowed numpy has not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import rlpyt

ROOT = Path(rlpyt.__file__).parent.parent
FOLDERS = ("rlpyt", "examples", "experiments", "benchmarks")
SOURCES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
SLACK = 25
"""Lines that the budget may stand above the count before it has to be lowered."""

SINCE_NUMPY_2 = """
    acos acosh asin asinh astype atan atan2 atanh bitwise_count bitwise_invert bitwise_left_shift bitwise_right_shift
    bool concat cumulative_prod cumulative_sum isdtype long matrix_transpose matvec permute_dims pow strings trapezoid
    ulong unique_all unique_counts unique_inverse unique_values unstack vecdot vecmat
"""
"""setup.py allows numpy 1.26, which the tests are not run with; `np.bool` is an error there."""


MISTAKES = {
    "a name that numpy has since version 2": rf"\b(?:np|numpy)\.(?:{'|'.join(SINCE_NUMPY_2.split())})\b",
    "an option that is true whatever it is given, as bool('False') is": r"\btype=bool\b",
}


def mistakes(source: str) -> list[str]:
    return [what for what, pattern in MISTAKES.items() if re.search(pattern, source)]


def test_no_source_has_a_mistake_that_no_test_meets():
    assert len(SOURCES) > 100
    assert {str(path): found for path in SOURCES if (found := mistakes(path.read_text()))} == {}
    assert mistakes("x = np.zeros(3, np.bool_)") == []
    for source, what in zip(("x = np.zeros(3, np.bool)", "add_argument('--x', type=bool)"), MISTAKES, strict=True):
        assert mistakes(source) == [what]


# ---- the budget of Any ----


def lines_with_any(folder: Path) -> int:
    """Return the number of lines with the word Any, those in comments and docstrings too."""
    return sum(
        bool(re.search(r"\bAny\b", line)) for path in folder.rglob("*.py") for line in path.read_text().splitlines()
    )


def test_the_budget_of_any_is_kept_and_falls():
    count, budget = lines_with_any(ROOT / "rlpyt"), SETTINGS["tool"]["rlpyt"]["any_budget"]
    assert count <= budget, f"{count} lines have the word Any. Name the type, or say object or a Protocol."
    assert budget - count <= SLACK, f"only {count} lines have the word Any: lower any_budget in pyproject.toml"


# ---- files that say the same thing twice ----


def test_the_citation_has_the_version_of_the_package():
    assert f"\nversion: {rlpyt.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_wheel_has_every_file_of_the_library():
    others = [path for path in (ROOT / "rlpyt").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    names = [str(path.relative_to(ROOT / "rlpyt")) for path in others]
    assert "py.typed" in names
    assert [name for name in names if f'"{name}"' not in (ROOT / "setup.py").read_text()] == []
