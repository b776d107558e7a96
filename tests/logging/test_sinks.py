from __future__ import annotations

import csv
import errno
import io
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlpyt.logging
from rlpyt.logging import CsvSink
from rlpyt.logging.sinks import STATISTICS, print_line, row_as_table

ROOT = Path(rlpyt.logging.__file__).parents[2]


def read(path: Path) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_new_keys_come_at_the_end_in_the_order_first_seen(tmp_path):
    sink = CsvSink(tmp_path / "progress.csv")
    sink.write({"z": 1, "a": 2.5}, 1)
    assert read(sink.path) == [["z", "a"], ["1", "2.5"]]
    sink.write({"m": 3, "a": 4, "b": "x, y"}, 2)
    inode = sink.path.stat().st_ino
    sink.write({"a": float("nan")}, 3)
    assert sink.path.stat().st_ino == inode, "it is only appended to"
    assert read(sink.path) == [
        ["z", "a", "m", "b"],
        ["1", "2.5", "", ""],
        ["", "4", "3", "x, y"],
        ["", "nan", "", ""],
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["progress.csv"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [("b,a\n1,2\n3,", "b,a,c\n1,2,\n5,4,6\n"), ("Diagnostics/Cu", "a,b,c\n4,5,6\n")],
)
def test_existing_file_is_continued_without_its_torn_row(tmp_path, content, expected):
    path = tmp_path / "progress.csv"
    path.write_text(content)
    CsvSink(path).write({"a": 4, "b": 5, "c": 6}, 2)
    assert path.read_text() == expected


def test_file_that_was_moved_away_starts_again_with_a_header(tmp_path):
    sink = CsvSink(tmp_path / "progress.csv")
    sink.write({"a": 1, "b": 2}, 1)
    sink.path.rename(tmp_path / "kept.csv")
    sink.write({"b": 3}, 2)
    assert sink.path.read_text() == "a,b\n,3\n"


def test_half_written_row_is_taken_back_and_written_later(tmp_path):
    sink = CsvSink(tmp_path / "progress.csv")
    sink.write({"a": 1111}, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (sink.path.stat().st_size + 3, limits[1]))
    try:
        with pytest.raises(OSError, match="No space left") as error:
            sink.write({"a": 2222}, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno == errno.ENOSPC
    assert sink.path.read_text() == "a\n1111\n222"
    sink.write({"a": 3333}, 3)
    assert sink.path.read_text() == "a\n1111\n2222\n3333\n"


rows_of_any_keys = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(-9, 9), min_size=1), min_size=1, max_size=8
)


@settings(max_examples=50)
@given(rows=rows_of_any_keys, reopen_at=st.integers(0, 8), keep=st.integers(0, 8))
def test_csv_against_a_list_of_dictionaries(tmp_path_factory, rows, reopen_at, keep):
    path = tmp_path_factory.mktemp("csv") / "progress.csv"
    sink = CsvSink(path)
    for i, row in enumerate(rows):
        if i == reopen_at:
            sink = CsvSink(path)
        sink.write(row, i)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    expected = [[str(row.get(key, "")) for key in keys] for row in rows]
    assert read(path) == [keys, *expected]

    keep = min(keep, len(rows))
    keys = list(dict.fromkeys(key for row in rows[:keep] for key in row))
    assert sink.rewind(keep, keys) == keep
    assert CsvSink(path).keys == (keys if keep else [])
    if keep:
        assert read(path) == [keys, *[[str(row.get(key, "")) for key in keys] for row in rows[:keep]]]
    else:
        assert not path.exists()


def test_a_table_gives_every_name_one_line_of_statistics():
    row: dict[str, float | int | str] = {"CumSteps": 1000, "loss": 1 / 3, "note": "ok"}
    row |= {f"Return{name}": i for i, name in enumerate(STATISTICS)}
    assert row_as_table(row | {"lonelyAverage": 7}, 1000).split("\n") == [
        "step 1000",
        rule := "-" * 38,
        "CumSteps           1000",
        "loss           0.333333",
        "note                 ok",
        "lonelyAverage         7",
        "        Average  Std  Median  Min  Max",
        "Return        0    1       2    3    4",
        rule,
    ]


def test_print_survives_a_stdout_that_is_closed_or_missing_or_lacks_the_letters(monkeypatch):
    closed, raw = io.StringIO(), io.BytesIO()
    closed.close()
    for stream in (closed, None, io.TextIOWrapper(raw, encoding="ascii")):
        monkeypatch.setattr(sys, "stdout", stream)
        print_line("théta")
    assert raw.getvalue() == b"th\\xe9ta\n"


def test_run_survives_a_broken_pipe_and_exits_with_0(tmp_path):
    script = """
import sys
from rlpyt.logging import logger_context
with logger_context(sys.argv[1], 0) as logger:
    sys.stdin.readline()
    for step in range(3):
        logger.record_tabular("a", step)
        logger.dump_tabular(step)
    print("and prints of others")
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"run directory: {tmp_path / 'run_0'}\n"
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        errors = process.stderr.read()
        assert process.wait(30) == 0, errors
    assert "Broken" not in errors
    assert read(tmp_path / "run_0" / "progress.csv") == [["a"], ["0"], ["1"], ["2"]]
