"""A run that goes on from its directory alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlpyt.logging import Sink, Verbosity, logger_context
from rlpyt.logging.checkpoint_files import Content
from rlpyt.logging.segments import CheckpointError
from rlpyt.run_records import CHECKPOINTS
from rlpyt.runners.from_params import RecordError


def resumable(run_dir: str | os.PathLike[str], who: str) -> Path:
    """Return the directory of a run that can go on.

    Args:
        run_dir: directory of the run, `run_<run_ID>`.
        who: asks, for messages.

    Raises:
        CheckpointError: if it is none, or has no checkpoint.
    """
    directory = Path(os.path.abspath(run_dir))
    if not directory.name.startswith("run_") or not any((directory / CHECKPOINTS).glob("*/manifest.json")):
        raise CheckpointError(
            f"{who}: got {run_dir}; expected the directory of a run, run_<run_ID>, with a "
            "checkpoint. A run saves some if checkpoint_interval_steps or checkpoint_interval_minutes is set."
        )
    return directory


@contextmanager
def logging_on(directory: Path, params: Content, sinks: Sequence[Sink], verbosity: Verbosity | None) -> Iterator[None]:
    """Go on with the log of a run while the block runs.

    Args:
        directory: of the run.
        params: content of its params.json.
        sinks: further destinations of rows, which the record does not have.
        verbosity: what is printed; None is that of the record.
    """
    settings = logger_settings(directory, params.get("logger", {})) | ({"verbosity": verbosity} if verbosity else {})
    run_ID = directory.name.removeprefix("run_")
    with logger_context(directory.parent, run_ID, params.get("name", ""), sinks=sinks, resume=True, **settings):
        yield


def logger_settings(directory: Path, recorded: Mapping[str, object]) -> Content:
    """Return the arguments of `logger_context` that a run keeps when it goes on, or starts again.

    Raises:
        RecordError: if the record has something else there.
    """
    defaults: Content = {
        **{"snapshot_mode": "last", "snapshot_gap": 1, "use_summary_writer": False},
        **{"verbosity": "table", "line_columns": []},
    }
    found = {name: recorded.get(name, default) for name, default in defaults.items()}
    wrong = next((name for name, x in found.items() if type(x) is not type(defaults[name])), None)
    if wrong is not None:
        raise RecordError(
            f"resume: {directory / 'params.json'} has {found[wrong]!r:.100} under 'logger', {wrong!r}; expected "
            f"{type(defaults[wrong]).__name__}, as {defaults[wrong]!r}."
        )
    return found
