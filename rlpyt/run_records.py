"""Records that a run and a grid leave on the disk: their names, and what they say. Reading them needs no torch."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

VARIANT_FILE = "variant_config.json"
"""Changes of a configuration, in the log directory of the runs of a grid."""
PARAMS_FILE = "params.json"
PROGRESS_FILE = "progress.csv"
STEPS = "Diagnostics/CumSteps"
"""Column of the environment steps of a run."""
STATUS_FILE = "status.json"
LOCK_FILE = "run.lock"
CHECKPOINTS = "checkpoints"
"""Folder of a run's checkpoints, see `rlpyt.logging.checkpoints`."""
_RECORDS = (PROGRESS_FILE, PARAMS_FILE, STATUS_FILE, LOCK_FILE)

Json: TypeAlias = dict[str, object]


def read_json(path: Path, needed: bool = True) -> tuple[Json, str]:
    """Return the content of a file, and what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, f"no {path.name}" if needed else ""
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name} cannot be read ({error})"
    return (content, "") if isinstance(content, dict) else ({}, f"{path.name} is not a dictionary")


def run_status(directory: Path) -> tuple[str, str]:
    """Return how a run stands, and the reason for it, often empty.

    Args:
        directory: of the run.

    Returns:
        finished, running, interrupted, failed or killed; "no record" without a status.json.
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
        with open(directory / PROGRESS_FILE, newline="", encoding="utf-8") as file:
            header = file.readline()
            file.seek(0, os.SEEK_END)
            file.seek(max(len(header.encode()), file.tell() - 16_384))
            lines = file.read().split("\n")[:-1]  # the last line may be in writing
    except (OSError, ValueError):
        return {}
    rows = list(csv.DictReader([header, *lines[-1:]]))
    return {key: value for key, value in rows[-1].items() if key and value} if rows else {}


def steps_kept(directory: Path) -> int:
    """Return the steps from which a run would go on: those of its newest checkpoint, or of its last row without any.

    -1 stands for a run that would begin anew.
    """
    with contextlib.suppress(OSError, ValueError, OverflowError):
        folder = directory / CHECKPOINTS
        if folder.is_dir():
            whole = [manifest.parent.name for manifest in folder.glob("[0-9]*/manifest.json")]
            return max((int(name) for name in whole if name.isdecimal()), default=-1)
        return int(float(last_row(directory).get(STEPS, -1)))
    return -1


def score_of_run(steps: Sequence[float], values: Sequence[float], fraction: float = 0.1) -> float:
    """Return the mean of a column over the last part of a run; nan without a value there.

    Args:
        steps: of every row, the last row has the most.
        values: of the column; rows without a finite value do not count.
        fraction: of the steps at the last row: rows with more than (1 - fraction) of them count, and the last row.
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


def run_directories(root: Path) -> list[Path]:
    """Return the directories of all runs in and below a folder, in the order of their names; links are followed."""
    return sorted(_directories(root), key=_natural)


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
