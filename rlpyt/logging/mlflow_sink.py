"""Sink of MLflow."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rlpyt.logging.sinks import Row, optional_package
from rlpyt.logging.tracker_sink import TrackerSink, flat, within

_STATUSES = {"finished": "FINISHED", "failed": "FAILED"}  # all others are KILLED
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
_LONGEST = 500  # characters of a parameter that every store takes
_PARAMS_A_CALL = 100


@dataclass(eq=False)
class MlflowSink(TrackerSink):
    """Sink that logs a run to MLflow.

    Names of columns lose what MLflow does not accept: `Diagnostics/CumTime (s)` is `Diagnostics/CumTime s`.

    Raises:
        ImportError: if mlflow is not installed.
    """

    kind: ClassVar[str] = "mlflow"

    experiment: str = "Default"
    """Name of the experiment, which is made if there is none."""
    tracking_uri: str | None = None
    """Server or folder; None asks MLFLOW_TRACKING_URI."""
    name: str | None = None
    """Name of the run; None is that of the run directory."""
    finish_seconds: float = 60.0
    """Most seconds that the last call may take at the end of the run."""

    def __post_init__(self) -> None:
        """Refuse a machine without MLflow."""
        self._mlflow = optional_package("mlflow", type(self).__name__, "mlflow")
        self._entities = optional_package("mlflow.entities", type(self).__name__, "mlflow")

    def open(self, directory: Path, known: str | None) -> str:
        """Open a run, and return its id."""
        self._client = self._mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        self._is_new = known is None
        if known is not None:
            self._client.update_run(known, status="RUNNING")
            return known
        experiment = self._client.get_experiment_by_name(self.experiment)
        number = experiment.experiment_id if experiment else self._client.create_experiment(self.experiment)
        return str(self._client.create_run(number, run_name=self.name or directory.name).info.run_id)

    def log_settings(self, params: Mapping[str, object]) -> None:
        """Log the content of params.json; MLflow lets no parameter of a run change later."""
        if not self._is_new:
            return
        made = [
            self._entities.Param(_NOT_IN_NAMES.sub("", key)[:250], str(value)[:_LONGEST])
            for key, value in flat(params).items()
        ]
        for first in range(0, len(made), _PARAMS_A_CALL):
            self._client.log_batch(self._id, params=made[first : first + _PARAMS_A_CALL])

    def log(self, row: Row, step: int) -> None:
        """Log a row: numbers as metrics, text as tags."""
        now = int(1000 * time.time())
        names = {key: _NOT_IN_NAMES.sub("", key) for key in row}
        numbers = {names[key]: x for key, x in row.items() if not isinstance(x, str)}
        texts = {names[key]: x for key, x in row.items() if isinstance(x, str)}
        self._client.log_batch(
            self._id,
            metrics=[self._entities.Metric(name, float(x), now, step) for name, x in numbers.items()],
            tags=[self._entities.RunTag(name, x) for name, x in texts.items()],
        )

    def end(self, outcome: str) -> None:
        """Log the outcome."""

        def finish() -> None:
            self._client.set_tag(self._id, "outcome", outcome)
            self._client.set_terminated(self._id, _STATUSES.get(outcome, "KILLED"))

        within(self.finish_seconds, finish, "the last call of MLflow")
