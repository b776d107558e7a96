"""The logger of the run that is going on: made, made current, and put away by `logger_context`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

from rlpyt.logging.interrupt import end_in_one_line
from rlpyt.logging.params import run_params
from rlpyt.logging.run_directory import IfTaken, hold_run_directory, record_status
from rlpyt.logging.run_logger import Logger
from rlpyt.logging.sinks import Sink, TensorBoardSink
from rlpyt.logging.snapshots import SnapshotMode, check_snapshot_settings

_CURRENT: ContextVar[Logger | None] = ContextVar("rlpyt_logger", default=None)


def current_logger() -> Logger:
    """Return the logger of the enclosing `logger_context`, or else one of the console only.

    A new thread or process starts outside of every context: hand it the logger, or let it log to
    the console.
    """
    logger = _CURRENT.get()
    if logger is None or logger.pid != os.getpid():
        # A forked process has inherited the logger of its parent, whose files are not its own.
        logger = Logger()
        _CURRENT.set(logger)
    return logger


@contextlib.contextmanager
def logger_context(
    log_dir: str | os.PathLike[str],
    run_ID: int | str | None = None,
    name: str = "",
    log_params: Mapping[str, Any] | None = None,
    snapshot_mode: SnapshotMode = "last",
    override_prefix: bool = True,
    use_summary_writer: bool = False,
    sinks: Sequence[Sink] | None = None,
    overwrite: bool = False,
    snapshot_gap: int | None = None,
    resume: bool = False,
    if_taken: IfTaken = "next",
) -> Iterator[Logger]:
    """Log one run into `<log_dir>/run_<run_ID>`, held by this process until the block ends.

    The directory gets `progress.csv`, `debug.log`, `params.json`, snapshots, `run.lock` and
    `status.json`, which says running, finished, failed (with the traceback) or interrupted.

    A run that is going on or has left results is never written over: a run with the same ID goes to
    `run_<run_ID>_1`, and the first line of its log says so. Ctrl-C, which goes on to whoever called, ends a script
    with a line instead of a traceback.

    Args:
        log_dir: the directory of the experiment.
        run_ID: of this run, a number or a name; None for the first number that is free.
        name: of the experiment, for `params.json`.
        log_params: settings, for `params.json`; anything that is not JSON becomes its name.
        snapshot_mode: none; last: `params.pkl`; all: `itr_<N>.pkl`; gap: every `snapshot_gap`-th of
            these; last+gap.
        override_prefix: False puts `<cwd>/data/local/<yyyymmdd>/<hhmmss>/` before `log_dir`, unless
            it is absolute or under `<cwd>/data` already.
        use_summary_writer: write TensorBoard events too.
        sinks: where rows go besides the console and `progress.csv`; closed at the end.
        overwrite: remove the records of an earlier run with this ID.
        snapshot_gap: iterations between the snapshots that a mode with gap keeps; None is what `set_snapshot_gap` of
            `rlpyt.logging.logger` set before, else 1.
        resume: append to the records of an earlier run with this ID, if there is one. Training
            begins anew: its steps count from 0.
        if_taken: what to do where the directory is in use, or holds results, and neither `overwrite`
            nor `resume` is set: "next" takes the first free one of `run_<run_ID>_1`,
            `run_<run_ID>_2`, ..., whose end is the run_ID in `params.json`; "refuse" raises.

    Yields:
        The logger, which is also what `current_logger` returns while the block runs.

    Raises:
        RunDirectoryError: if the directory is in use, or holds results, and it is to be this one.
        ValueError: if settings are wrong.
        ImportError: if `use_summary_writer` is set and tensorboard is missing.
    """
    if snapshot_gap is None:
        outside = current_logger()
        snapshot_gap = outside.snapshot_gap if outside.directory is None else 1
    check_snapshot_settings(snapshot_mode, snapshot_gap)
    parent = Path(log_dir) if override_prefix else _with_prefix(Path(log_dir))
    with (
        hold_run_directory(parent, run_ID, overwrite=overwrite, resume=resume, if_taken=if_taken) as directory,
        record_status(directory),
        contextlib.ExitStack() as stack,
    ):
        sinks = [*(sinks or ()), *([TensorBoardSink(directory)] if use_summary_writer else ())]
        logger = Logger(directory, sinks, snapshot_mode=snapshot_mode, snapshot_gap=snapshot_gap)
        stack.callback(logger.close)
        stack.callback(_CURRENT.reset, _CURRENT.set(logger))
        found = directory.name.removeprefix("run_")
        taken = run_ID is not None and found != str(run_ID)
        logger.log(f"run directory: {directory}" + (f" (run_{run_ID} is taken by another run)" if taken else ""))
        logger.record_params(run_params(log_params, name, _actual_id(run_ID, found)))
        with end_in_one_line(logger):
            yield logger


def _actual_id(run_ID: int | str | None, found: str) -> int | str:
    """Return the ID of a run whose directory is `run_<found>`, a number where it was to be one."""
    if run_ID is None:
        return int(found)
    return run_ID if found == str(run_ID) else found


def _with_prefix(log_dir: Path) -> Path:
    data = Path.cwd() / "data"
    if data in (Path.cwd() / log_dir).parents:
        return log_dir
    return data / "local" / datetime.now().strftime("%Y%m%d/%H%M%S") / log_dir
