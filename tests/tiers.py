"""Tiers of the suite: what a plain pytest and `make test` run, the quick tier within it, and the nightly one beside it.

A case marked `nightly` is left out, unless the expression of `-m` speaks of it: `make nightly-tests`.

The quick tier is what `make check` runs, by the durations that `make durations` wrote down. A test function has 0.1 s
of it: as many of its first cases as fit, none if one case takes longer. So every grid is entered, and what is left out
is marked `slow`. `durations.json` has the functions that take longer with all their cases: the mean seconds of one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.json")
LIMIT = 0.1
"""Seconds of a test function in the quick tier."""


def function_of(node_id: str) -> str:
    """Return the id of a case without its parameters."""
    return node_id.split("[")[0]


def slow_cases(node_ids: Sequence[str], means: Mapping[str, float], limit: float = LIMIT) -> set[str]:
    """Return the cases that the quick tier leaves out.

    Args:
        node_ids: all cases, in the order of their collection.
        means: seconds of one case by function; functions that are not here fit.
        limit: seconds that a function may take.
    """
    before: Counter[str] = Counter()
    slow = set()
    for node_id in node_ids:
        function = function_of(node_id)
        before[function] += 1
        if before[function] * means.get(function, 0.0) > limit:
            slow.add(node_id)
    return slow


def means_of(seconds: Mapping[str, float], limit: float = LIMIT) -> dict[str, float]:
    """Return the mean seconds of one case, of the functions that take longer than the limit with all their cases.

    Args:
        seconds: of every case.
        limit: seconds that a function may take.
    """
    total: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    for node_id, duration in seconds.items():
        total[function_of(node_id)] += duration  # type: ignore[assignment]
        cases[function_of(node_id)] += 1
    return {name: round(total[name] / cases[name], 3) for name in sorted(total) if total[name] > limit}


class Recorder:
    """Plugin that adds up the seconds of every case, set-up included, and writes the record at the end."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        means = means_of(self.seconds)
        RECORD.write_text(json.dumps(means, indent=0) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write {RECORD.name}, which tests/tiers.py reads")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Recorder())


def leave_nightly_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the cases marked `nightly` out of a list, unless the user chooses by this mark."""
    if "nightly" in config.getoption("markexpr"):
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_nightly_out(config, items)
    slow = slow_cases([item.nodeid for item in items], json.loads(RECORD.read_text()))
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
