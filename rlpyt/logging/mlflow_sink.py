"""Sink of MLflow."""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rlpyt.logging.sinks import Row
from rlpyt.logging.tracker_sink import NamesApart, TrackerSink, flat
from rlpyt.utils.packages import optional_package

_STATUSES = {"finished": "FINISHED", "failed": "FAILED"}  # all others are KILLED
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
_LONGEST = 500  # characters of a parameter or a text that every store takes


@dataclass(eq=False)
class MlflowSink(TrackerSink):
    """Sink that logs a run to MLflow.

    Names of settings and columns lose what MLflow does not accept: `Diagnostics/CumTime (s)` is
    `Diagnostics/CumTime s`. Where two would then have one name, the later one gets a number, as in `x0` and `x0_2`.

    Raises:
        ImportError: if mlflow is not installed.
    """

    kind: ClassVar[str] = "mlflow"

    experiment: str = "Default"
    """Name of the experiment, which is made if there is none."""
    tracking_uri: str | None = None
    """Server or database, such as `sqlite:///mlflow.db`; None asks MLFLOW_TRACKING_URI. MLflow takes a folder only
    where MLFLOW_ALLOW_FILE_STORE is true."""
    name: str | None = None
    """Name of the run; None is that of the run directory."""
    finish_seconds: float = 60.0
    """Most seconds that the last call may take at the end of the run."""

    def __post_init__(self) -> None:
        self._mlflow = optional_package("mlflow", type(self).__name__, "mlflow")

    def name_of(self, name: str) -> str:
        """Return a name without the signs that MLflow refuses, and not one that would lead to another folder."""
        name = _NOT_IN_NAMES.sub("", name)
        if posixpath.normpath(name) != name or name.startswith("/"):
            name = name.replace("/", ".")
        return f"_{name}" if name in ("", ".") or name.startswith("..") else name

    def open(self, directory: Path, known: str | None) -> str:
        """Open a run, and return its id."""
        self._client = self._mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        if known is not None:
            self._client.update_run(known, status="RUNNING")
            return known
        experiment = self._client.get_experiment_by_name(self.experiment)
        number = experiment.experiment_id if experiment else self._client.create_experiment(self.experiment)
        return str(self._client.create_run(number, run_name=self.name or directory.name).info.run_id)

    def log_settings(self, params: Mapping[str, object]) -> None:
        """Log the content of params.json; MLflow lets no parameter of a run change later."""
        settings = flat(params)
        names = NamesApart(self.name_of).of(settings)
        known = self._client.get_run(self._id).data.params  # an earlier start may have ended before its first row
        Param = self._mlflow.entities.Param
        missing = [Param(names[key], str(x)[:_LONGEST]) for key, x in settings.items() if names[key] not in known]
        self._client.log_batch(self._id, params=missing)

    def log(self, row: Row, step: int) -> None:
        """Log a row: numbers as metrics, text as tags."""
        now, names = int(1000 * time.time()), self.names.of(row)
        Metric, Tag = self._mlflow.entities.Metric, self._mlflow.entities.RunTag
        metrics = [Metric(names[key], float(x), now, step) for key, x in row.items() if not isinstance(x, str)]
        tags = [Tag(names[key], x[:_LONGEST]) for key, x in row.items() if isinstance(x, str)]
        self._client.log_batch(self._id, metrics=metrics, tags=tags)

    def finish(self, outcome: str) -> None:
        """Log the outcome."""
        self._client.set_tag(self._id, "outcome", outcome)
        self._client.set_terminated(self._id, _STATUSES.get(outcome, "KILLED"))
