"""Base of the sinks of experiment trackers: one run of the tracker for each run directory, also after a resume."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, TypedDict, cast

from rlpyt.logging.files import write_json
from rlpyt.logging.sinks import Row, RunSink
from rlpyt.run_records import read_json

RECORD = "sinks.json"
"""File of a run with the runs of its trackers: by kind, the id and the step of the last row."""


class _Record(TypedDict):
    id: str
    last_step: int


class TrackerSink(RunSink):
    """Base of the sink of a tracker, whose run has the settings of this run, its rows by CumSteps, and its outcome.

    The id of the tracker's run is kept in the run directory, so that a run that goes on after a stop goes on there too.
    Rows that come again then, after a checkpoint, are left out.
    """

    kind: ClassVar[str]
    """Name in the record."""

    def begin(self, directory: Path) -> None:
        """Open the run of the tracker: that of an earlier start, or a new one."""
        self._directory = directory
        record = self._records().get(self.kind)
        self._last_step = record["last_step"] if record else -1
        # Rows of this start may share a step: a script of the user's that sets none logs all at step 0.
        self._known_step, self._has_settings = self._last_step, False
        self._id = self.open(directory, record["id"] if record else None)
        self._keep()

    def write(self, row: Row, step: int) -> None:
        """Log a row, unless an earlier start has done so; the first one of a start comes after the settings."""
        if not self._has_settings:
            self.log_settings(json.loads((self._directory / "params.json").read_text()))
            self._has_settings = True
        if step > self._known_step:
            self.log(row, step)
            self._last_step = step
            self._keep()

    def close(self) -> None:
        """Do nothing; `end` has closed the run of the tracker."""

    @abstractmethod
    def open(self, directory: Path, known: str | None) -> str:
        """Open a run, and return its id.

        Args:
            directory: of this run.
            known: id of the run to go on with; None for a new one.
        """

    @abstractmethod
    def log_settings(self, params: Mapping[str, object]) -> None:
        """Log the content of params.json."""

    @abstractmethod
    def log(self, row: Row, step: int) -> None:
        """Log a row."""

    def _records(self) -> dict[str, _Record]:
        path = self._directory / RECORD
        return cast(dict[str, _Record], read_json(path, needed=False)[0])

    def _keep(self) -> None:
        record: _Record = {"id": self._id, "last_step": self._last_step}
        write_json(self._directory / RECORD, {**self._records(), self.kind: record})


def within(seconds: float, call: Callable[[], object], what: str) -> None:
    """Make a call in a thread, and leave it alone after some seconds: the end of a run must not hang.

    Raises:
        TimeoutError: if it takes longer.
    """
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name=what)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"{what} has taken more than {seconds:g} seconds; the run ends without it.")
    if errors:
        raise errors[0]


def flat(params: Mapping[str, object], place: str = "") -> dict[str, object]:
    """Return nested settings by their places, such as `runner.settings.algo.settings.learning_rate`."""
    found: dict[str, object] = {}
    for key, value in params.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{place}{key}.")
        else:
            found[f"{place}{key}"] = value
    return found
