"""Base of the sinks of experiment trackers: one run of the tracker for each run directory, also after a resume."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rlpyt.logging.files import write_json
from rlpyt.logging.sinks import Row, RunSink
from rlpyt.run_records import read_json

RECORD = "sinks.json"
"""File of a run with the runs of its trackers: by kind, the id, the step of the last row, and names with numbers."""


class TrackerSink(RunSink):
    """Base of the sink of a tracker, whose run has the settings of this run, its rows by CumSteps, and its outcome.

    The id of the tracker's run is kept in the run directory, so that a run that goes on after a stop goes on there too.
    Rows that come again then, after a checkpoint, are left out. A row does not wait for settings that could not be
    logged.
    """

    kind: ClassVar[str]
    """Name in the record."""
    finish_seconds: float = 60.0
    """Most seconds that the last call may take at the end of the run."""

    def begin(self, directory: Path) -> None:
        """Open the run of the tracker: that of an earlier start, or a new one."""
        self._directory = directory
        record = self._records().get(self.kind, {})
        self._last_step = record.get("last_step", -1)
        # Rows of this start may share a step: a script of the user's that sets none logs all at step 0.
        self._known_step, self._has_settings = self._last_step, False
        self.names = NamesApart(self.name_of, numbered=record.get("names", {}))
        self._id = self.open(directory, record.get("id"))
        self._keep()

    def write(self, row: Row, step: int) -> None:
        """Log a row, unless an earlier start has done so; the first one of a start comes after the settings."""
        try:
            if not self._has_settings:
                self.log_settings(json.loads((self._directory / "params.json").read_text()))
                self._has_settings = True
        finally:
            if step > self._known_step:
                self.log(row, step)
                self._last_step = step
                self._keep()

    def close(self) -> None:
        """Do nothing; `end` has closed the run of the tracker."""

    def name_of(self, name: str) -> str:
        """Return the name of a setting or column in the tracker, as far as it may have one."""
        return name

    def end(self, outcome: str) -> None:
        """Finish the run of the tracker; the end of this run must not hang."""
        within(self.finish_seconds, lambda: self.finish(outcome), f"the last call of {self.kind}")

    def finish(self, outcome: str) -> None:
        """Log the outcome, and wait until all is sent; does nothing by default."""

    @abstractmethod
    def open(self, directory: Path, known: str | None) -> str:
        """Open the run `known` to go on with it, or a new one for the run in a directory; return its id."""

    @abstractmethod
    def log_settings(self, params: Mapping[str, object]) -> None:
        """Log the content of params.json."""

    @abstractmethod
    def log(self, row: Row, step: int) -> None:
        """Log a row."""

    def _records(self) -> dict[str, Any]:
        return read_json(self._directory / RECORD, needed=False)[0]

    def _keep(self) -> None:
        record = {"id": self._id, "last_step": self._last_step}
        # Columns may come in another order after a resume.
        names = {"names": self.names.numbered} if self.names.numbered else {}
        write_json(self._directory / RECORD, {**self._records(), self.kind: {**record, **names}})


class NamesApart:
    """Names that a tracker takes, one for each name here: where two would have the same, the later one gets a number.

    `name_of` returns a name that the tracker takes. Names of an earlier start that have numbers keep them.
    """

    def __init__(
        self, name_of: Callable[[str], str], longest: int = 250, numbered: Mapping[str, str] | None = None
    ) -> None:
        self._name_of, self._longest = name_of, longest
        self.numbered = dict(numbered or {})
        """Names that got a number, and what they are in the tracker."""
        self._found = dict(self.numbered)
        self._taken = set(self._found.values())

    def of(self, names: Iterable[str]) -> dict[str, str]:
        """Return the name in the tracker for each name; those that may stay as they are come first."""
        wanted = {name: self._name_of(name)[: self._longest] for name in names if name not in self._found}
        for name, short in sorted(wanted.items(), key=lambda item: item[0] != item[1]):
            number, unique = 1, short
            while unique in self._taken:
                number += 1
                unique = f"{short[: self._longest - 5]}_{number}"
            self._taken.add(unique)
            self._found[name] = unique
            if unique != short:
                self.numbered[name] = unique
        return {name: self._found[name] for name in names}


def within(seconds: float, call: Callable[[], object], what: str) -> None:
    """Make a call in a thread, and leave it alone after some seconds, with a TimeoutError."""
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
