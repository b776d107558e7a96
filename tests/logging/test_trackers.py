"""Sinks of experiment trackers: settings, rows, outcome, and one run of the tracker after a resume."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlpyt.logging import MlflowSink, TrackioSink, WandbSink, logger_context
from rlpyt.logging.sinks import Row
from rlpyt.logging.tracker_sink import NamesApart, TrackerSink, flat, within
from tests.logging.test_logger import log_row


def state_at(step: int) -> dict[str, Any]:
    """Return the state of a logger after a row at every tenth step."""
    return {"n_rows": step // 10, "step": step, "keys": []}


def log_rows(
    tmp_path: Path, sink: Any, steps: tuple[int, ...], resume: bool = False, rewind: int = 0, **more: int
) -> None:
    """Log rows as a run does, which goes on from a row where it is resumed."""
    with logger_context(tmp_path, 0, sinks=[sink], resume=resume) as logger:
        if rewind:
            logger.load_state_dict(state_at(rewind))
        logger.record_params({"algo": {"learning_rate": 0.5}, **more})
        for step in steps:
            log_row(logger, step, {"Diagnostics/CumSteps": step, "x": step / 10, "Diagnostics/CumTime (s)": 1.0})


class Tracker(TrackerSink):
    """Tracker in memory."""

    kind = "memory"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def open(self, directory: Path, known: str | None) -> str:
        self.calls.append(("open", known))
        return known or "made"

    def log_settings(self, params: Mapping[str, object]) -> None:
        self.calls.append(("settings", params["algo"]))

    def log(self, row: Row, step: int) -> None:
        self.calls.append(step)

    def end(self, outcome: str) -> None:
        self.calls.append(outcome)


def test_a_tracker_goes_on_with_its_run_and_leaves_out_rows_that_come_again(tmp_path):
    first, second, third = Tracker(), Tracker(), Tracker()
    with pytest.raises(TypeError):
        log_rows(tmp_path, first, (10, 20, 30, None))  # type: ignore[arg-type]
    assert first.calls == [("open", None), ("settings", {"learning_rate": 0.5}), 10, 20, 30, "failed"]
    log_rows(tmp_path, second, (20, 30, 40), resume=True, rewind=10)
    assert second.calls == [("open", "made"), ("settings", {"learning_rate": 0.5}), 40, "finished"]
    assert json.loads((tmp_path / "run_0" / "sinks.json").read_text()) == {"memory": {"id": "made", "last_step": 40}}
    with logger_context(tmp_path, 0, sinks=[third], overwrite=True):
        pass
    assert third.calls == [("open", None), "finished"], "the record of another run is removed"


class WithoutSigns(Tracker):
    """Tracker whose names have no signs."""

    def name_of(self, name: str) -> str:
        return re.sub(r"[+-]", "", name)

    def log(self, row: Row, step: int) -> None:
        names = self.names.of(row)
        self.calls += [(names[name], x) for name, x in row.items()]


def test_columns_of_one_name_keep_their_numbers_after_a_resume(tmp_path):
    for start, rows in enumerate((({"x+": 1}, {"x": 2, "x+": 1}), ({"x": 2, "x+": 1},))):
        sink = WithoutSigns()
        with logger_context(tmp_path, 0, sinks=[sink], resume=True) as logger:
            logger.record_params({"algo": None})
            for i, row in enumerate(rows):
                log_row(logger, 10 * start + i, row)
        assert {call for call in sink.calls if call[0] in ("x", "x_2")} == {("x", 1), ("x_2", 2)}


def test_a_row_does_not_wait_for_settings_that_could_not_be_logged(tmp_path):
    class Late(Tracker):
        def log_settings(self, params: Mapping[str, object]) -> None:
            if 20 not in self.calls:
                raise RuntimeError("a new kind of error")
            super().log_settings(params)

    sink = Late()
    log_rows(tmp_path, sink, (10, 20, 30))
    assert sink.calls == [("open", None), 10, 20, ("settings", {"learning_rate": 0.5}), 30, "finished"]


def test_names_that_lose_their_signs_are_told_apart_by_numbers():
    names = NamesApart(lambda name: re.sub(r"[+-]", "", name), longest=8)
    assert names.of(["a+", "a-", "a"]) == {"a": "a", "a+": "a_2", "a-": "a_3"}
    assert names.of(["a-", "+a"]) == {"a-": "a_3", "+a": "a_4"}
    assert names.of(["long_name_1", "long_name_2"]) == {"long_name_1": "long_nam", "long_name_2": "lon_2"}


def test_rows_of_a_script_that_sets_no_step_are_all_logged(tmp_path):
    sink = Tracker()
    with logger_context(tmp_path, 0, sinks=[sink]) as logger:
        logger.record_params({"algo": None})
        for x in range(3):
            log_row(logger, None, x=x)
    assert sink.calls == [("open", None), ("settings", None), 0, 0, 0, "finished"]


def test_the_outcome_is_that_of_the_run(tmp_path):
    sink = Tracker()
    with pytest.raises(SystemExit), logger_context(tmp_path, 0, sinks=[sink]):
        raise SystemExit(85)
    assert sink.calls[-1] == "preempted"


def test_a_tracker_that_does_not_begin_is_dropped_and_named(tmp_path, capsys):
    class Lost(Tracker):
        def open(self, directory: Path, known: str | None) -> str:
            raise ConnectionError("no network")

    sink = Lost()
    log_rows(tmp_path, sink, (10, 20))
    assert sink.calls == []
    assert capsys.readouterr().out.count("the sink Lost raised") == 1


def test_a_last_call_is_bounded():
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"the upload has taken more than 0\.05 seconds"):
        within(0.05, lambda: time.sleep(5), "the upload")
    assert time.monotonic() - start < 3
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 / 0, "the upload")
    assert flat({"a": {"b": 1, "c": {}}, "d": [2]}) == {"a.b": 1, "d": [2]}


@pytest.mark.parametrize(("Sink", "package"), [(WandbSink, "wandb"), (MlflowSink, "mlflow"), (TrackioSink, "trackio")])
def test_a_missing_package_is_refused_with_its_extra(Sink, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{Sink.__name__}: .*pip install rlpyt\[{package}\]"):
        Sink("mine")


@pytest.mark.nightly
def test_mlflow_has_settings_of_any_name_all_rows_and_the_outcome(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # without SQL
    store = (tmp_path / "store").as_uri()
    odd = {"reward": {"x>0": 1, "x<0": -1}, "/usr/data": 3, "../up": 4, "slash/": 5, "": 6, "/": 7}
    odd |= {"k" * 400 + "a": 9, "k" * 400 + "b": 10, "many": {f"k{i}": i for i in range(250)}, "lr": 0.5}
    for steps, rewind in (((), 0), ((10, 20, 30), 0), ((20, 30, 40), 10)):  # the first start ends before its first row
        sink = MlflowSink("mine", tracking_uri=store)
        with logger_context(tmp_path, 0, log_params=odd, sinks=[sink], resume=True) as logger:
            if rewind:
                logger.load_state_dict(state_at(rewind))
            for step in steps:
                log_row(logger, step, {name: step + len(name) for name in ("a+", "a*", "a")})
    client = mlflow.MlflowClient(tracking_uri=store)
    [run] = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (run.info.status, run.info.run_name, run.data.tags["outcome"]) == ("FINISHED", "run_0", "finished")
    expected = {"reward.x0": "1", "reward.x0_2": "-1", ".usr.data": "3", "_../up": "4", "slash.": "5", "_": "6"}
    expected |= {"_.": "7", "k" * 250: "9", "many.k249": "249", "lr": "0.5"}
    assert {name: run.data.params.get(name) for name in expected} == expected
    assert run.data.metrics == {"a": 41.0, "a_2": 42.0, "a_3": 42.0}
    history = client.get_metric_history(run.info.run_id, "a")
    assert [(metric.step, metric.value) for metric in history] == [(step, step + 1) for step in (10, 20, 30, 40)]


@pytest.mark.nightly
def test_wandb_writes_settings_rows_and_outcome_without_a_network(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for resume in (False, True):
        sink = WandbSink("mine", mode="offline", tags=["a"])
        steps = (20, 30, 40) if resume else (10, 20, 30)
        log_rows(tmp_path, sink, steps, resume=resume, rewind=10 if resume else 0)
        assert sink._run.config["algo"] == {"learning_rate": 0.5}
    folders = sorted((tmp_path / "run_0" / "wandb").glob("offline-run-*"))
    for folder, values in zip(folders, ([b"1", b"2", b"3"], [b"4"]), strict=True):
        content = next(folder.glob("*.wandb")).read_bytes()
        assert b"learning_rate" in content
        assert b'"finished"' in content
        assert sorted(set(re.findall(rb"\x12\x01x\x82\x01\x01(\d)", content))) == values, "rows by their column x"
    assert len({folder.name.rpartition("-")[2] for folder in folders}) == 1, "one id"
    assert (tmp_path / "run_0" / "sinks.json").exists()


class Trackio:
    """Double of trackio with the calls that its documentation names."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def init(self, **kwargs: Any) -> Trackio:
        assert not [key for key in kwargs["config"] if key.startswith("_")], "which it refuses"
        self.calls.append(kwargs)
        return self

    def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.calls.append((metrics, step))

    def finish(self) -> None:
        self.calls.append("finish")


def test_trackio_is_opened_with_the_settings_and_the_same_name(tmp_path, monkeypatch):
    double = Trackio()
    monkeypatch.setitem(sys.modules, "trackio", double)
    log_rows(tmp_path, TrackioSink("mine"), (10,), _mine=1)
    log_rows(tmp_path, TrackioSink("mine"), (10, 20), resume=True)
    opened = [call for call in double.calls if isinstance(call, dict)]
    assert [(call["project"], call["resume"]) for call in opened] == [("mine", "allow")] * 2
    assert opened[0]["name"] == opened[1]["name"]
    assert opened[0]["name"].startswith("run_0-")
    assert (opened[0]["config"]["algo"], opened[0]["config"]["mine"]) == ({"learning_rate": 0.5}, 1)
    steps = [call[1] for call in double.calls if isinstance(call, tuple)]
    assert steps == [10, 10, 20, 20], "each row, and the outcome"
    assert double.calls[-1] == "finish"
