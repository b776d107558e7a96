"""The tiers of the suite, the record that the quick one follows, and the pairs that stand for a product."""

from __future__ import annotations

import json
import re
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.pairs import crossed, pairwise
from tests.tiers import RECORD, slow_cases, slow_means

ROOT = Path(__file__).parents[1]


def test_the_quick_tier_has_the_first_case_of_functions_that_are_not_recorded_as_slow():
    seconds = {"a.py::test_x[1]": 0.3, "a.py::test_x[2]": 0.5, "a.py::test_y": 0.1, "b.py::test_z[a[0]]": 0.2}
    means = slow_means({**seconds, "b.py::test_z[1]": 0.3})
    assert means == {"a.py::test_x": 0.4}
    ids = [*seconds, "b.py::test_z[1]", "b.py::test_x[1]"]
    assert set(ids) - slow_cases(ids, means) == {"a.py::test_y", "b.py::test_z[a[0]]", "b.py::test_x[1]"}


def test_the_record_names_tests_that_are_there():
    """Where one is not: `make durations`, or take its line out."""
    for name in json.loads(RECORD.read_text()):
        file, *_, function = name.split("::")
        assert re.search(rf"^ *def {function}\(", (ROOT / file).read_text(), re.MULTILINE), name


def test_make_looks_for_the_tests_of_ray_where_they_are():
    [folders] = re.findall(r"^RAY_TESTS := .* --numprocesses 0 (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    marked = re.compile("^pytestmark = pytest.mark.ray", re.MULTILINE)
    files = [path for path in ROOT.glob("tests/**/test_*.py") if marked.search(path.read_text())]
    assert {f"tests/{path.parent.name}" for path in files} == set(folders.split())


AXES = (["serial", "cpu", "gpu"], [1, 2, 4], ["step", "batch"], [False, True])


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_pairs_of_all_axes_are_in_fewer_rows_than_the_product(strength):
    rows = pairwise(*AXES, strength=strength)
    for axes in combinations(range(len(AXES)), strength):
        assert {tuple(row[k] for k in axes) for row in rows} == set(product(*(AXES[k] for k in axes)))
    assert len(rows) <= {1: 3, 2: 11, 3: 22}[strength] < 36
    assert rows == pairwise(*AXES, strength=strength)


def test_the_product_is_whole_and_what_the_pairs_do_not_need_is_nightly():
    def possible(sampler, n_workers, *options):
        return sampler != "serial" or n_workers == 1

    cases = crossed(*AXES, possible=possible)
    assert [case.values for case in cases] == [row for row in product(*AXES) if possible(*row)]
    suite = [case.values for case in cases if not case.marks]
    assert suite == pairwise(*AXES, possible=possible)
    assert all([mark.name for mark in case.marks] == ["nightly"] for case in cases if case.marks)
