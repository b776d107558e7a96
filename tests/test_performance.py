"""The comparison with peers goes on where it was cut off, and its tables name the fastest peer."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def performance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return the benchmark as a module that writes its files elsewhere."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("performance")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "performance/results.json")
    monkeypatch.setattr(module, "UNFINISHED", tmp_path / "bench/unfinished.json")
    return module


class Measurements:
    """Stands for `attempt`: counts its calls, gives their number, and is interrupted at one of them."""

    def __init__(self, interrupted_at: int | None = None, failing: str | None = None) -> None:
        self.interrupted_at, self.failing = interrupted_at, failing
        self.calls: list[str] = []

    def __call__(self, part: Any, name: str, seconds: float) -> float | None:
        if len(self.calls) == self.interrupted_at:
            raise KeyboardInterrupt
        self.calls.append(part.library)
        return None if part.library == self.failing else float(len(self.calls))


def test_a_run_goes_on_after_its_last_figure(performance: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (["sampling_cartpole"], ["rlpyt", "bare", "gymnasium"], 2, 8.0)
    monkeypatch.setattr(performance, "attempt", Measurements(interrupted_at=4, failing="bare"))
    with pytest.raises(KeyboardInterrupt):
        performance.measure_all(*arguments)
    rest = Measurements()
    monkeypatch.setattr(performance, "attempt", rest)
    performance.measure_all(*arguments)
    assert rest.calls == ["bare", "gymnasium"]
    figures = json.loads(performance.RESULTS.read_text())["sampling_cartpole"]
    assert figures == dict(rlpyt=[1.0, 4.0], bare=[1.0], gymnasium=[3.0, 2.0])
    assert not performance.UNFINISHED.exists()


def test_a_run_with_other_settings_does_not_go_on(performance: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(performance, "attempt", Measurements(interrupted_at=1))
    with pytest.raises(KeyboardInterrupt):
        performance.measure_all(["sampling_cartpole"], None, 2, 8.0)
    with pytest.raises(SystemExit, match=r"another value of seconds .*'seconds': 8.0.*--fresh"):
        performance.measure_all(["sampling_cartpole"], None, 2, 3.0)


def test_figures_of_another_machine_are_dropped(performance: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    performance.RESULTS.parent.mkdir()
    performance.RESULTS.write_text(json.dumps(dict(machine=dict(cpu="another"), start=dict(rllib=[9.0]))))
    monkeypatch.setattr(performance, "attempt", Measurements())
    performance.measure_all(["sampling_cartpole"], ["rlpyt"], 1, 8.0)
    results = json.loads(performance.RESULTS.read_text())
    assert results.pop("machine")["cpu"] == performance.machine()["cpu"]
    assert results == dict(sampling_cartpole=dict(rlpyt=[1.0]))


def test_the_table_names_the_fastest_peer_of_each_row(performance: Any) -> None:
    results = dict(
        fast=dict(rlpyt=[80.0], rlpyt_compiled=[90.0], bare=[100.0], stable_baselines3=[40.0], sbx=[60.0]),
        start=dict(rlpyt=[2.0], stable_baselines3=[3.0], sbx=[8.0]),
    )
    labels = dict(stable_baselines3="SB3", sbx="SBX")
    rows = performance.summary(results, dict(fast="Fast: work", start="Start: seconds"), labels)
    assert rows[2:] == [
        "| Fast | 80 | 90 | 0.80 | 2.00 | SBX 60 | 1.33 | 1.50 |",
        "| Start, seconds | 2 |  |  | 1.50 | SB3 3 | 1.50 |  |",
    ]
    results["fast"]["rlpyt_bfloat16"] = [30.0]
    rows = performance.summary(results, dict(fast="Fast: work"), labels)
    assert rows[0].endswith("| compiled | in bfloat16 |")
    assert rows[2] == "| Fast | 80 | 90 | 0.80 | 2.00 | SBX 60 | 1.33 | 1.50 | 0.50 |"


def test_a_ratio_is_that_of_the_rounds_that_both_have(performance: Any) -> None:
    figures = dict(rlpyt=[10.0, 40.0, 90.0], stable_baselines3=[5.0], bare=[20.0, 20.0, 30.0])
    results = dict(work=figures)
    (row,) = performance.summary(results, dict(work="Work"), dict(stable_baselines3="SB3"))[2:]
    assert row == "| Work | 40 |  | 2.00 | 2.00 | SB3 5 | 2.00 |  |"


def test_every_peer_has_a_label_and_a_lock_file(performance: Any) -> None:
    scripts = {path.stem.removeprefix("run_") for path in performance.PEERS.glob("run_*.py")} - {"rlpyt", "bare"}
    assert scripts == set(performance.PEER_LABELS)
    locks = {path.stem for path in performance.PEERS.glob("*.lock")}
    assert locks == scripts - {"gymnasium", "ale_py"}
    [line] = [line for line in (BENCHMARKS.parent / "Makefile").read_text().splitlines() if line.startswith("PEERS :=")]
    assert set(line.split()[2:]) == locks
