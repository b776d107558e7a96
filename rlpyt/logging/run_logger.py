"""Logger of a run: text, rows of numbers, settings and snapshots."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rlpyt.logging.console import Console, Verbosity, pushed
from rlpyt.logging.files import MAY_PASS, write_json
from rlpyt.logging.params import to_json
from rlpyt.logging.sinks import STATISTICS, ConsoleTable, CsvSink, RefusedBySink, Row, RunSink, Sink
from rlpyt.logging.snapshots import (
    SnapshotMode,
    check_snapshot_settings,
    save_snapshot,
    snapshot_names,
)
from rlpyt.logging.values import to_cell, to_numbers
from rlpyt.run_records import read_json
from rlpyt.types import StateDict

_STATISTICS: Mapping[str, Callable[[np.ndarray], Any]] = dict(
    zip(STATISTICS, (np.mean, np.std, np.median, np.min, np.max), strict=True)
)


class HeldRow(NamedTuple):
    """Row of the log that is not written yet, apart from the one that is being recorded."""

    values: dict[str, float | int | str]
    step: int
    """CumSteps, the x-axis of sinks that have one."""


class Logger(Console):
    """Logger that writes to the console and, with a directory, to the files of a run.

    The files are `progress.csv`, `debug.log`, `params.json` and the snapshots. A full disk, or a network folder that
    fails for a moment, is reported and does not end the run: the next write tries the same content again. An error of
    one of the `sinks` is reported once, and the run continues without that sink.

    Args:
        directory: of the run; None for a logger of the console alone.
        sinks: destinations of rows besides the console and `progress.csv`; closed with the logger.
        snapshot_mode: which snapshots are kept, see `snapshot_names`.
        snapshot_gap: iterations between snapshots, for the modes with gap.
        resumes: whether a run goes on from the newest checkpoint in the directory.
        verbosity: what is printed, see `Verbosity`.
        line_columns: what "lines" shows of a row, see `logger_context`.

    Raises:
        ValueError: if the snapshot settings are wrong.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        sinks: Sequence[Sink] = (),
        *,
        snapshot_mode: SnapshotMode = "last",
        snapshot_gap: int = 1,
        resumes: bool = False,
        verbosity: Verbosity = "table",
        line_columns: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, verbosity, line_columns)
        check_snapshot_settings(snapshot_mode, snapshot_gap)
        self.resumes = resumes
        self.on_row: Callable[[Row, int], None] | None = None
        """Is called with every row, and its step, after all sinks."""
        self.notes: dict[str, str] = {}
        """What `status.json` says beside the status at the end."""
        self.snapshot_mode = snapshot_mode
        self.snapshot_gap = snapshot_gap
        self.pid = os.getpid()
        self._tabular_prefixes: list[str] = []
        self._row: dict[str, float | int | str] = {}
        self._unwritten_params: dict[str, object] = {}
        self._n_rows = 0
        self._step = 0
        self._csv = None if self.directory is None else CsvSink(self.directory / "progress.csv")
        self._own_sinks: list[Sink] = [*([] if self._csv is None else [self._csv]), ConsoleTable(self._log_table)]
        self._sinks = [sink for sink in sinks if self._begins(sink)]

    def push_tabular_prefix(self, text: str) -> None:
        """Put `text` before every column name recorded until `pop_tabular_prefix`."""
        self._tabular_prefixes.append(text)

    def pop_tabular_prefix(self) -> None:
        """Undo the last `push_tabular_prefix`."""
        self._tabular_prefixes.pop()

    @property
    def has_rows(self) -> bool:
        """Whether `progress.csv` has rows, perhaps of an earlier start of the run."""
        return self._csv is not None and bool(self._csv.keys)

    @contextlib.contextmanager
    def tabular_prefix(self, text: str) -> Iterator[None]:
        """Put `text` before every column name recorded while the block runs; blocks nest."""
        with pushed(self._tabular_prefixes, text):
            yield

    def record_tabular(self, key: str, value: object) -> None:
        """Put a value into the next row; a later value of the same key replaces it.

        Args:
            key: name of the column, without `tabular_prefix`.
            value: a number, a text, or an array or tensor of one element.

        Raises:
            TypeError: if the value is anything else.
        """
        self._row["".join(self._tabular_prefixes) + key] = to_cell(key, value)

    def record_tabular_misc_stat(self, key: str, values: object, placement: Literal["front", "back"] = "back") -> None:
        """Put Average, Std, Median, Min and Max of some values into the next row.

        Args:
            key: the columns are `<key>Average` and so on.
            values: numbers, scalar tensors, an array or a tensor; without values the statistics are nan.
            placement: where the name of the statistic stands; front gives `Average<key>`.

        Raises:
            ValueError: if the placement is unknown.
            TypeError: if the values are no numbers.
        """
        if placement not in ("front", "back"):
            raise ValueError(f"statistics of {key}: got placement {placement!r}, expected front, back.")
        numbers = to_numbers(key, values)
        for name, statistic in _STATISTICS.items():
            column = f"{name}{key}" if placement == "front" else f"{key}{name}"
            # Infinities have no Std: it is nan, without a warning at every row.
            with np.errstate(invalid="ignore"):
                self.record_tabular(column, statistic(numbers) if numbers.size else float("nan"))

    def set_iteration(self, iteration: int) -> None:
        """Set the step of the rows that `dump_tabular` writes without one."""
        self._step = int(iteration)

    def dump_tabular(self, step: int | None = None) -> None:
        """Write the values recorded since the last call as one row to every sink.

        Args:
            step: CumSteps, the x-axis of sinks that have one; None is the last step, or that of `set_iteration`.
        """
        if not self._row:
            return
        row, self._row = self._row, {}
        self._n_rows += 1
        self._step = self._step if step is None else int(step)
        for sink in self._own_sinks:
            with self._disk_may_fail(f"row {self._n_rows} of the log"):
                sink.write(row, self._step)
        if self._unwritten_params:
            self.record_params({})
        self.show_row(row, self._step)
        for sink in self._sinks:
            with self._sink_may_fail(sink):
                sink.write(row, self._step)
        if self.on_row is not None:
            self.on_row(row, self._step)

    def hold_tabular(self, step: int) -> HeldRow:
        """Return the values recorded since the last call, to be written later as the row of a step."""
        row, self._row = self._row, {}
        return HeldRow(row, int(step))

    def dump_held(self, row: HeldRow, record: Callable[[], None]) -> None:
        """Write a row that `hold_tabular` returned.

        Args:
            row: what was recorded of it before; columns keep their places.
            record: records what is known only now. Values recorded before this call belong to the next row.
        """
        newer, prefixes = self._row, self._tabular_prefixes
        self._row, self._tabular_prefixes = row.values, []
        try:
            record()
            self.dump_tabular(row.step)
        finally:
            self._row, self._tabular_prefixes = newer, prefixes

    def set_snapshot_mode(self, mode: SnapshotMode) -> None:
        """Set the snapshot mode; see `snapshot_names`.

        Raises:
            ValueError: if there is no such mode.
        """
        check_snapshot_settings(mode, self.snapshot_gap)
        self.snapshot_mode = mode

    def set_snapshot_gap(self, gap: int) -> None:
        """Set the iterations between snapshots, for the modes with gap.

        Raises:
            ValueError: if the gap is below 1.
        """
        check_snapshot_settings(self.snapshot_mode, gap)
        self.snapshot_gap = gap

    def save_itr_params(self, itr: int, params: Mapping[str, object]) -> list[Path]:
        """Save the snapshot of an iteration under the names of the snapshot mode.

        Args:
            itr: iteration, from 0.
            params: plain data, see `save_snapshot`.

        Returns:
            The files written; none without a directory or if the disk is full or does not answer.
        """
        if self.directory is None:
            return []
        saved: list[Path] = []
        for name in snapshot_names(self.snapshot_mode, itr, self.snapshot_gap):
            with self._disk_may_fail(f"snapshot {name}"):
                save_snapshot(self.directory / name, params)
                saved.append(self.directory / name)
        if saved and "snapshots" not in self._said:
            self._said.add("snapshots")
            self.log(f"first snapshot: {saved[0]}")
        return saved

    def record_params(self, params: Mapping[str, object]) -> None:
        """Merge settings into `params.json`, converted by `to_json`.

        Args:
            params: settings by name; they replace settings of the same name that were recorded before.
        """
        if self.directory is None:
            return
        path = self.directory / "params.json"
        self._unwritten_params |= to_json(params)
        with self._disk_may_fail("params.json"):
            known, wrong = read_json(path, needed=False)
            if wrong:  # what stands in it must not be lost
                raise ValueError(f"Recording settings in {path}: {wrong}; expected the file that the run has written.")
            write_json(path, known | self._unwritten_params)
            self._unwritten_params.clear()

    def state_dict(self) -> StateDict:
        """Return the position in the rows, and the values that are in no row yet, as plain data for a checkpoint."""
        csv = self._csv
        return {
            "n_rows": self._n_rows,
            "step": self._step,
            "keys": list(csv.keys) if csv else [],
            "waiting": [dict(row) for row in csv.waiting] if csv else [],
            "row": dict(self._row),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue after the rows of a checkpoint: later rows of `progress.csv` are removed.

        Args:
            state: as `state_dict` returned it.
        """
        self._n_rows, self._step = state["n_rows"], state["step"]
        self._row = dict(state.get("row", self._row))  # absent in checkpoints of earlier versions, as is "waiting"
        for sink in self._sinks:
            if isinstance(sink, RunSink):
                with self._sink_may_fail(sink):
                    sink.rewind(self._step)
        if self._csv is None:
            return
        found = self._csv.rewind(self._n_rows, state["keys"], state.get("waiting", ()))
        if found < self._n_rows:
            self.warn(
                f"the checkpoint was made after {self._n_rows} rows, {self._csv.path} has "
                f"{found}; the log continues from there. Was the run resumed in another directory?"
            )

    def close(self, outcome: str = "finished") -> None:
        """Close the sinks, each of them even if another fails.

        Args:
            outcome: of the run, see `RunSink.end`.
        """
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            if isinstance(sink, RunSink):
                with self._sink_may_fail(sink):
                    sink.end(outcome)
            with self._sink_may_fail(sink):
                sink.close()
        if self._unwritten_params:
            self.record_params({})
        own, self._own_sinks = self._own_sinks, []
        for sink in own:
            with self._disk_may_fail("the last rows of the log"):
                sink.close()

    def _begins(self, sink: Sink) -> bool:
        """Return whether a sink is there; one that follows the run begins."""
        if self.directory is None or not isinstance(sink, RunSink):
            return True
        begun = False
        with self._sink_may_fail(sink):
            sink.begin(self.directory)
            begun = True
        return begun

    @contextlib.contextmanager
    def _sink_may_fail(self, sink: Sink) -> Iterator[None]:
        try:
            yield
        except RefusedBySink as error:  # which a sink raises once for each setting or column
            self.warn(f"the sink {type(sink).__name__}: {error}. They are missing there, and the run goes on.")
        except Exception as error:  # of any kind: a server that is down must not end a run of days
            name, what = type(sink).__name__, type(error).__name__
            self.warn_once(
                f"{name} {what}",
                f"the sink {name} raised, and what it was given is missing there; the run goes on and says this once.\n"
                + "".join(traceback.format_exception(error)).rstrip(),
            )

    @contextlib.contextmanager
    def _disk_may_fail(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in MAY_PASS:
                raise
            self.warn(f"{what} was not written, the run goes on without: {error}")
