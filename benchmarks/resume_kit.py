"""Runs that are killed and started again: what they leave behind, compared with a run that was left alone."""

from __future__ import annotations

import csv
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from multiprocessing import util
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from rlpyt.logging.checkpoint_files import CheckpointFiles
from rlpyt.run_records import CHECKPOINTS
from rlpyt.types import RingRows

CLOCKS = ("Time", "PerSecond")
"""Parts of the names of columns that tell the time."""
CLOCKS_OF_STATE = ("seconds", "seconds_since_row", "cum_eval_time", "cum_eval_wait_time")
"""Keys of a run's state that tell the time."""
START_SECONDS = 120.0
"""Longest wait for the first checkpoint of a start."""


# ---- what a run leaves behind ----


def progress_of(run_dir: Path) -> list[dict[str, str]]:
    """Return the rows of progress.csv less the columns that tell the time."""
    with open(run_dir / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not any(clock in k for clock in CLOCKS)} for row in rows]


def state_of(run_dir: Path, step: int | None = None) -> dict[str, str]:
    """Return a digest of every value in a checkpoint of a run, by its path; those of all replicas.

    Args:
        run_dir: of the run.
        step: of the checkpoint; None is the newest.
    """
    files = CheckpointFiles(run_dir / CHECKPOINTS)
    step = files.steps()[0] if step is None else step
    state = {"step": str(step)}
    for rank in range(files.info(step)["world_size"]):
        state.update(_digests(CheckpointFiles(files.folder, rank).read(step).state, f"rank {rank}"))
    return state


def _digests(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, RingRows):
        arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in value.specs().items()}
        value.read_into(arrays)
        value = {**value, "arrays": arrays}
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in CLOCKS_OF_STATE:
                yield from _digests(item, f"{path}.{key}")
    elif type(value) in (list, tuple):
        yield f"{path}.length", str(len(value))
        for i, item in enumerate(value):
            yield from _digests(item, f"{path}.{i}")
    elif isinstance(value, torch.Tensor | np.ndarray):
        array = np.ascontiguousarray(value)
        yield path, f"{array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
    else:
        yield path, f"{value!r:.80}"


def first_difference(run_dir: Path, other: Path) -> str | None:
    """Return where a run differs first from another: in progress.csv, or in the last checkpoint; None if nowhere."""
    rows, expected = progress_of(run_dir), progress_of(other)
    for i, (row, right) in enumerate(zip(rows, expected, strict=False)):
        for name in {**right, **row}:
            if row.get(name) != right.get(name):
                return f"progress.csv, row {i}: {name} is {row.get(name)}, expected {right.get(name)}"
    if len(rows) != len(expected):
        return f"progress.csv has {len(rows)} rows, expected {len(expected)}"
    state, right = state_of(run_dir), state_of(other)
    different = [path for path in {**right, **state} if state.get(path) != right.get(path)]
    if different:
        path, more = different[0], f" (and {len(different) - 1} more)" if different[1:] else ""
        return f"state{more}: {path} is {state.get(path)}, expected {right.get(path)}"
    return None


def steps_saved(run_dir: Path) -> int:
    """Return the steps of the newest checkpoint; 0 if there is none."""
    return max((int(p.parent.name) for p in (run_dir / CHECKPOINTS).glob("*/manifest.json")), default=0)


def steps_logged(run_dir: Path) -> int:
    """Return the steps of the last row of progress.csv; 0 if there is none."""
    try:
        return int(float(progress_of(run_dir)[-1]["Diagnostics/CumSteps"]))
    except (OSError, IndexError, KeyError, ValueError):
        return 0


# ---- processes ----


class Started:
    """Process of a run, with all that it starts.

    Args:
        command: options for this Python.
        log: file that its output is appended to.
        temporary: folder for its temporary files.
        run: what a fork of this process does instead of the command, which saves it the imports.
    """

    def __init__(
        self, command: Sequence[str], log: Path, temporary: Path, run: Callable[[], object] | None = None
    ) -> None:
        temporary.mkdir(parents=True, exist_ok=True)
        self.temporary, self._log = temporary, log
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
        self.process: subprocess.Popen[bytes] | Forked
        if run is not None:
            self.process = Forked(run, log, environment)
            return
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command], stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment
            )

    def wait(self, seconds: float) -> int:
        """Return the exit code, once the process has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"A run did not end within {seconds:.0f} s; its output is in {self._log}") from None

    def wait_until(self, condition: Callable[[], bool], seconds: float = START_SECONDS) -> bool:
        """Wait until a condition holds; False if the process has ended before."""
        end = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                return condition()
            if time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"A run has not come as far within {seconds:.0f} s; its output is in {self._log}")
            time.sleep(0.005)
        return True

    def kill(self, patience: float = 10.0) -> list[str]:
        """Kill the process alone, as the kernel does that runs out of memory; return what outlives it.

        Args:
            patience: seconds that its own processes may take to see it.
        """
        below: list[psutil.Process] = []
        shared: set[str] = set()
        with suppress(psutil.Error):
            own = psutil.Process(self.process.pid)
            below = own.children(recursive=True)
            shared = set[str]().union(*(_shared_memory_of(process) for process in [own, *below]))
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        _, alive = psutil.wait_procs(below, timeout=patience)
        names = [path for path in sorted(shared) if os.path.exists(path)]
        for process in alive:
            with suppress(psutil.Error):
                names.append(f"process {process.pid}: {' '.join(process.cmdline())[:80]}")
                process.kill()
        return names


class Forked:
    """Fork of this process that runs a function; it has what is used of `subprocess.Popen`.

    Args:
        run: the function.
        log: file that its output is appended to.
        environment: of the fork.
    """

    def __init__(self, run: Callable[[], object], log: Path, environment: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(output, 1)
                os.dup2(output, 2)
                os.environ.update(environment)
                tempfile.tempdir = None  # looked up again
                run()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                util._exit_function()  # type: ignore[attr-defined]  # as Python does where a process ends
                os._exit(code)

    def poll(self) -> int | None:
        """Return the exit code, if the process has ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = inf) -> int:
        """Return the exit code, once the process has ended."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, signum: int) -> None:
        """Send a signal, if the process has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)


def files_left(temporary: Path) -> list[str]:
    """Return the temporary files that ended runs have left, less the cache of torch's compiler, which is one for all.

    Args:
        temporary: folder for the temporary files of the runs.
    """
    return sorted(str(path) for path in temporary.glob("*") if not path.name.startswith("torchinductor_"))


def _shared_memory_of(process: psutil.Process) -> set[str]:
    """Return the names of the shared memory that a process has mapped."""
    with suppress(OSError), open(f"/proc/{process.pid}/maps") as file:
        return {line.split(None, 5)[-1].strip() for line in file if " /dev/shm/" in line}
    return set()
