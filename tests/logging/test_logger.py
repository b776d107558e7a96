from __future__ import annotations

import csv
import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch

from rlpyt.logging import CsvSink, Logger, load_snapshot


class ListSink:
    def __init__(self):
        self.rows = []
        self.n_closed = 0

    def write(self, row, step):
        self.rows.append((step, dict(row)))

    def close(self):
        self.n_closed += 1


def log_row(logger: Logger, step: int | None, row: Mapping[str, object] = MappingProxyType({}), **more: object) -> None:
    """Write one row."""
    for key, value in {**row, **more}.items():
        logger.record_tabular(key, value)
    logger.dump_tabular(step)


def read_rows(directory: Path) -> list[list[str]]:
    with open(directory / "progress.csv", newline="") as file:
        return list(csv.reader(file))


def test_row_reaches_every_sink_once(tmp_path, capsys):
    sink = ListSink()
    logger = Logger(tmp_path, [sink])
    log_row(logger, 500, {"Diagnostics/CumSteps": 500}, loss=torch.tensor(0.25))
    logger.dump_tabular(600)  # nothing recorded, no row
    assert sink.rows == [(500, {"Diagnostics/CumSteps": 500, "loss": 0.25})]
    assert read_rows(tmp_path) == [["Diagnostics/CumSteps", "loss"], ["500", "0.25"]]
    table = capsys.readouterr().out
    assert "step 500" in table
    assert "loss" in table
    assert "0.25" in (tmp_path / "debug.log").read_text()


def row_of(record, *args, **kwargs) -> dict[str, object]:
    """Return the row of a logger after one call of a method."""
    sink = ListSink()
    logger = Logger(sinks=[sink])
    record(logger, *args, **kwargs)
    logger.dump_tabular(0)
    row: dict[str, object] = sink.rows[0][1]
    return row


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (3, 3),
        (True, 1),
        (np.float32(0.5), 0.5),
        (np.array([2]), 2),
        (torch.tensor(1.5, dtype=torch.bfloat16), 1.5),
        ("text", "text"),
    ],
)
def test_cells_are_plain_python(value, cell):
    recorded = row_of(Logger.record_tabular, "key", value)["key"]
    assert (recorded, type(recorded)) == (cell, type(cell))


@pytest.mark.parametrize("value", [None, [1, 2], np.zeros(2), torch.zeros(2), {}])
def test_cell_of_another_type_is_refused(value):
    with pytest.raises(TypeError, match=r"recording loss for the log: got .*, expected a number.*misc_stat"):
        Logger().record_tabular("loss", value)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0, 6.0, 7.0],
        np.array([[1, 2], [6, 7]]),
        torch.tensor([1.0, 2.0, 6.0, 7.0], dtype=torch.bfloat16, requires_grad=True),
        [torch.tensor(1.0), np.float32(2.0), 6, True * 7],
    ],
)
def test_statistics_by_hand(values):
    expected = {"Average": 4.0, "Std": pytest.approx(math.sqrt((9 + 4 + 4 + 9) / 4)), "Median": 4.0, "Min": 1, "Max": 7}
    row = row_of(Logger.record_tabular_misc_stat, "Return", values)
    assert list(row.items()) == [(f"Return{name}", x) for name, x in expected.items()]
    assert "AverageReturn" in row_of(Logger.record_tabular_misc_stat, "Return", values, placement="front")


@pytest.mark.parametrize("values", [[], torch.zeros(0, 3), [math.inf, 1.0]])
def test_statistics_of_nothing_and_of_infinities_are_nan_without_a_warning(values, recwarn):
    row = row_of(Logger.record_tabular_misc_stat, "Return", values)
    assert len(row) == 5
    assert math.isnan(row["ReturnStd"])  # type: ignore[arg-type]
    assert all(math.isnan(x) for x in row.values()) == (len(values) == 0)  # type: ignore[arg-type]
    assert not recwarn.list


def test_wrong_statistics_are_refused():
    with pytest.raises(ValueError, match="got placement 'middle', expected front, back"):
        Logger().record_tabular_misc_stat("Return", [1.0], placement="middle")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="statistics of Return"):
        Logger().record_tabular_misc_stat("Return", [[1.0, 2.0], [3.0]])


def test_prefixes_nest_and_leave_after_an_error(tmp_path, capsys):
    sink = ListSink()
    logger = Logger(tmp_path, [sink])

    def fail_inside():
        with logger.prefix("itr 3 | "), logger.tabular_prefix("Diagnostics/"):
            with logger.prefix("rank 0 | "), logger.tabular_prefix("Time/"):
                logger.log("first\nsecond")
                logger.record_tabular("inner", 1)
            logger.record_tabular("outer", 2)
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    logger.log("plain")
    log_row(logger, 0, bare=3)
    assert list(sink.rows[0][1]) == ["Diagnostics/Time/inner", "Diagnostics/outer", "bare"]
    assert capsys.readouterr().out.startswith("itr 3 | rank 0 | first\nitr 3 | rank 0 | second\nplain\n")
    lines = (tmp_path / "debug.log").read_text().splitlines()
    assert [line.split(" | ", 1)[1] for line in lines[:3]] == [
        "itr 3 | rank 0 | first",
        "itr 3 | rank 0 | second",
        "plain",
    ]


def test_warn_once(capsys):
    logger = Logger()
    for _ in range(3):
        logger.warn_once("nan", "reward is nan")
    logger.warn_once("inf", "reward is inf")
    assert capsys.readouterr().out == "WARNING: reward is nan\nWARNING: reward is inf\n"


def test_console_only_logger_writes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logger = Logger()
    logger.log("text")
    logger.record_params({"a": 1})
    log_row(logger, 1, a=1)
    assert logger.save_itr_params(0, {"a": 1}) == []
    logger.load_state_dict(logger.state_dict())
    logger.close()
    assert list(tmp_path.iterdir()) == []


def test_record_params_merges(tmp_path):
    logger = Logger(tmp_path)
    logger.record_params({"a": 1, "algo": {"discount": 0.9}})
    logger.record_params({"b": np.float32(2), "algo": int})
    assert json.loads((tmp_path / "params.json").read_text()) == {"a": 1, "algo": "builtins.int", "b": 2.0}


def test_resumed_file_equals_one_that_was_not_interrupted(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for directory in (whole, broken):
        directory.mkdir()
        logger = Logger(directory)
        log_row(logger, 1, a=0.1, b=1.0)
        log_row(logger, 2, b=2.0, c=0.3)
        state = json.loads(json.dumps(logger.state_dict()))
        if directory is broken:
            log_row(logger, 3, d=9.0, a=9.0)
            logger.close()
            logger = Logger(directory)
            logger.load_state_dict(state)
        log_row(logger, 3, a=3.0, e=1.0)
        logger.close()
        assert logger.state_dict()["n_rows"] == 3
        assert logger.state_dict()["step"] == 3
    assert (whole / "progress.csv").read_bytes() == (broken / "progress.csv").read_bytes()
    assert read_rows(whole)[0] == ["a", "b", "c", "e"]


def test_values_for_the_next_row_are_part_of_the_state(tmp_path):
    logger = Logger(tmp_path)
    log_row(logger, 1, a=1.0)
    logger.record_tabular("stage", 2)
    [path] = logger.save_itr_params(0, logger.state_dict())
    state = load_snapshot(path)
    assert state == {"n_rows": 1, "step": 1, "keys": ["a"], "waiting": [], "row": {"stage": 2}}
    log_row(logger, 2, a=9.0)
    logger = Logger(tmp_path)
    logger.record_tabular("stage", 1)  # a script that records before the run does so at each start
    logger.load_state_dict(state)
    log_row(logger, 2, a=2.0)
    assert read_rows(tmp_path) == [["a", "stage"], ["1.0", ""], ["2.0", "2"]]


@pytest.mark.parametrize(("number", "when"), [(errno.ESTALE, "before"), (errno.EIO, "after"), (errno.ENOSPC, "before")])
def test_a_row_that_a_network_folder_refuses_for_a_moment_comes_later_and_once(
    tmp_path, capsys, monkeypatch, number, when
):
    append = CsvSink._append

    def refuses(self, content):
        if when == "after":  # as a network folder that reports the error when the file is closed
            append(self, content)
            self._end = self.path.stat().st_size - len(content)
        raise OSError(number, os.strerror(number))

    logger = Logger(tmp_path)
    log_row(logger, 1, a=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(CsvSink, "_append", refuses)
        log_row(logger, 2, a=2.0)
        state = json.loads(json.dumps(logger.state_dict()))
    assert "WARNING: row 2 of the log was not written" in capsys.readouterr().out
    log_row(logger, 3, a=3.0, b=4.0)
    assert read_rows(tmp_path)[1:] == [["1.0", ""], ["2.0", ""], ["3.0", "4.0"]]
    logger = Logger(tmp_path)
    logger.load_state_dict(state)  # of a checkpoint between the two rows
    log_row(logger, 3, a=5.0)
    assert read_rows(tmp_path)[1:] == [["1.0"], ["2.0"], ["5.0"]]
    assert "the log continues from there" not in capsys.readouterr().out


def test_an_error_of_the_disk_does_not_look_like_no_file(tmp_path, monkeypatch):
    sink = CsvSink(tmp_path / "progress.csv")
    sink.write({"a": 1}, 1)

    def fails(self, **kwargs):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", fails)
        with pytest.raises(OSError, match="Input/output"):
            sink.write({"a": 2}, 2)
    sink.write({"a": 3}, 3)
    assert read_rows(tmp_path) == [["a"], ["1"], ["2"], ["3"]]


def test_a_log_that_goes_on_from_fewer_rows_than_it_had_says_so_and_keeps_its_columns(tmp_path, capsys):
    logger = Logger(tmp_path)
    logger.load_state_dict({"n_rows": 4, "step": 40, "keys": ["a", "b"]})  # of another folder
    assert "after 4 rows" in capsys.readouterr().out
    log_row(logger, 50, b=1.0)
    state = logger.state_dict()
    log_row(logger, 60, b=2.0)
    logger = Logger(tmp_path)
    logger.load_state_dict(state)
    log_row(logger, 60, b=3.0)
    assert read_rows(tmp_path) == [["a", "b"], ["", "1.0"], ["", "3.0"]]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("none", []),
        ("last", ["params.pkl"]),
        ("all", [f"itr_{itr}.pkl" for itr in range(6)]),
        ("gap", ["itr_0.pkl", "itr_2.pkl", "itr_5.pkl"]),
        ("last+gap", ["itr_0.pkl", "itr_2.pkl", "itr_5.pkl", "params.pkl"]),
    ],
)
def test_snapshot_modes(tmp_path, mode, expected):
    logger = Logger(tmp_path, snapshot_mode=mode, snapshot_gap=3)
    for itr in range(6):
        saved = logger.save_itr_params(itr, {"itr": itr})
        assert all(load_snapshot(path) == {"itr": itr} for path in saved)
    assert sorted(path.name for path in tmp_path.glob("*.pkl")) == expected
    if "last" in mode:
        assert load_snapshot(tmp_path / "params.pkl") == {"itr": 5}


def open_full(path: Path, flags: int = 0) -> int:
    """Open a file of a disk without space."""
    return os.open("/dev/full", os.O_WRONLY | flags)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_does_not_end_the_run(tmp_path, capsys, monkeypatch):
    sink = ListSink()
    logger = Logger(tmp_path, [sink])
    logger.save_itr_params(0, {"weight": torch.zeros(10)})
    log_row(logger, 1, a=1.0)
    good_csv = (tmp_path / "progress.csv").read_bytes()
    capsys.readouterr()

    with monkeypatch.context() as full:
        full.setattr("rlpyt.logging.files.open_to_write", open_full)
        assert logger.save_itr_params(1, {"weight": torch.ones(1_000_000)}) == []
        logger.record_params({"a": 1})
        log_row(logger, 2, a=2.0, b=2.0)
    text = capsys.readouterr().out
    for what in ("snapshot params.pkl", "params.json", "row 2 of the log"):
        assert f"WARNING: {what} was not written" in text
    assert "No space left on device" in text
    assert load_snapshot(tmp_path / "params.pkl")["weight"].sum() == 0
    assert (tmp_path / "progress.csv").read_bytes() == good_csv
    assert [step for step, _ in sink.rows] == [1, 2]

    # Space again: the waiting row and the settings come with the next one.
    assert len(logger.save_itr_params(2, {"weight": torch.ones(10)})) == 1
    log_row(logger, 3, a=3.0)
    assert read_rows(tmp_path) == [["a", "b"], ["1.0", ""], ["2.0", "2.0"], ["3.0", ""]]
    assert json.loads((tmp_path / "params.json").read_text()) == {"a": 1}
    with monkeypatch.context() as full:
        full.setattr("rlpyt.logging.sinks.open_to_write", open_full)
        log_row(logger, 4, a=4.0)
    logger.close()
    assert read_rows(tmp_path)[-1] == ["4.0", ""]


class FailingSink(ListSink):
    def write(self, row, step):
        if step != 2:
            raise ConnectionError("no network")
        super().write(row, step)

    def close(self):
        raise TypeError("a server that has gone")


def test_a_sink_that_raises_is_a_warning_once_and_the_run_goes_on(tmp_path, capsys):
    first, failing, last = ListSink(), FailingSink(), ListSink()
    logger = Logger(tmp_path, [first, failing, object(), last])  # type: ignore[list-item]
    for step in (1, 2, 3):
        log_row(logger, step, a=1.0)
    logger.close()
    logger.close()
    out = capsys.readouterr().out
    assert out.count("WARNING: the sink FailingSink raised") == 2
    assert out.count("ConnectionError: no network") == 1
    assert out.count("TypeError: a server that has gone") == 1
    assert "in write" in out, "where it was raised"
    assert "has no attribute 'write'" in out
    assert [len(sink.rows) for sink in (first, failing, last)] == [3, 1, 3]
    assert read_rows(tmp_path) == [["a"], ["1.0"], ["1.0"], ["1.0"]]
    assert (first.n_closed, last.n_closed) == (1, 1)
