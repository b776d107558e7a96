"""A script of runs that start at once, as they import nothing, and ways to wait for what they do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

RUN = """
import json, os, pathlib, signal, sys, time
code, log_dir, run_ID, *args = sys.argv[1:]
folder, seed = pathlib.Path(log_dir) / f"run_{run_ID}", int(run_ID)
folder.mkdir(exist_ok=True)

def finish(status, exit_code):
    (folder / "status.json").write_text(json.dumps({"status": status}))
    sys.exit(exit_code)

def wait():
    "Wait for a signal; one that comes just before a sleep is seen after it."
    for _ in range(600):
        time.sleep(0.1)

def go(n, value, every=10, seconds=0.0):
    "Write n rows of so many steps, of which rows that are there stay."
    path = folder / "progress.csv"
    n_old = len(path.read_text().splitlines()) - 1 if path.exists() else 0
    with open(path, "a") as file:
        if n_old == 0:
            file.write("Diagnostics/CumSteps,ReturnAverage\\n")
        for i in range(n_old, n):
            file.write(f"{(i + 1) * every},{value(i)}\\n")
            file.flush()
            time.sleep(seconds)

signal.signal(signal.SIGTERM, lambda *_: finish("interrupted", 85))
print("run", run_ID, "pid", os.getpid(), "cores", sorted(os.sched_getaffinity(0)), "code", code, args, flush=True)
print("may keep busy", os.environ.get("RLPYT_CORES"), flush=True)
variant = json.loads((pathlib.Path(log_dir) / "variant_config.json").read_text())
with open(folder / "starts", "a") as file:
    file.write(f"{os.getpid()}\\n")
n_starts = len((folder / "starts").read_text().split())
"""
"""Beginning of the script; a test adds what the runs do."""
QUICK = 'finish("finished", 0)\n'
SLOW = "wait()\n"
Grid: TypeAlias = tuple[list[dict[str, object]], list[str]]
ONE: Grid = ([{"x": 1}], ["x_1"])
TWO: Grid = ([{"x": 1}, {"x": 2}], ["x_1", "x_2"])


def script(folder: Path, rest: str) -> Path:
    """Write the script whose runs do the rest."""
    path = folder / "run.py"
    path.write_text(RUN + rest)
    return path


def put_programs(folder: Path, **lines: str) -> None:
    """Write programs into a folder for the PATH; each does some lines of shell."""
    folder.mkdir(exist_ok=True)
    for name, text in lines.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def starts(run_dir: Path) -> list[int]:
    """Return the process of each start of a run."""
    path = run_dir / "starts"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def when(condition: Callable[[], object], action: Callable[[], object]) -> threading.Thread:
    """Do something in a thread when a condition holds; the test waits in its main thread."""

    def wait() -> None:
        wait_until(condition)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread
