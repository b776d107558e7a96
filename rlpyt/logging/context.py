"""Logger of the current run: `logger_context` makes it, makes it current, and closes it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from types import TracebackType

from rlpyt.logging.params import run_params
from rlpyt.logging.run_directory import IfTaken, Resume, hold_run_directory, outcome_of, record_status
from rlpyt.logging.run_logger import Logger, SilentLogger, Verbosity, check_choices
from rlpyt.logging.sinks import Sink
from rlpyt.logging.snapshots import SnapshotMode
from rlpyt.logging.tensorboard_sink import TensorBoardSink
from rlpyt.utils.arguments import named_arguments
from rlpyt.utils.launched import Launched

_LOGGED = "_was_logged_by_rlpyt"
_CURRENT: ContextVar[Logger | None] = ContextVar("rlpyt_logger", default=None)


def current_logger() -> Logger:
    """Return the logger of the enclosing `logger_context`, or else a logger of the console only.

    A new thread or process starts outside of every context: give it the logger, or let it log to the console.
    """
    logger = _CURRENT.get()
    if logger is None or logger.pid != os.getpid():
        # A forked process has inherited the logger of its parent, whose files are not its own.
        logger = Logger()
        _CURRENT.set(logger)
    return logger


@contextlib.contextmanager
def silent_context() -> Iterator[Logger]:
    """Let the current logger write nothing while the block runs: this is a replica whose rows another one writes."""
    token = _CURRENT.set(SilentLogger())
    try:
        yield current_logger()
    finally:
        _CURRENT.reset(token)


def log_to(logger: Logger) -> None:
    """Make a logger current in this process from now on, where it runs for another one."""
    _CURRENT.set(logger)


@named_arguments
@contextlib.contextmanager
def logger_context(
    log_dir: str | os.PathLike[str],
    run_ID: int | str | None = None,
    name: str = "",
    log_params: Mapping[str, object] | None = None,
    snapshot_mode: SnapshotMode = "last",
    override_prefix: bool = True,
    use_summary_writer: bool = False,
    sinks: Sequence[Sink] | None = None,
    overwrite: bool = False,
    snapshot_gap: int | None = None,
    resume: Resume = False,
    if_taken: IfTaken = "next",
    verbosity: Verbosity = "table",
    line_columns: Sequence[str] = (),
) -> Iterator[Logger]:
    """Log one run into `<log_dir>/run_<run_ID>`, held by this process until the block ends.

    The directory gets `progress.csv`, `debug.log`, `params.json`, snapshots, `run.lock` and `status.json`. The status
    is running, finished, failed (with the traceback) or interrupted.

    The results of a run are never overwritten by chance. A run whose ID is taken goes to `run_<run_ID>_1`, and the
    first line of its log says so. Ctrl-C is raised again in the caller, but ends a script with one line instead of a
    traceback.

    Under torchrun the process of rank 0 keeps the records. The logger of every other one is silent, and has no
    directory.

    Args:
        log_dir: the directory of the experiment.
        run_ID: a number or a name; None for the first number that is free.
        name: name of the experiment, for `params.json`.
        log_params: settings of yours, for `params.json`; a value that JSON does not have is written as text.
        snapshot_mode: "none"; "last": `params.pkl`; "all": `itr_<N>.pkl` at every row of the log; "gap": `itr_<N>.pkl`
            at itr 0 and where itr + 1 is a multiple of `snapshot_gap`; "last+gap": both.
        override_prefix: False puts `<cwd>/data/local/<yyyymmdd>/<hhmmss>/` before `log_dir`, unless `log_dir` is
            absolute or under `<cwd>/data` already.
        use_summary_writer: whether to write TensorBoard events too.
        sinks: further destinations of rows, besides the console and `progress.csv`, such as `WandbSink`; closed at
            the end.
        overwrite: whether to remove the records of an earlier run with this ID.
        snapshot_gap: iterations between the snapshots that a mode with gap keeps; None is the value that
            `rlpyt.logging.logger.set_snapshot_gap` has set before, else 1.
        resume: whether to go on with an earlier run with this ID, if there is one: rows are appended to its records,
            and a runner goes on from its newest checkpoint. "auto" serves a script that is started again and again: a
            run with a checkpoint goes on. Else it starts, and records that it may have left move to `earlier_<n>/`.
        if_taken: what to do if the directory is in use or holds results, and neither `overwrite` nor `resume` is set.
            "next" takes the first free one of `run_<run_ID>_1`, `run_<run_ID>_2`, ..., and `params.json` has that
            run_ID; "refuse" raises.
        verbosity: what is printed. "table": text, and a table of every row, in a terminal one that is drawn in place;
            "lines": one line for each row, why the run ends early or does nothing, and warnings; "quiet": warnings
            only. The files are the same in any case.
        line_columns: what "lines" shows of a row in place of returns and losses: names of columns such as "Epsilon", or
            of statistics such as "Success", of which it shows the Average. A row shows those that it has.

    Yields:
        The logger, which `current_logger` returns while the block runs.

    Raises:
        RunDirectoryError: if the directory is taken and no other may be used.
        ValueError: if settings are wrong.
        ImportError: if `use_summary_writer` is set and tensorboard is not installed.
    """
    given = dict(locals())  # for params.json
    del given["log_params"]
    if snapshot_gap is None:
        outside = current_logger()
        snapshot_gap = outside.snapshot_gap if outside.directory is None else 1
    check_choices(verbosity, snapshot_mode, snapshot_gap)
    launched = Launched.from_environment()
    if launched is not None and launched.rank > 0:
        with silent_context() as silent:
            yield silent
        return
    parent = Path(log_dir) if override_prefix else _with_prefix(Path(log_dir))
    with (
        hold_run_directory(parent, run_ID, overwrite=overwrite, resume=resume, if_taken=if_taken) as directory,
        record_status(directory) as status,
        contextlib.ExitStack() as stack,
    ):
        given |= {"log_dir": os.fspath(log_dir), "sinks": [type(sink) for sink in sinks or ()]}
        given |= {"snapshot_gap": snapshot_gap, "line_columns": list(line_columns)}
        logger = Logger(
            directory,
            [*(sinks or ()), *([TensorBoardSink(directory)] if use_summary_writer else ())],
            snapshot_mode=snapshot_mode,
            snapshot_gap=snapshot_gap,
            resumes=bool(resume),
            verbosity=verbosity,
            line_columns=line_columns,
        )
        stack.callback(lambda: status.update(logger.notes))
        stack.push(lambda kind, error, trace: logger.close(outcome_of(error)))
        stack.callback(_CURRENT.reset, _CURRENT.set(logger))
        found = directory.name.removeprefix("run_")
        taken = run_ID is not None and found != str(run_ID)
        logger.log(f"run directory: {directory}" + (f" (run_{run_ID} is taken by another run)" if taken else ""))
        actual = int(found) if run_ID is None else found if taken else run_ID
        logger.record_params(run_params(log_params, name, actual, given))
        with _ending_in_one_line(logger):
            yield logger


def _with_prefix(log_dir: Path) -> Path:
    data = Path.cwd() / "data"
    if data in (Path.cwd() / log_dir).parents:
        return log_dir
    return data / "local" / datetime.now().strftime("%Y%m%d/%H%M%S") / log_dir


@contextlib.contextmanager
def _ending_in_one_line(logger: Logger) -> Iterator[None]:
    """Log that Ctrl-C has stopped the block, and print no traceback if it ends the script.

    The KeyboardInterrupt is raised again unchanged. It stops a loop over runs and the cell of a notebook, a caller may
    catch it, and a script that it ends has the exit code of Ctrl-C (130 in a shell). `status.json` has the traceback.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        logger.notice(f"Interrupted by Ctrl-C. What was saved stays in {logger.directory}.")
        vars(interrupt)[_LOGGED] = True  # a reference would keep the traceback, and with it the memory of the run
        hook = sys.excepthook

        def print_unless_logged(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if not _was_logged(error):
                hook(kind, error, trace)

        sys.excepthook = print_unless_logged
        raise


def _was_logged(error: BaseException | None) -> bool:
    """Return whether this is a logged interrupt, or another Ctrl-C while one is handled."""
    return isinstance(error, KeyboardInterrupt) and (_LOGGED in vars(error) or _was_logged(error.__context__))
