"""A run that goes on from its directory alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from rlpyt.logging import Sink, Verbosity, logger_context
from rlpyt.logging.checkpoint_files import Content
from rlpyt.logging.segments import CheckpointError
from rlpyt.run_records import CHECKPOINTS
from rlpyt.runners.from_params import RecordError, chose_settings, read_params, runner_from_params
from rlpyt.runners.hooked import HookedRun


class ResumableRun(HookedRun):
    """Run that can be made again from its record, and go on from its newest checkpoint."""

    @classmethod
    def resume(
        cls,
        run_dir: str | os.PathLike[str],
        *,
        known: Iterable[object] = (),
        trusted: Iterable[str] = (),
        sinks: Sequence[Sink] = (),
        verbosity: Verbosity | None = None,
        **changes: object,
    ) -> Self:
        """Go on with a run from its directory alone, to its end; return the runner.

            runner = MinibatchRl.resume("data/run_0", n_steps=2e6)

        Args:
            run_dir: directory of the run, `run_<run_ID>`, with its `params.json` and a checkpoint.
            known: classes and functions of yours that the record may name; see `runner_from_params`.
            trusted: modules of yours that may be imported.
            sinks: further destinations of rows, which the record does not have; see `logger_context`.
            verbosity: what is printed, see `logger_context`; None is that of the record.
            **changes: settings instead of those recorded, as far as they may change.

        Raises:
            CheckpointError: if there is no checkpoint, or none is whole.
            RecordError: if the record is damaged, or names what is not trusted.
            ValueError: if a setting has changed with which the run would be another one.
            TypeError: if the run is one of another class.
        """
        directory = Path(os.path.abspath(run_dir))
        if not directory.name.startswith("run_") or not any((directory / CHECKPOINTS).glob("*/manifest.json")):
            raise CheckpointError(
                f"{cls.__name__}.resume: got {run_dir}; expected the directory of a run, run_<run_ID>, with a "
                "checkpoint. A run saves some if checkpoint_interval_steps or checkpoint_interval_minutes is set."
            )
        params = read_params(directory)
        # The device, precision and threads that the run had chosen are in the checkpoint.
        if chose_settings(params["runner"]):
            changes.setdefault("settings", params["runner"]["settings"].get("settings"))
        runner = runner_from_params(directory, known=known, trusted=trusted, **changes)
        if not isinstance(runner, cls):
            name = type(runner).__name__
            raise TypeError(f"{cls.__name__}.resume: {directory} is a run of {name}; expected {name}.resume.")
        with logger_context(
            directory.parent,
            directory.name.removeprefix("run_"),
            params.get("name", ""),
            sinks=sinks,
            resume=True,
            **{
                **logger_settings(directory, params.get("logger", {})),
                **({"verbosity": verbosity} if verbosity else {}),
            },
        ):
            runner.train()
        return runner


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
