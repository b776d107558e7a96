"""Directory of one run: its name, its status, and the lock that reserves it for one process.

The lock is an flock. The kernel releases it when the process ends in any way.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import time
import traceback
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

from rlpyt.logging.files import hold_lock, paths_in, remove_file, write_json
from rlpyt.run_records import CHECKPOINTS, LOCK_FILE, STATUS_FILE, printable

_MANIFESTS = f"{CHECKPOINTS}/*/manifest.json"
PREEMPTED = 85
"""Exit code of a run that has ended early, with a checkpoint; it counts as interrupted, as do 128 + signal."""

Resume = bool | Literal["auto"]
"""Choice of whether a run goes on in the directory of an earlier one; "auto" if that has a checkpoint."""

IfTaken = Literal["next", "refuse"]
"""Choice for a run whose directory is taken: it gets the next free one, or it is refused."""

_RESULTS = ("progress.csv", "params.pkl", "itr_*.pkl", _MANIFESTS)
_OF_SINKS = ("histograms/events.out.tfevents.*", "sinks.json")
_RECORDS = (*_RESULTS[:-1], "debug.log", "params.json", STATUS_FILE, "events.out.tfevents.*", *_OF_SINKS)
_NO_LINKS = ("histograms", "video", CHECKPOINTS, *_RECORDS, LOCK_FILE, "video/*", f"{CHECKPOINTS}/*")
"""What a run writes to or removes: a link among them, as an archive may have it, would lead to files of others."""


class RunDirectoryError(RuntimeError):
    """Error for a directory of another run, which is running or has left its results."""


@contextlib.contextmanager
def hold_run_directory(
    log_dir: Path,
    run_ID: int | str | None,
    *,
    overwrite: bool = False,
    resume: Resume = False,
    if_taken: IfTaken = "next",
) -> Iterator[Path]:
    """Make the directory of a run, hold it until the block ends, and yield its absolute path; see `logger_context`."""
    _check_choices(run_ID, overwrite, resume, if_taken)
    log_dir = Path(os.path.abspath(log_dir))
    log_dir.mkdir(parents=True, exist_ok=True)
    if run_ID is not None and (overwrite or resume or if_taken == "refuse"):
        directory = log_dir / f"run_{run_ID}"
        lock = _take(directory, overwrite, resume)
    else:
        directory, lock = _first_free(log_dir, run_ID)
    try:
        yield directory
    finally:
        os.close(lock)


def _check_choices(run_ID: int | str | None, overwrite: bool, resume: Resume, if_taken: str) -> None:
    if if_taken not in get_args(IfTaken):
        raise ValueError(f"run directory: got if_taken={if_taken!r}, expected one of {get_args(IfTaken)}.")
    if resume not in (False, True, "auto"):
        raise ValueError(f"run directory: got resume={resume!r}, expected True, False or 'auto'.")
    if overwrite and resume:
        raise ValueError(f"run directory: got overwrite=True and resume={resume!r}, expected at most one.")
    if resume and run_ID is None:
        raise ValueError(
            f"run directory: got resume={resume!r} without a run_ID, expected the ID of the run to go on with. Pass "
            "run_ID."
        )
    if run_ID is not None and os.sep in str(run_ID):
        raise ValueError(
            f"run directory: got run_ID {run_ID!r}, expected a number or a name without {os.sep!r}. "
            "Put folders into log_dir."
        )


def _first_free(log_dir: Path, run_ID: int | str | None) -> tuple[Path, int]:
    """Take the first directory that no run has, and for `run_ID` None the first number that has no directory."""
    for number in itertools.count():
        numbered = number if run_ID is None else f"{run_ID}_{number}" if number else run_ID
        directory = log_dir / f"run_{numbered}"
        # Another process may lock the directory between mkdir and lock: try the next number.
        with contextlib.suppress(FileExistsError, RunDirectoryError):
            directory.mkdir(exist_ok=run_ID is not None)
            return directory, _take(directory)
    raise AssertionError("counting has no end")


def _take(directory: Path, overwrite: bool = False, resume: Resume = False) -> int:
    """Lock a directory, make it if it is missing, and prepare it; return the descriptor of the lock."""
    directory.mkdir(exist_ok=True)
    _refuse_links(directory)
    lock = _lock(directory)
    try:
        _prepare(directory, overwrite, resume)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _refuse_links(directory: Path) -> None:
    link = next((path for name in _NO_LINKS for path in paths_in(directory, name) if path.is_symlink()), None)
    if link is not None:
        raise RunDirectoryError(
            f"{printable(link)} is a link to {printable(os.readlink(link))}; expected a file or folder of the run "
            "itself, as the run writes to it. If the link is yours, copy the run with cp -rL, and go on with the copy."
        )


def _lock(directory: Path) -> int:
    holder = f"pid {os.getpid()} on host {socket.gethostname()} since {_now()}"
    try:
        descriptor, unsupported = hold_lock(directory / LOCK_FILE, holder)
    except BlockingIOError as error:
        raise RunDirectoryError(
            f"{directory} is {error}; a run directory belongs to one running process. Choose another run_ID, or "
            "run_ID=None for the next free number, or stop that process."
        ) from None
    if unsupported is not None:  # a run without a lock is better than none
        warnings.warn(f"{directory} cannot be locked ({unsupported}); going on without.", stacklevel=2)
    return descriptor


def _prepare(directory: Path, overwrite: bool, resume: Resume) -> None:
    for leftover in paths_in(directory, "*.tmp-[0-9]*"):  # of `replace_file` in a process that was killed
        remove_file(leftover)
    if resume == "auto":
        if not paths_in(directory, _MANIFESTS):
            _put_aside(directory)
        return
    if resume:
        return
    results = sorted(file.name for pattern in _RESULTS for file in paths_in(directory, pattern))
    if results and not overwrite:
        raise RunDirectoryError(
            f"{directory} already holds the results of a run ({', '.join(results[:3])}); they are not "
            "written over by chance. Choose another run_ID, or run_ID=None for the next free number, "
            "or if_taken='next' for a directory beside it, or overwrite=True to remove them."
        )
    for file in _records(directory):
        file.unlink()
    for manifest in paths_in(directory, _MANIFESTS):
        manifest.unlink()  # a run would go on from one that stays
    shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)


def _records(directory: Path) -> list[Path]:
    return [file for pattern in _RECORDS for file in paths_in(directory, pattern)]


def _put_aside(directory: Path) -> None:
    """Move the records of an earlier run into a folder of their own, and remove checkpoints that are not whole."""
    shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)
    records = _records(directory)
    if records:
        folder = next(f for n in itertools.count(1) if not (f := directory / f"earlier_{n}").exists())
        folder.mkdir()
        for file in records:
            file.rename(folder / file.name)


@contextlib.contextmanager
def record_status(directory: Path) -> Iterator[dict[str, object]]:
    """Keep `status.json` while the block runs: running, then finished, failed or interrupted.

    A killed run is one whose status is running although no process holds its lock. What is yielded is written at the
    end; more may be put into it.
    """
    start = time.perf_counter()
    status: dict[str, object] = {"status": "running", "pid": os.getpid(), "host": socket.gethostname()}
    status["started"] = _now()
    write_json(directory / STATUS_FILE, status)
    try:
        yield status
    except BaseException as error:
        outcome = outcome_of(error)
        status["status"] = "interrupted" if outcome == "preempted" else outcome
        if outcome != "finished":
            status["exception"] = {
                "type": type(error).__name__,
                "message": str(error),
                "traceback": "".join(traceback.format_exception(error)),
            }
        raise
    else:
        status["status"] = "finished"
    finally:
        status["ended"] = _now()
        status["seconds"] = round(time.perf_counter() - start, 3)
        try:
            write_json(directory / STATUS_FILE, status)
        except OSError as error:  # of a full disk, which must not hide how the run has ended
            warnings.warn(f"{directory / STATUS_FILE} could not be written: {error}", stacklevel=2)


def outcome_of(error: BaseException | None) -> str:
    """Return how a run has ended: finished, failed, interrupted, or preempted, which has a checkpoint to go on from."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    code = error.code if isinstance(error, SystemExit) else error
    if code is None or code == 0:
        return "finished"
    if code == PREEMPTED:
        return "preempted"
    return "interrupted" if isinstance(code, int) and 128 < code <= 192 else "failed"


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
