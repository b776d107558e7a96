"""The quick tier of the suite, and the record that it follows."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.tiers import RECORD, means_of, slow_cases

ROOT = Path(__file__).parents[1]


def test_a_function_has_its_first_cases_in_the_quick_tier():
    ids = ["a.py::test_x[1]", "a.py::test_x[2]", "a.py::test_x[3]", "a.py::test_y", "b.py::test_x[1]"]
    assert slow_cases(ids, {"a.py::test_x": 0.25, "a.py::test_y": 0.6}, limit=0.5) == {
        "a.py::test_x[3]",
        "a.py::test_y",
    }
    assert slow_cases(ids, {}, limit=0.5) == set()


def test_only_functions_over_the_limit_are_recorded():
    seconds = {"a.py::test_x[1]": 0.3, "a.py::test_x[2]": 0.5, "a.py::test_y": 0.4, "b.py::test_z[a[0]]": 2.0}
    assert means_of(seconds, limit=0.5) == {"a.py::test_x": 0.4, "b.py::test_z": 2.0}


def test_the_record_names_tests_that_are_there():
    """Where one is not: `make durations`, or take its line out."""
    for name in json.loads(RECORD.read_text()):
        file, *_, function = name.split("::")
        assert re.search(rf"^ *def {function}\(", (ROOT / file).read_text(), re.MULTILINE), name
