"""The guard of the hot paths: it tells a slow path from a fast one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the benchmark as a module, with a path that takes four times as long as its plain loop."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("hot_paths", BENCHMARKS / "hot_paths.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    now = [0.0]  # a clock of its own, as those of a busy machine tell how busy it is

    def take(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    module.PATHS = {"slow": lambda: module.Pair(partial(take, 4e-3), partial(take, 1e-3))}
    module.ROUNDS, module.SECONDS = 3, 0.01
    yield module
    for name in ("collector", "replay"):  # modules of benchmarks, whose names are those of anything
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("expected", "exit_code"), [(1.5, 1), (4.0, 0), (8.0, 0)])
def test_fails_for_a_path_that_became_slower(
    guard: Any, expected: float, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    guard.EXPECTED = {"slow": expected}
    assert guard.main([]) == exit_code
    assert ("in each of 3 tries: slow" in capsys.readouterr().out) == bool(exit_code)
