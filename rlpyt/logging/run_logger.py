"""Logger of a run: text, rows of numbers, settings and snapshots."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch

from rlpyt.logging.files import MAY_PASS, write_json
from rlpyt.logging.live_table import LiveTable, row_in_one_line
from rlpyt.logging.params import to_json
from rlpyt.logging.plots import read_progress
from rlpyt.logging.sinks import STATISTICS, CsvSink, Sink, Sinks, print_line, row_as_table
from rlpyt.logging.snapshots import SnapshotMode, check_snapshot_settings, save_snapshot, snapshot_names
from rlpyt.run_records import open_to_write, read_json
from rlpyt.types import StateDict
from rlpyt.utils.terminal import can_redraw

Verbosity = Literal["table", "lines", "quiet"]
"""What a run prints, see `logger_context`."""

Cell = float | int | str
_STATISTICS: Mapping[str, Callable[[np.ndarray], Any]] = dict(
    zip(STATISTICS, (np.mean, np.std, np.median, np.min, np.max), strict=True)
)


class HeldRow(NamedTuple):
    """Row of the log that is not written yet, apart from the one that is being recorded."""

    values: dict[str, Cell]
    step: int
    """CumSteps, the x-axis of sinks that have one."""


class Logger:
    """Logger that writes to the console and, with a directory, to the files of a run.

    The files are `progress.csv`, `debug.log`, `params.json` and the snapshots. A full disk, or a network folder that
    fails for a moment, is reported and does not end the run: the next write tries the same content again. So is an
    error of one of the `sinks`, once.

    Args:
        directory: of the run; None for a logger of the console alone.
        sinks: destinations of rows besides the console and `progress.csv`; closed with the logger.
        snapshot_mode: which snapshots are kept, see `snapshot_names`.
        snapshot_gap: iterations between snapshots, for the modes with gap.
        resumes: whether a run goes on from the newest checkpoint in the directory.
        verbosity: what is printed, see `Verbosity`.
        line_columns: what "lines" shows of a row, see `logger_context`.

    Raises:
        ValueError: if the verbosity or the snapshot settings are wrong.
    """

    is_silent: ClassVar[bool] = False
    """Whether another replica writes for this one."""

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
        check_choices(verbosity, snapshot_mode, snapshot_gap)
        self.directory = None if directory is None else Path(directory)
        self.snapshot_mode, self.snapshot_gap = snapshot_mode, snapshot_gap
        self.resumes, self.verbosity, self.line_columns = resumes, verbosity, line_columns
        self.live = LiveTable()
        self.texts: list[str] | None = None
        """What was logged, for another process that logs it; None prints it here."""
        self.on_row: Callable[[Mapping[str, Cell], int], None] | None = None
        """Is called with every row, and its step, after all sinks."""
        self.notes: dict[str, str] = {}
        """What `status.json` says beside the status at the end."""
        self.prefixes: list[str] = []
        self.tabular_prefixes: list[str] = []
        self.pid = os.getpid()
        self._said: set[str] = set()
        self._row: dict[str, Cell] = {}
        self._unwritten_params: dict[str, object] = {}
        self._n_rows = self._step = 0
        self._csv = None if self.directory is None else CsvSink(self.directory / "progress.csv")
        self._sinks = Sinks(sinks, self.directory, self.warn_once)

    # ---- text ----

    def log(self, text: str, with_prefix: bool = True) -> None:
        """Print text, and append it to `debug.log` with the time before each line; only "table" prints it."""
        self._log(text, self.verbosity == "table", with_prefix)

    def notice(self, text: str) -> None:
        """Log what "lines" prints too, such as why a run has ended."""
        self._log(text, self.verbosity != "quiet")

    def warn(self, text: str) -> None:
        """Log a warning, which is printed at every verbosity."""
        self._log(f"WARNING: {text}", is_shown=True)

    def warn_once(self, key: str, text: str) -> None:
        """Log a warning the first time that it is called with `key`."""
        if key not in self._said:
            self._said.add(key)
            self.warn(text)

    def take_warnings(self) -> list[str]:
        """Return the warnings that were kept for another process to log: none here."""
        return []

    def _log(self, text: str, is_shown: bool, with_prefix: bool = True) -> None:
        if self.texts is not None:
            self.texts.append(text)
            return
        prefix = "".join(self.prefixes) if with_prefix else ""
        lines = [prefix + line for line in text.split("\n")]
        if self.directory is not None:
            time = datetime.now().isoformat(sep=" ", timespec="milliseconds")
            content = "".join(f"{time} | {line}\n" for line in lines)
            # The text is on the console, too. A disk error must not end the run.
            with (
                contextlib.suppress(OSError),
                open(open_to_write(self.directory / "debug.log", os.O_APPEND), "ab") as file,
            ):
                file.write(content.encode(errors="backslashreplace"))
        if is_shown:
            print_line("\n".join(lines))

    def prefix(self, text: str) -> AbstractContextManager[None]:
        """Put `text` before every line of text while the block runs; blocks nest."""
        return _pushed(self.prefixes, text)

    # ---- the table of the run ----

    @property
    def shows_progress(self) -> bool:
        """Whether bars show the progress of the run."""
        return self.verbosity == "table" and not self.is_silent

    @contextlib.contextmanager
    def live_table(self, total_steps: int, steps: int) -> Iterator[None]:
        """Draw one table of the run in place while the block runs, instead of printing one for each row.

        Of `total_steps`, `steps` are done by earlier starts of the run, whose rows the curves begin with.
        """
        if not self.shows_progress or not can_redraw(sys.stdout):
            yield
            return
        directory = self.directory if steps else None
        earlier = read_progress(directory) if directory and (directory / "progress.csv").exists() else {}
        with self.live.drawn(total_steps, steps, earlier):
            yield

    # ---- rows ----

    @property
    def has_rows(self) -> bool:
        """Whether `progress.csv` has rows, perhaps of an earlier start of the run."""
        return self._csv is not None and bool(self._csv.keys)

    def tabular_prefix(self, text: str) -> AbstractContextManager[None]:
        """Put `text` before every column name recorded while the block runs; blocks nest."""
        return _pushed(self.tabular_prefixes, text)

    def record_tabular(self, key: str, value: object) -> None:
        """Put a value into the next row; a later value of the same key replaces it.

        Args:
            key: name of the column, without `tabular_prefix`.
            value: a number, a text, or an array or tensor of one element; TypeError if it is anything else.
        """
        self._row["".join(self.tabular_prefixes) + key] = _to_cell(key, value)

    def record_tabular_misc_stat(self, key: str, values: object, placement: Literal["front", "back"] = "back") -> None:
        """Put Average, Std, Median, Min and Max of some values into the next row.

        Args:
            key: the columns are `<key>Average` and so on.
            values: numbers, scalar tensors, an array or a tensor; without values the statistics are nan.
            placement: where the name of the statistic stands; front gives `Average<key>`.
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
        if self._csv is not None:
            with self._disk_may_fail(f"row {self._n_rows} of the log"):
                self._csv.write(row, self._step)
        self._log(row_as_table(row, self._step), self.verbosity == "table" and not self.live.is_drawn)
        if self._unwritten_params:
            self.record_params({})
        self.live.write(row)
        if self.verbosity == "lines":
            print_line(row_in_one_line(row, self._step, self.line_columns))
        self._sinks.write(row, self._step)
        if self.on_row is not None:
            self.on_row(row, self._step)

    def hold_tabular(self, step: int) -> HeldRow:
        """Return the values recorded since the last call, to be written later as the row of a step."""
        row, self._row = self._row, {}
        return HeldRow(row, int(step))

    def dump_held(self, row: HeldRow, record: Callable[[], None]) -> None:
        """Write a row that `hold_tabular` returned, after `record` has recorded what is known only now.

        Columns keep their places. Values recorded before this call belong to the next row.
        """
        newer, prefixes = self._row, self.tabular_prefixes
        self._row, self.tabular_prefixes = row.values, []
        try:
            record()
            self.dump_tabular(row.step)
        finally:
            self._row, self.tabular_prefixes = newer, prefixes

    # ---- files ----

    def save_itr_params(self, itr: int, params: Mapping[str, object]) -> list[Path]:
        """Save the snapshot of an iteration, from 0, under the names of the snapshot mode, and return its files.

        There is none without a directory, or if the disk is full or does not answer. `params` are plain data, see
        `save_snapshot`.
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
        """Merge settings by name into `params.json`, converted by `to_json`; they replace those of the same name."""
        if self.directory is None:
            return
        path = self.directory / "params.json"
        self._unwritten_params |= to_json(params)
        with self._disk_may_fail("params.json"):
            known, wrong = read_json(path, needed=False, disk_may_fail=False)
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
        """Continue after the rows of a checkpoint: later rows of `progress.csv` are removed."""
        self._n_rows, self._step = state["n_rows"], state["step"]
        self._row = dict(state.get("row", self._row))  # absent in checkpoints of earlier versions, as is "waiting"
        self._sinks.rewind(self._step)
        if self._csv is None:
            return
        found = self._csv.rewind(self._n_rows, state["keys"], state.get("waiting", ()))
        if found < self._n_rows:
            self.warn(
                f"the checkpoint was made after {self._n_rows} rows, {self._csv.path} has "
                f"{found}; the log continues from there. Was the run resumed in another directory?"
            )
            self._n_rows = found  # else the next checkpoint would keep rows that come after it

    def close(self, outcome: str = "finished") -> None:
        """Close the sinks, each of them even if another fails; the outcome is that of `RunSink.end`."""
        self._sinks.close(outcome)
        if self._csv is not None:
            with self._disk_may_fail("the last rows of the log"):
                self._csv.close()
        if self._unwritten_params:
            self.record_params({})

    @contextlib.contextmanager
    def _disk_may_fail(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in MAY_PASS:
                raise
            self.warn(f"{what} was not written, the run goes on without: {error}")


class SilentLogger(Logger):
    """Logger of a replica that is not the first: it writes nothing, and keeps warnings for a row of replica 0."""

    is_silent: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._warnings: list[str] = []

    def _log(self, text: str, is_shown: bool, with_prefix: bool = True) -> None:
        pass

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self._warnings.append(text)

    def warn_once(self, key: str, text: str) -> None:
        """Do nothing: what is said once is found by all replicas."""

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def record_tabular(self, key: str, value: object) -> None:
        """Do nothing."""

    def record_tabular_misc_stat(self, key: str, values: object, placement: Literal["front", "back"] = "back") -> None:
        """Do nothing: statistics would wait for the device."""


def check_choices(verbosity: str, snapshot_mode: str, snapshot_gap: int) -> None:
    """Raise ValueError unless there are such a verbosity and snapshot settings."""
    if verbosity not in get_args(Verbosity):
        raise ValueError(f"verbosity: got {verbosity!r}, expected one of {get_args(Verbosity)}.")
    check_snapshot_settings(snapshot_mode, snapshot_gap)


def _to_cell(key: str, value: object) -> Cell:
    """Return a value of a row as a plain number or text."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic) and np.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str):
        return value
    raise TypeError(
        f"recording {key} for the log: got {type(value).__name__}, expected a number, a text or an "
        "array of one element. Use record_tabular_misc_stat for many values."
    )


def to_numbers(key: str, values: object) -> np.ndarray:
    """Return the values of a statistic, which `key` names, as float64 [n]; TypeError if they are no numbers."""
    try:
        if isinstance(values, torch.Tensor):
            # Through float64 on the torch side: numpy has no bfloat16.
            return values.detach().to("cpu", torch.float64).numpy().ravel()
        if isinstance(values, Iterable) and not isinstance(values, np.ndarray):
            values = [float(value) for value in values]
        return np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"statistics of {key} for the log: {error}; expected numbers, scalar tensors, an array "
            "or a tensor. Flatten nested values first."
        ) from error


@contextlib.contextmanager
def _pushed(prefixes: list[str], text: str) -> Iterator[None]:
    n = len(prefixes)
    prefixes.append(text)
    try:
        yield
    finally:
        del prefixes[n:]
