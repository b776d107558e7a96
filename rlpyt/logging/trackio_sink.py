"""Sink of trackio."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlpyt.logging.sinks import Row
from rlpyt.logging.tracker_sink import NamesApart, TrackerSink
from rlpyt.utils.packages import optional_package


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
        self._trackio = optional_package("trackio", type(self).__name__, "trackio")

    def open(self, directory: Path, known: str | None) -> str:
        """Return the name of the run, which is its id."""
        self._run: Any = None
        return known or f"{self.name or directory.name}-{secrets.token_hex(3)}"

    def log_settings(self, params: Mapping[str, object]) -> None:
        """Open the run with the content of params.json."""
        names = NamesApart(lambda name: name.lstrip("_") or "setting").of(params)  # trackio keeps those with "_"
        self._run = self._trackio.init(
            project=self.project,
            name=self._id,
            group=self.group,
            space_id=self.space_id,
            config={names[name]: x for name, x in params.items()},
            resume="allow",
            embed=False,
        )

    def log(self, row: Row, step: int) -> None:
        """Log a row."""
        if self._run is not None:
            self._run.log(dict(row), step=step)

    def finish(self, outcome: str) -> None:
        """Log the outcome, and wait for the upload."""
        if self._run is not None:
            self._run.log({"outcome": outcome}, step=self._last_step)
            self._run.finish()
