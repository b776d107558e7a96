"""Sink of Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from rlpyt.logging.sinks import Row
from rlpyt.logging.tracker_sink import TrackerSink
from rlpyt.utils.packages import optional_package


@dataclass(eq=False)
class WandbSink(TrackerSink):
    """Sink that logs a run to Weights & Biases.

    Raises:
        ImportError: if wandb is not installed.
    """

    kind: ClassVar[str] = "wandb"

    project: str
    """Name of the project."""
    entity: str | None = None
    """User or team; None is the default of the account."""
    name: str | None = None
    """Name of the run; None is that of the run directory."""
    group: str | None = None
    """Group of the run, such as that of its seeds."""
    tags: Sequence[str] = ()
    """Tags of the run."""
    mode: Literal["online", "offline", "shared"] | None = None
    """Where rows go; "offline" writes them into the run directory, for `wandb sync`. None asks WANDB_MODE."""
    finish_seconds: float = 60.0
    """Most seconds that the last upload may take at the end of the run."""

    def __post_init__(self) -> None:
        self._wandb = optional_package("wandb", type(self).__name__, "wandb")

    def open(self, directory: Path, known: str | None) -> str:
        """Open a run, and return its id."""
        self._run = self._wandb.init(
            project=self.project,
            entity=self.entity,
            name=self.name or directory.name,
            group=self.group,
            tags=list(self.tags) or None,
            mode=self.mode,
            dir=str(directory),
            id=known,
            resume="allow" if known else None,
            reinit="create_new",  # runs of one script after each other
            settings=self._wandb.Settings(
                console="off",  # debug.log has the text
                # Of the script too, which waits for it at its exit. Less than the bound around it, so that wandb's own
                # error is the one that is told.
                finish_timeout=0.8 * self.finish_seconds,
                finish_timeout_raises=True,
            ),
        )
        return str(self._run.id)

    def log_settings(self, params: Mapping[str, object]) -> None:
        """Log the content of params.json."""
        self._run.config.update(dict(params), allow_val_change=True)

    def log(self, row: Row, step: int) -> None:
        """Log a row."""
        self._run.log(dict(row), step=step)

    def finish(self, outcome: str) -> None:
        """Log the outcome, and wait for the upload."""
        self._run.summary["outcome"] = outcome
        self._run.finish(exit_code=0 if outcome == "finished" else 1)
