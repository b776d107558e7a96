"""Records that a run and a grid leave on the disk: their names, and what they say. Reading them needs no torch."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import BinaryIO, TypeAlias

VARIANT_FILE = "variant_config.json"
"""Changes of a configuration, in the log directory of the runs of a grid."""
PARAMS_FILE = "params.json"
PROGRESS_FILE = "progress.csv"
STEPS = "Diagnostics/CumSteps"
"""Column of the environment steps of a run."""
TASK_NAMES = ("id", "game", "domain", "task")
"""Arguments of an environment that name the task."""
STATUS_FILE = "status.json"
LOCK_FILE = "run.lock"
JOB_SUFFIX = ".job"
"""Of the record of a run's job, `run_<ID>.job` beside the directory of the run."""
CHECKPOINTS = "checkpoints"
"""Folder of a run's checkpoints, see `rlpyt.logging.checkpoints`."""
_RECORDS = (PROGRESS_FILE, PARAMS_FILE, STATUS_FILE, LOCK_FILE)

Json: TypeAlias = dict[str, object]

MOST_BYTES = 1 << 26
"""Largest JSON file that is read; that of a checkpoint with a thousand segments has a quarter of a megabyte."""
DEEPEST = 100
"""Most lists and dictionaries inside each other that a JSON file may have."""


def printable(text: object) -> str:
    """Return a text of a record in one line that a terminal shows and does not obey.

    Control characters, such as ESC and line ends, are written as escapes. So are characters that cannot be seen or that
    turn the order of those around them, by which a line would read as another one.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text).expandtabs())


# ---- files that may come from elsewhere ----


_LINK = (
    "it is a link, which may lead anywhere; expected a file or folder of the run itself. If you trust where it leads, "
    "copy the run with cp -rL"
)


def open_to_read(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file of a run, which may come from elsewhere.

    Raises:
        OSError: if it is a link, or a pipe or device, which might be read for ever.
    """
    return open(_opened(path, os.O_RDONLY), "rb")


def open_to_write(path: str | os.PathLike[str], flags: int = 0) -> int:
    """Open a file of a run to read and write it in place, or make it; return its descriptor.

    Flags are further ones of `os.open`, such as O_APPEND.

    Raises:
        OSError: if it is a link, by which a file outside of the run would be changed.
    """
    return _opened(path, os.O_RDWR | os.O_CREAT | flags)


def refuse_link(path: str | os.PathLike[str]) -> None:
    """Raise OSError if a file or folder of a run is a link."""
    if os.path.islink(path):
        raise OSError(errno.ELOOP, _LINK, os.fspath(path))


def _opened(path: str | os.PathLike[str], flags: int) -> int:
    refuse_link(path)
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)  # opening a pipe would wait for its writer
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file; expected one", os.fspath(path))
    return descriptor


def read_text(path: Path) -> str:
    """Return the text of a file of a run.

    Raises:
        OSError: if it cannot be opened, see `open_to_read`.
        ValueError: if it is larger than `MOST_BYTES`, or is no text.
    """
    with open_to_read(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    return content.decode("utf-8")


def load_json(path: Path) -> object:
    """Return the content of a JSON file of a run.

    Raises:
        OSError: if it cannot be opened, see `open_to_read`.
        ValueError: if it is no JSON file, is larger than `MOST_BYTES`, or is nested deeper than `DEEPEST`.
    """
    try:
        content: object = json.loads(read_text(path))
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    level = [content]
    for _ in range(DEEPEST):
        level = [part for part in parts_of(level) if isinstance(part, list | dict)]
        if not level:
            return content
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")


def parts_of(level: Iterable[object]) -> Iterator[object]:
    """Yield what stands in the lists, tuples and dictionaries among some objects."""
    for x in level:
        if isinstance(x, dict | list | tuple):
            yield from x.values() if isinstance(x, dict) else x


def read_json(path: Path, needed: bool = True, disk_may_fail: bool = True) -> tuple[Json, str]:
    """Return the content of a file, and what is wrong with it; without `disk_may_fail` an OSError is raised."""
    try:
        content = load_json(path)
    except FileNotFoundError:
        return {}, f"no {path.name}" if needed else ""
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not disk_may_fail:
            raise
        return {}, f"{path.name} cannot be read ({printable(error)})"
    return (content, "") if isinstance(content, dict) else ({}, f"{path.name} is not a dictionary")


def inside(record: object, *path: str) -> object:
    """Return what a record has at a path; None where it has nothing there."""
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def run_status(directory: Path) -> tuple[str, str]:
    """Return how a run stands, and the reason for it, often empty.

    It is finished, running, interrupted, failed or killed; "no record" without a status.json.
    """
    content, note = read_json(directory / STATUS_FILE)
    if not content:
        return "no record", note
    status = str(content.get("status", "no record"))
    exception = content.get("exception")
    if isinstance(exception, dict):
        note = f"{exception.get('type', 'Exception')}: {exception.get('message', '')}"
    elif "stopped" in content:
        note = f"stopped early: {content['stopped']}"
    if status == "running" and content.get("host") == os.uname().nodename and not _holds(content.get("pid"), directory):
        return "killed", "its process is gone"
    return status, note


def last_row(directory: Path) -> dict[str, str]:
    """Return the newest whole row of a run's log; empty where there is none."""
    try:
        with open_to_read(directory / PROGRESS_FILE) as file:
            header = file.readline(MOST_BYTES)
            end = file.seek(0, os.SEEK_END)
            file.seek(max(len(header), end - 16_384))
            lines = file.read().decode(errors="replace").split("\n")[:-1]  # the last line may be in writing
        rows = list(csv.DictReader([header.decode(), *lines[-1:]]))
    except (OSError, ValueError, csv.Error):
        return {}
    return {key: value for key, value in rows[-1].items() if key and value} if rows else {}


def newest_checkpoint(directory: Path) -> int | None:
    """Return the steps at the newest checkpoint of a run; None where there is none."""
    found = [path.parent.name for path in (directory / CHECKPOINTS).glob("*/manifest.json")]
    return max((int(name) for name in found if name.isdecimal()), default=None)


def steps_kept(directory: Path) -> int:
    """Return the steps from which a run would go on: those of its newest checkpoint, or of its last row without any.

    -1 stands for a run that would begin anew.
    """
    with contextlib.suppress(OSError, ValueError, OverflowError):
        if (directory / CHECKPOINTS).is_dir():
            steps = newest_checkpoint(directory)
            return -1 if steps is None else steps
        return int(float(last_row(directory).get(STEPS, -1)))
    return -1


def score_of_run(steps: Sequence[float], values: Sequence[float], fraction: float = 0.1) -> float:
    """Return the mean of a column over the last part of a run; nan without a value there.

    Rows count with more than (1 - fraction) of the steps of the last row, and that row, if their value is finite.
    """
    end = max((step for step in steps if not math.isnan(step)), default=math.nan)
    late = [
        value
        for step, value in zip(steps, values, strict=True)
        if (step > (1 - fraction) * end or step == end) and math.isfinite(value)
    ]
    return fmean(late) if late else math.nan


def _holds(pid: object, directory: Path) -> bool:
    """Return whether a process has the lock of a run open; taking the lock to see would disturb a run that starts."""
    folder = f"/proc/{pid}/fd"
    try:
        lock = os.stat(directory / LOCK_FILE)
        links = [f"{folder}/{name}" for name in os.listdir(folder)]
    except FileNotFoundError:
        return False
    except OSError:
        return True  # another user's process: it may be the run
    for link in links:
        with contextlib.suppress(OSError):  # closed by now
            if os.path.samestat(os.stat(link), lock):
                return True
    return False


def job_file(record: Path, token: str, name: str) -> Path:
    """Return a file by which a launcher and the job of a submission know of each other, beside the record."""
    return record.with_name(f"{record.name}.{token}.{name}")


def job_of(directory: Path) -> str:
    """Return the number of a run's newest job of SLURM, also before it has begun; "" where it has had none."""
    directory = directory.resolve()
    record = directory.with_name(f"{directory.name}{JOB_SUFFIX}")
    content, _ = read_json(record)
    token = content.get("token")
    # The token becomes the name of a file. A record without a cluster is from before there was the entry.
    if content.get("cluster", "slurm") != "slurm" or not isinstance(token, str) or not token.isalnum():
        return ""
    claim, _ = read_json(job_file(record, token, "claim"))
    job_id = str(claim.get("job_id") or content.get("job_id"))
    return job_id if re.fullmatch(r"[0-9]{1,18}", job_id) else ""  # it becomes a word of a command line


def runs_of_jobs(root: Path) -> Iterator[Path]:
    """Yield the directories of all runs in and below a folder that have had a job, also of those that never began."""
    for path, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith("run_")]
        for name in files:
            if name.startswith("run_") and name.endswith(JOB_SUFFIX):
                yield Path(path, name.removesuffix(JOB_SUFFIX))


def run_directories(root: Path) -> list[Path]:
    """Return the directories of all runs in and below a folder, in the order of their names; links are followed."""
    return in_order(_directories(root))


def in_order(directories: Iterable[Path]) -> list[Path]:
    """Return directories of runs in the order of their names, run_2 before run_10."""
    return sorted(directories, key=_natural)


def _directories(root: Path) -> Iterator[Path]:
    seen = set()
    starts = [root]
    for start in starts:  # links come last: one to a run, such as best, must not take the place of the run itself
        for path, folders, files in os.walk(start):
            directory = Path(path)
            if (place := directory.resolve()) in seen:
                folders.clear()
                continue
            seen.add(place)
            folders.sort()
            named_run = directory.name.startswith("run_") or place.name.startswith("run_")
            if named_run and (set(_RECORDS) & set(files) or not (folders or files)):
                folders.clear()
                yield directory
            starts += [directory / name for name in folders if (directory / name).is_symlink()]


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that puts run_2 before run_10."""
    parts = [part for name in path.parts for part in name.split("_")]
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
