"""Sinks of rows of the log, and the table of a row. Any object with `write` and `close` is a sink."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rlpyt.logging.files import replace_file
from rlpyt.run_records import open_to_read, open_to_write
from rlpyt.utils.output import write_text
from rlpyt.utils.terminal import aligned

Row = Mapping[str, float | int | str]
"""One row of the log: values by column name."""


STATISTICS = ("Average", "Std", "Median", "Min", "Max")
"""Statistics of many values under one name, each with its column `<name>Average` and so on."""


class Sink(Protocol):
    """Interface of a destination of rows; one that follows the run derives from `RunSink`."""

    def write(self, row: Row, step: int) -> None:
        """Write one row, which belongs to `step`, before returning."""

    def close(self) -> None:
        """Release all resources; called once, after the last row."""


class RunSink(ABC):
    """Base of a sink that is told how the run begins, goes on after a checkpoint, and ends.

    What it raises is logged once, and the run goes on.
    """

    def begin(self, directory: Path) -> None:  # noqa: B027 - a sink may need nothing of it
        """Begin with the rows of a run in a directory, whose `params.json` is complete when the first row comes.

        The sink is dropped if this raises.
        """

    def rewind(self, step: int) -> None:  # noqa: B027 - a sink may need nothing of it
        """Go on after the row of a step: later ones were written before, and come again."""

    @abstractmethod
    def write(self, row: Row, step: int) -> None:
        """Write one row, which belongs to `step`, before returning."""

    def end(self, outcome: str) -> None:  # noqa: B027 - a sink may need nothing of it
        """Take the end of the run: finished, failed, interrupted, or preempted, which will go on."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; called once, after `end`."""


class Sinks:
    """Sinks of the user, of which each may fail: that is logged once, and the run goes on."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        directory: Path | None,
        warn_once: Callable[[str, str], None],
    ) -> None:
        self._warn_once = warn_once
        self._sinks: list[Sink] = []
        for sink in sinks:
            with self._may_fail(sink):
                if directory is not None and isinstance(sink, RunSink):
                    sink.begin(directory)
                self._sinks.append(sink)

    def write(self, row: Row, step: int) -> None:
        """Write one row to all of them."""
        for sink in self._sinks:
            with self._may_fail(sink):
                sink.write(row, step)

    def rewind(self, step: int) -> None:
        """Go on after the row of a step."""
        for sink in self._sinks:
            with self._may_fail(sink):
                if isinstance(sink, RunSink):
                    sink.rewind(step)

    def close(self, outcome: str) -> None:
        """End and close all of them, once."""
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            with self._may_fail(sink):
                if isinstance(sink, RunSink):
                    sink.end(outcome)
            with self._may_fail(sink):
                sink.close()

    @contextlib.contextmanager
    def _may_fail(self, sink: Sink) -> Iterator[None]:
        name = type(sink).__name__
        try:
            yield
        except Exception as error:  # of any kind: a server that is down must not end a run of days
            self._warn_once(
                f"{name} {type(error).__name__}",
                f"the sink {name} raised, and what it was given is missing there; the run goes on and says this once.\n"
                + "".join(traceback.format_exception(error)).rstrip(),
            )


def print_line(text: str) -> None:
    """Print to standard output; continue without it if it is closed or nobody reads it any more."""
    write_text(sys.stdout, f"{text}\n")


def row_as_table(row: Row, step: int) -> str:
    """Return a row as a table below a line with its step: single values first, then the statistics of each name."""
    cells = {key: f"{x:.6g}" if isinstance(x, float) else str(x) for key, x in row.items()}
    many, single = grouped(row)
    lines = aligned([[key, cells[key]] for key in single], "<>") if single else []
    of_name = [[name, *(cells[key] for key in keys)] for name, keys in many.items()]
    lines += aligned([["", *STATISTICS], *of_name], "<>>>>>") if many else []
    rule = "-" * max(map(len, lines), default=0)
    return "\n".join([f"step {step}", rule, *lines, rule])


def grouped(row: Row) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns of every name with all `STATISTICS`, in their order, and all other columns."""
    names = [key.removesuffix("Average") for key in row if key.endswith("Average")]
    of_name = {name: [name + statistic for statistic in STATISTICS] for name in names}
    of_name = {name: keys for name, keys in of_name.items() if all(key in row for key in keys)}
    taken = {key for keys in of_name.values() for key in keys}
    return of_name, [key for key in row if key not in taken]


class CsvSink:
    """Sink that appends rows to a CSV file whose columns keep the order in which they first came.

    A row with new columns rewrites the file, whole or not at all, with empty cells in old rows. A row that the disk
    does not take raises, stays in memory, and is written with the next one. The file is opened for each row, so that a
    killed run leaves whole rows. Columns and rows of an existing file are kept.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.keys: list[str] = []
        self.waiting: list[Row] = []
        """Rows that the disk has not taken yet."""
        self._end: int | None = None  # of the file before a row that was not written, or half of it
        if self._is_there():
            self._drop_torn_row()
            self.keys = self._read()[0]

    def write(self, row: Row, step: int) -> None:
        """Append the row. `step` is not written, as it is one of the columns."""
        self.waiting.append(row)
        self._flush()

    def rewind(self, n_rows: int, keys: Iterable[str], waiting: Sequence[Row] = ()) -> int:
        """Remove all but the first rows, and the columns that first came after them; return how many rows there are.

        `waiting` are the last of the rows to keep, where the disk had not taken them; they are written with the next.
        """
        self.waiting, self._end = list(waiting), None
        rows = self._read()[1][: n_rows - len(waiting)] if self._is_there() else []
        if rows:
            self._rewrite(list(keys), rows)
        else:
            self.keys = list(keys)
            self.path.unlink(missing_ok=True)
        return len(rows) + len(waiting)

    def close(self) -> None:
        """Write the rows that wait for the disk."""
        if self.waiting:
            self._flush()

    def _is_there(self) -> bool:
        """Return whether the file exists; another error of the disk is raised, as it must not look like no file."""
        try:
            self.path.stat()
        except FileNotFoundError:
            return False
        return True

    def _flush(self) -> None:
        new = {key: None for row in self.waiting for key in row if key not in self.keys}
        is_there = self._is_there()
        if is_there and self._end is not None and self._end < self.path.stat().st_size:
            os.truncate(self.path, self._end)  # the row may be there all the same, or half of it
        self._end = None
        if new or not is_there:
            rows = self._read()[1] if is_there else []
            self._rewrite([*self.keys, *new], [*rows, *self.waiting])
        else:
            self._append(_to_text(self.keys, self.waiting).encode())
        self.waiting.clear()

    def _append(self, content: bytes) -> None:
        with open(open_to_write(self.path, os.O_APPEND), "ab", buffering=0) as file:
            self._end = file.tell()
            if file.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._end = None  # not before the file is closed, as network folders report an error there

    def _rewrite(self, keys: list[str], rows: Sequence[Row]) -> None:
        header = dict(zip(keys, keys, strict=True))
        with replace_file(self.path) as file:
            file.write(_to_text(keys, [header, *rows]).encode())
        self.keys = keys

    def _read(self) -> tuple[list[str], list[Row]]:
        with io.TextIOWrapper(open_to_read(self.path), encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            try:
                rows: list[Row] = list(reader)
            except csv.Error as error:
                raise ValueError(f"Reading {self.path}: it is no CSV file: {error}. Put it aside.") from error
            return list(reader.fieldnames or []), rows

    def _drop_torn_row(self) -> None:
        with open(open_to_write(self.path, os.O_APPEND), "r+b") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                file.truncate(whole)


def _to_text(keys: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, extrasaction="ignore", lineterminator="\n")
    writer.writerows(rows)
    return text.getvalue()
