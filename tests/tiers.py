"""Tiers of the suite: what a plain pytest and `make test` run, the quick tier within it, and the nightly one beside it.

A case marked `nightly` is left out, unless the expression of `-m` speaks of it: `make nightly-tests`.

The quick tier is what `make check` runs: the first case of every test function but those that `make durations` wrote
into `durations.json`, with the mean seconds of a case. What is left out is marked `slow`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pytest

RECORD = Path(__file__).with_name("durations.json")
LIMIT = 0.3
"""Seconds that a case may take in the quick tier."""


def function_of(node_id: str) -> str:
    """Return the id of a case without its parameters."""
    return node_id.split("[")[0]


def slow_cases(node_ids: Sequence[str], slow_functions: Container[str]) -> set[str]:
    """Return those of all cases, in the order of their collection, that the quick tier leaves out."""
    first = {function_of(node_id): node_id for node_id in reversed(node_ids)}
    quick = {node_id for function, node_id in first.items() if function not in slow_functions}
    return set(node_ids) - quick


def slow_means(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the mean seconds of a case of the functions in which it is above the limit, from those of every case."""
    cases: dict[str, list[float]] = {}
    for node_id, duration in seconds.items():
        cases.setdefault(function_of(node_id), []).append(duration)
    means = {name: round(fmean(durations), 2) for name, durations in sorted(cases.items())}
    return {name: mean for name, mean in means.items() if mean > LIMIT}


class Recorder:
    """Plugin that adds up the seconds of every case, set-up included, and writes the record at the end."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        RECORD.write_text(json.dumps(slow_means(self.seconds), indent=0) + "\n")


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
