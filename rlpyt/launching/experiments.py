"""Queue of the runs of a grid over run slots: `run_experiments`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol, TextIO

from rlpyt.launching.grid import GridRun, held_grid, runs_of_grid, save_grid
from rlpyt.launching.local import LocalSlots, script_path
from rlpyt.launching.table import GridTable
from rlpyt.logging.run_directory import PREEMPTED

_POLL_SECONDS = 0.2
_KILL_SECONDS = 30.0
"""Time from the second signal to SIGKILL."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Started(Protocol):
    """Run that a back end has started."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the run goes on."""

    def has_begun(self) -> bool:
        """Return whether the run has left the queue of a job system."""

    def stop(self, signum: int) -> None:
        """Send a signal: the first SIGTERM asks the run to save its work and end."""


class BackEnd(Protocol):
    """Place where runs go on, a number of them side by side."""

    n_slots: int

    def start(self, slot: int, run: GridRun, script: str, inherited: int) -> Started:
        """Start a run in a free slot.

        Runs that end with the launcher keep the descriptor `inherited` open: it is the lock of the grid.
        """


@dataclass
class Launched:
    """Run of the queue, and how it stands."""

    run: GridRun
    state: str = "waits"
    slot: int | None = None
    failures: int = 0
    started: float = 0.0
    process: Started | None = field(default=None, repr=False)


def run_experiments(
    script: str | os.PathLike[str],
    affinity_code: str | BackEnd,
    experiment_title: str,
    runs_per_setting: int,
    variants: Sequence[Mapping[str, object]],
    log_dirs: Sequence[str],
    common_args: Sequence[object] | None = None,
    runs_args: Sequence[Sequence[object]] | None = None,
    set_egl_device: bool = False,
    *,
    data_dir: str | os.PathLike[str] = "data",
    retries: int = 1,
    file: TextIO | None = None,
) -> int:
    """Run a grid: each run as `python script slot_affinity_code log_dir run_ID *args`, pinned to the cores of its slot.

    The script takes these by `launched_run`, or from its own arguments. A second call goes on with a grid that was
    stopped: runs that have finished are left out, and a script with `logger_context(..., resume="auto")` goes on with
    the others from their checkpoints. SIGINT, SIGTERM and SIGHUP are passed on to the runs once, so that they save
    their work; a second signal ends them at once. If the launcher is killed, the runs save their work and end.

    Args:
        script: Python file.
        affinity_code: how runs share this machine: `quick_affinity_code()`, or `encode_affinity(...)`. Or a back end,
            such as `ClusterSlots`: another place of the runs.
        experiment_title: the grid's folder in `data_dir`.
        runs_per_setting: runs of each variant; their run_IDs are 0, 1, ....
        variants: changes of the configuration, see `make_variants`. Each is `variant_config.json` in its folder.
        log_dirs: the folder of each variant, below that of the grid.
        common_args: further arguments of all runs.
        runs_args: further arguments of the runs of each variant.
        set_egl_device: whether a run renders on its GPU.
        data_dir: folder of all grids.
        retries: how often a run that fails is started again.
        file: for the table of the runs; None is standard output.

    Returns:
        Exit code for `sys.exit`: 0 if all runs have finished, 1 if some failed, 85 if the grid was stopped before,
        130 by Ctrl-C.

    Raises:
        ValueError: if the grid or the affinity is wrong; nothing has started then.
        RuntimeError: if another launcher runs this grid.
    """
    if type(retries) is not int or retries < 0:
        raise ValueError(f"run_experiments: retries is {retries!r}; expected a whole number from 0. Correct it.")
    path, folder = script_path(script), (Path(data_dir) / experiment_title).resolve()
    runs = runs_of_grid(folder, variants, log_dirs, runs_per_setting, common_args or (), runs_args)
    slots = LocalSlots(affinity_code, set_egl_device) if isinstance(affinity_code, str) else affinity_code
    with held_grid(folder) as lock:
        save_grid(folder, variants, log_dirs)
        queue = Queue(runs, slots, path, lock, retries, GridTable(folder, file or sys.stdout))
        with _signals_to(queue):
            queue.work()
    return queue.exit_code()


class Queue:
    """Queue of runs over run slots.

    Args:
        runs: in the order of their starts.
        back_end: place of the runs.
        script: absolute path of the script.
        lock: descriptor that runs keep open.
        retries: how often a run that fails is started again.
        table: picture of the runs.
    """

    def __init__(
        self, runs: Sequence[GridRun], back_end: BackEnd, script: str, lock: int, retries: int, table: GridTable
    ) -> None:
        self._back_end, self._script, self._lock, self._retries, self._table = back_end, script, lock, retries, table
        self.runs = [Launched(run, "finished" if run.is_finished else "waits") for run in runs]
        self._waiting = deque(x for x in self.runs if x.state == "waits")
        self._free = deque(range(back_end.n_slots))
        self._signals: list[int] = []
        self._passed_on = 0
        self._kill_at: float | None = None

    def work(self) -> None:
        """Run until no run is left, or until it was stopped."""
        self._table.begin(self.runs)
        try:
            while self._goes_on():
                self._pass_signals_on()
                for run in self.runs:
                    self._look_at(run)
                while self._waiting and self._free and not self._signals:
                    self._start(self._waiting.popleft(), self._free.popleft())
                self._table.show(self.runs)
                time.sleep(_POLL_SECONDS)
        finally:
            for run in self.runs:  # none, unless this process itself has failed
                if run.process is not None:
                    run.process.stop(signal.SIGTERM)
        self._table.end(self.runs)

    def stop(self, signum: int) -> None:
        """Note a signal, which the queue passes on; called by a handler."""
        self._signals.append(signum)

    def exit_code(self) -> int:
        """Return the exit code that tells how the grid stands."""
        if signal.SIGINT in self._signals:
            return 128 + signal.SIGINT
        states = {run.state for run in self.runs}
        if "failed" in states:
            return 1
        return PREEMPTED if states - {"finished"} else 0

    def _goes_on(self) -> bool:
        is_running = any(run.process is not None for run in self.runs)
        return is_running or bool(self._waiting and not self._signals)

    def _start(self, run: Launched, slot: int) -> None:
        run.process = self._back_end.start(slot, run.run, self._script, self._lock)
        run.state, run.slot, run.started = "queued", slot, time.monotonic()
        self._look_at(run)

    def _look_at(self, run: Launched) -> None:
        if run.process is None or run.slot is None:
            return
        code = run.process.poll()
        if run.state == "queued" and run.process.has_begun():
            run.state, run.started = "runs", time.monotonic()
        if code is None:
            return
        self._free.append(run.slot)
        run.process = run.slot = None
        if code == 0:
            run.state = "finished"
        elif self._signals:
            run.state = "stopped"
        elif code == PREEMPTED:
            self._again(run)
        else:
            run.failures += 1
            self._table.say(f"{run.run.name} {_ended(code)}. Its last lines ({run.run.output}):\n{run.run.tail()}")
            if run.failures <= self._retries:
                self._again(run)
            else:
                run.state = "failed"

    def _again(self, run: Launched) -> None:
        run.state = "waits"
        self._waiting.append(run)

    def _pass_signals_on(self) -> None:
        """Pass on the first two signals, and later kill what is left."""
        running = [run for run in self.runs if run.process is not None]
        if self._passed_on < min(len(self._signals), 2):
            self._passed_on += 1
            self._table.say(
                f"{signal.Signals(self._signals[-1]).name}: {len(running)} runs save their work and end. A second "
                "signal ends them at once."
                if self._passed_on == 1
                else f"{len(running)} runs end at once."
            )
            if self._passed_on == 2:
                self._kill_at = time.monotonic() + _KILL_SECONDS
            for run in running:
                assert run.process is not None
                run.process.stop(signal.SIGTERM if self._passed_on == 1 else signal.SIGINT)
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            for run in running:
                assert run.process is not None
                run.process.stop(signal.SIGKILL)


def _ended(code: int) -> str:
    if code >= 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


@contextmanager
def _signals_to(queue: Queue) -> Iterator[None]:
    """Hand signals to the queue while the block runs, if this is the main thread; ignored ones stay ignored."""

    def stop(signum: int, frame: FrameType | None) -> None:
        queue.stop(signum)

    before = {}
    try:
        for signum in _SIGNALS:
            if signal.getsignal(signum) != signal.SIG_IGN:
                before[signum] = signal.signal(signum, stop)
    except ValueError:  # another thread launches: its process has the signals
        pass
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
