"""The logger of a run: text, rows of numbers, settings and snapshots, each to its file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from rlpyt.logging.files import NO_SPACE, write_json
from rlpyt.logging.params import to_json
from rlpyt.logging.sinks import STATISTICS, ConsoleTable, CsvSink, Sink, print_line
from rlpyt.logging.snapshots import (
    SnapshotMode,
    check_snapshot_settings,
    save_snapshot,
    snapshot_names,
)

_STATISTICS: Mapping[str, Callable[[np.ndarray], Any]] = dict(
    zip(STATISTICS, (np.mean, np.std, np.median, np.min, np.max), strict=True)
)


class Logger:
    """Writes what happens in a run to the console and, given a directory, to its files.

    The files are `progress.csv`, `debug.log`, `params.json` and the snapshots. A full disk is
    reported and does not end the run: what could not be written is tried again next time.

    Args:
        directory: of the run; None for a logger of the console only.
        sinks: where rows go besides the console and `progress.csv`; closed with the logger.
        snapshot_mode: which snapshots are kept, see `snapshot_names`.
        snapshot_gap: iterations between snapshots, for the modes with gap.

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
    ) -> None:
        check_snapshot_settings(snapshot_mode, snapshot_gap)
        self.directory = None if directory is None else Path(directory)
        self.snapshot_mode = snapshot_mode
        self.snapshot_gap = snapshot_gap
        self.pid = os.getpid()
        self._prefix = ""
        self._tabular_prefix = ""
        self._row: dict[str, float | int | str] = {}
        self._n_rows = 0
        self._step = 0
        self._said: set[str] = set()
        self._csv = None if self.directory is None else CsvSink(self.directory / "progress.csv")
        self._sinks: list[Sink] = [ConsoleTable(self.log), *sinks]
        if self._csv is not None:
            self._sinks.insert(0, self._csv)

    def log(self, text: str) -> None:
        """Print text, and append it to `debug.log` with the time before each line."""
        lines = [self._prefix + line for line in text.split("\n")]
        if self.directory is not None:
            time = datetime.now().isoformat(sep=" ", timespec="milliseconds")
            content = "".join(f"{time} | {line}\n" for line in lines)
            # The text is on the console too: no error of the disk is worth a run.
            with contextlib.suppress(OSError), open(self.directory / "debug.log", "ab") as file:
                file.write(content.encode(errors="backslashreplace"))
        print_line("\n".join(lines))

    def warn_once(self, key: str, text: str) -> None:
        """Log a warning the first time that `key` comes."""
        if key not in self._said:
            self._said.add(key)
            self.log(f"WARNING: {text}")

    @contextlib.contextmanager
    def prefix(self, text: str) -> Iterator[None]:
        """Put `text` before every line of text while the block runs; blocks nest."""
        outer, self._prefix = self._prefix, self._prefix + text
        try:
            yield
        finally:
            self._prefix = outer

    @contextlib.contextmanager
    def tabular_prefix(self, text: str) -> Iterator[None]:
        """Put `text` before every column name recorded while the block runs; blocks nest."""
        outer, self._tabular_prefix = self._tabular_prefix, self._tabular_prefix + text
        try:
            yield
        finally:
            self._tabular_prefix = outer

    def record_tabular(self, key: str, value: Any) -> None:
        """Put a value into the next row; the last one of a key stands.

        Args:
            key: name of the column, `tabular_prefix` not included.
            value: a number, a text, or an array or tensor of one element.

        Raises:
            TypeError: if the value is anything else.
        """
        self._row[self._tabular_prefix + key] = _to_cell(key, value)

    def record_tabular_misc_stat(self, key: str, values: Any, placement: Literal["front", "back"] = "back") -> None:
        """Put Average, Std, Median, Min and Max of some values into the next row.

        Args:
            key: the columns are `<key>Average` and so on.
            values: numbers, scalar tensors, an array or a tensor; none of them gives nan.
            placement: of the key's statistic; front gives `Average<key>`.

        Raises:
            ValueError: if the placement is neither.
            TypeError: if the values are no numbers.
        """
        if placement not in ("front", "back"):
            raise ValueError(f"statistics of {key}: got placement {placement!r}, expected front, back.")
        numbers = _to_numbers(key, values)
        for name, statistic in _STATISTICS.items():
            column = f"{name}{key}" if placement == "front" else f"{key}{name}"
            # Infinities have no Std: nan says so, a warning at every row need not.
            with np.errstate(invalid="ignore"):
                self.record_tabular(column, statistic(numbers) if numbers.size else float("nan"))

    def dump_tabular(self, step: int) -> None:
        """Write what was recorded since the last call as one row to every sink.

        Args:
            step: CumSteps, the x-axis of sinks that have one.
        """
        if not self._row:
            return
        row, self._row = self._row, {}
        self._n_rows += 1
        self._step = int(step)
        for sink in self._sinks:
            with self._disk_may_be_full(f"row {self._n_rows} of the log"):
                sink.write(row, self._step)

    def save_itr_params(self, itr: int, params: Mapping[str, Any]) -> list[Path]:
        """Save the snapshot of an iteration under the names that the snapshot mode gives it.

        Args:
            itr: iteration, from 0.
            params: plain data, see `save_snapshot`.

        Returns:
            The files written; none without a directory or where the disk is full.
        """
        if self.directory is None:
            return []
        saved: list[Path] = []
        for name in snapshot_names(self.snapshot_mode, itr, self.snapshot_gap):
            with self._disk_may_be_full(f"snapshot {name}"):
                save_snapshot(self.directory / name, params)
                saved.append(self.directory / name)
        if saved and "snapshots" not in self._said:
            self._said.add("snapshots")
            self.log(f"first snapshot: {saved[0]}")
        return saved

    def record_params(self, params: Mapping[str, Any]) -> None:
        """Merge settings into `params.json`; see `to_json` for what becomes of each.

        Args:
            params: settings by name; those recorded before under the same name are replaced.
        """
        if self.directory is None:
            return
        path = self.directory / "params.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        with self._disk_may_be_full("params.json"):
            write_json(path, known | to_json(params))

    def state_dict(self) -> dict[str, Any]:
        """Return how far the rows have come: plain data, for a checkpoint."""
        keys = list(self._csv.keys) if self._csv else []
        return {"n_rows": self._n_rows, "step": self._step, "keys": keys}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the rows of a checkpoint: later rows of `progress.csv` are removed.

        Args:
            state: of `state_dict`.
        """
        self._n_rows, self._step = state["n_rows"], state["step"]
        if self._csv is None:
            return
        found = self._csv.rewind(self._n_rows, state["keys"])
        if found < self._n_rows:
            self.log(
                f"WARNING: the checkpoint was made after {self._n_rows} rows, {self._csv.path} has "
                f"{found}; it goes on from there. Was the run resumed in another directory?"
            )

    def close(self) -> None:
        """Close the sinks, each of them even if another fails."""
        with contextlib.ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(self._close, sink)
            self._sinks = []

    def _close(self, sink: Sink) -> None:
        with self._disk_may_be_full("the last rows of the log"):
            sink.close()

    @contextlib.contextmanager
    def _disk_may_be_full(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self.log(f"WARNING: {what} was not written, the run goes on without: {error}")


def _to_cell(key: str, value: Any) -> float | int | str:
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


def _to_numbers(key: str, values: Any) -> np.ndarray:
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
