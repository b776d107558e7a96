"""Sink of trackio."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from rlpyt.logging.sinks import RefusedBySink, Row, optional_package
from rlpyt.logging.tracker_sink import NamesApart, TrackerSink, within


class _Run(Protocol):
    """Run of trackio, as far as it is used."""

    def log(self, metrics: dict[str, float | int | str], step: int | None = None) -> None: ...

    def finish(self) -> None: ...


@dataclass(eq=False)
class TrackioSink(TrackerSink):
    """Sink that logs a run to trackio, which takes the settings of a run when it opens it: at the first row.

    Raises:
        ImportError: if trackio is not installed.
    """

    kind: ClassVar[str] = "trackio"

    project: str
    """Name of the project."""
    name: str | None = None
    """Name of the run; None is that of the run directory, and some signs that make it the only one."""
    group: str | None = None
    """Group of the run, such as that of its seeds."""
    space_id: str | None = None
    """Space of Hugging Face that shows the project; None keeps it on this machine."""
    finish_seconds: float = 60.0
    """Most seconds that the last upload may take at the end of the run."""

    def __post_init__(self) -> None:
        """Refuse a machine without trackio."""
        self._trackio = optional_package("trackio", type(self).__name__, "trackio")

    def open(self, directory: Path, known: str | None) -> str:
        """Return the name of the run, which is its id."""
        self._run: _Run | None = None
        return known or f"{self.name or directory.name}-{secrets.token_hex(3)}"

    def log_settings(self, params: Mapping[str, object]) -> None:
        """Open the run with the content of params.json; trackio keeps names that begin with "_" for itself.

        Raises:
            RefusedBySink: if trackio refuses one of the settings, or all; the run is open without these.
        """
        names = NamesApart(lambda name: name.lstrip("_") or "setting").of(params)
        config = {names[name]: x for name, x in params.items()}
        if (refusal := self._refusal_of(config)) is None:
            return
        for name in config:
            if self._refusal_of({key: x for key, x in config.items() if key != name}) is None:
                raise RefusedBySink(f"trackio does not take the setting {name!r}: {refusal}") from refusal
        if self._refusal_of({}) is None:
            raise RefusedBySink(f"trackio does not take the settings {sorted(config)}: {refusal}") from refusal
        raise refusal

    def _refusal_of(self, config: dict[str, object]) -> Exception | None:
        """Open the run with some settings; return the error if trackio refuses them."""
        try:
            self._run = self._opened(config)
        except Exception as error:
            if not self.is_refusal(error):
                raise
            return error
        return None

    def _opened(self, config: dict[str, object]) -> _Run:
        run: _Run = self._trackio.init(
            project=self.project,
            name=self._id,
            group=self.group,
            space_id=self.space_id,
            config=config,
            resume="allow",
            embed=False,
        )
        return run

    def log(self, row: Row, step: int) -> None:
        """Log a row."""
        run = self._run
        if run is not None:
            self.put("columns", row, lambda part: run.log(part, step=step))

    def end(self, outcome: str) -> None:
        """Log the outcome, and wait for the upload."""
        run = self._run
        if run is not None:
            run.log({"outcome": outcome}, step=self._last_step)
            within(self.finish_seconds, run.finish, "the last upload of trackio")
