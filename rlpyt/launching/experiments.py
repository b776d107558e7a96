"""Queue of the runs of a grid over run slots: `run_experiments`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from rlpyt.launching.back_end import BackEnd, Launched, RunRefused, SlotLost, Started
from rlpyt.launching.grid import Progress, held_grid, runs_of_grid, save_grid
from rlpyt.launching.local import LocalSlots, script_path
from rlpyt.launching.table import GridTable
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.utils.checks import whole_number
from rlpyt.utils.worker_main import STOP_SIGNALS

_POLL_SECONDS = 0.2
_KILL_SECONDS = 30.0
"""Time from the second signal to SIGKILL."""
_SAVE_SECONDS = 120.0
"""Time from the SIGTERM of a run that ends early to SIGKILL."""
EARLY_ENDS = ("pruned", "dropped")
"""States of runs that the source has ended: by its pruner, or as another run of the trial has failed."""


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
    the others from their checkpoints. SIGINT, SIGTERM, SIGHUP and SIGUSR1 are passed on to the runs once, so that they
    save their work; a second signal ends them at once. If the launcher is killed, the runs save their work and end.

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
        RuntimeError: if another launcher runs this grid, or a back end has lost all its slots.
    """
    retries = whole_number("run_experiments", "retries", retries, 0)
    path, folder = script_path(script), (Path(data_dir) / experiment_title).resolve()
    runs = runs_of_grid(folder, variants, log_dirs, runs_per_setting, common_args or (), runs_args)
    slots = LocalSlots(affinity_code, set_egl_device) if isinstance(affinity_code, str) else affinity_code
    with held_grid(folder) as lock:
        save_grid(folder, variants, log_dirs)
        source = Runs([Launched(run, "finished" if run.is_finished else "waits", lock=lock) for run in runs])
        table = GridTable(folder, file or sys.stdout)
        table.begin(source.runs)
        queue = Queue(source, slots, path, retries, table)
        with signals_to(queue):
            queue.work()
    return queue.exit_code()


class Runs:
    """Runs that a queue starts in their order, all known from the beginning: those of a grid.

    A subclass can add runs later, end some early, and act on their ends.
    """

    def __init__(self, runs: Sequence[Launched] = ()) -> None:
        self.runs = list(runs)
        self.waiting = deque(run for run in runs if run.state == "waits")

    def has_more(self) -> bool:
        """Return whether a run waits, or may come later."""
        return bool(self.waiting)

    def take(self) -> Launched | None:
        """Return the next run for a free slot; None if there is none now."""
        return self.waiting.popleft() if self.waiting else None

    def put_back(self, run: Launched) -> None:
        """Take a run back that is to be started again."""
        run.state = "waits"
        self.waiting.append(run)

    def early_end(self, run: Launched) -> str | None:
        """Return the state of a run that is to end now, None if it goes on; the queue asks for each that goes on."""
        return None

    def has_ended(self, run: Launched) -> None:
        """Take the end of a run, which is not started again."""


class Queue:
    """Queue of runs over run slots; a run that fails is started again, `retries` times."""

    def __init__(self, source: Runs, back_end: BackEnd, script: str, retries: int, table: GridTable) -> None:
        self._back_end, self._script, self._retries, self._table = back_end, script, retries, table
        self._source, self.runs = source, source.runs
        self._free = deque(range(back_end.n_slots))
        self._signals: list[int] = []
        self._passed_on = 0
        self._kill_at: float | None = None

    def work(self) -> None:
        """Run until no run is left, or until it was stopped."""
        try:
            while self._goes_on():
                self._pass_signals_on()
                for run in self.runs:
                    if not self._has_signal():  # a look may take a minute, where a job system is away
                        self._look_at(run)
                self._fill_slots()
                self._table.show(self.runs)
                time.sleep(_POLL_SECONDS)
        finally:
            for run in self.runs:  # none, unless this process itself has failed
                if run.process is not None:
                    run.process.stop(signal.SIGTERM)
        self._table.end(self.runs)
        if not self._free and not self._signals:
            waiting = sum(run.state == "waits" for run in self.runs)
            raise RuntimeError(
                f"Launching: every run slot was lost; {waiting} runs have not finished. Bring the nodes "
                "back and launch again: the grid goes on."
            )

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
        return PREEMPTED if states - {"finished", *EARLY_ENDS} or self._source.has_more() else 0

    def _goes_on(self) -> bool:
        is_running = any(run.process is not None for run in self.runs)
        return is_running or bool(self._free and not self._signals and self._source.has_more())

    def _fill_slots(self) -> None:
        while self._free and not self._signals and (run := self._source.take()) is not None:
            run.slot = self._free.popleft()
            run.progress = run.progress or Progress(run.run.steps_kept())
            try:
                run.process = self._back_end.start(run.slot, run.run, self._script, run.lock)
            except (RunRefused, OSError) as refused:  # the disk is full, say: the others go on
                self._fail(run, refused)
                continue
            run.state, run.started = "queued", time.monotonic()
            self._look_at(run)

    def _look_at(self, run: Launched) -> None:
        if run.process is None:
            return
        try:
            code = run.process.poll()
        except SlotLost as lost:  # the slot is not used again, which bounds the losses
            self._table.say(f"{run.run.name}: {lost}")
            if self._signals and run.state not in EARLY_ENDS:
                run.state = "stopped"
            run.slot = None
            return self._let_go(run, goes_on=run.state in ("queued", "runs"))
        except RunRefused as refused:
            return self._fail(run, refused)
        run.waiting = run.process.waiting()
        if run.state in ("queued", "runs") and (run.waiting is None) != (run.state == "runs"):
            run.state, run.started = "runs" if run.waiting is None else "queued", time.monotonic()
        if code is None:
            return self._end_early(run, run.process)
        self._let_go(run, goes_on=run.state not in EARLY_ENDS and self._goes_again(run, code))

    def _let_go(self, run: Launched, goes_on: bool) -> None:
        """Take a run from its slot, and hand it back to the source."""
        if run.slot is not None:
            self._free.append(run.slot)
        run.process = run.slot = None
        if goes_on:
            self._source.put_back(run)
        else:
            self._source.has_ended(run)

    def _end_early(self, run: Launched, process: Started) -> None:
        if run.state in EARLY_ENDS:
            if time.monotonic() > run.ended_early + _SAVE_SECONDS:
                process.stop(signal.SIGKILL)
        elif (state := self._source.early_end(run)) is not None:
            run.state, run.ended_early = state, time.monotonic()
            process.stop(signal.SIGTERM)

    def _goes_again(self, run: Launched, code: int) -> bool:
        """Set the state of a run that has ended; return whether it is started again."""
        if code == 0:
            run.state = "finished"
            if not run.run.is_finished:
                self._table.say(
                    f"{run.run.name} ended with exit code 0, but {run.run.directory} has no status.json of a finished "
                    "run, so that a second launch would start it again. Let the script give logger_context the log_dir "
                    "and run_ID of its arguments as they are."
                )
            return False
        if self._signals:
            run.state = "stopped"
            return False
        if code == PREEMPTED:
            assert run.progress is not None
            goes_on, why = run.progress.goes_on(run.run.steps_kept()), run.progress.told()
        else:
            run.failures += 1
            goes_on, why = run.failures <= self._retries, _ended(code)
        if code != PREEMPTED or not goes_on:
            self._table.say(f"{run.run.name} {why}. Its last lines ({run.run.output}):\n{run.run.tail()}")
        if not goes_on:
            run.state = "failed"
        return goes_on

    def _fail(self, run: Launched, refused: RunRefused | OSError) -> None:
        """Take a run for failed, whatever retries are left."""
        self._table.say(f"{run.run.name}: {refused}")
        if run.state not in EARLY_ENDS:
            run.state = "stopped" if self._signals else "failed"
        self._let_go(run, goes_on=False)

    def _has_signal(self) -> bool:
        return self._passed_on < min(len(self._signals), 2)

    def _pass_signals_on(self) -> None:
        """Pass on the first two signals, and later kill what is left."""
        running = [run.process for run in self.runs if run.process is not None]
        if self._has_signal():
            self._passed_on += 1
            self._table.say(
                f"{signal.Signals(self._signals[-1]).name}: {len(running)} runs save their work and end. A second "
                "signal ends them at once."
                if self._passed_on == 1
                else f"{len(running)} runs end at once."
            )
            if self._passed_on == 2:
                self._kill_at = time.monotonic() + _KILL_SECONDS
            for process in running:
                process.stop(signal.SIGTERM if self._passed_on == 1 else signal.SIGINT)
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            for process in running:
                process.stop(signal.SIGKILL)


def _ended(code: int) -> str:
    if code >= 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


@contextmanager
def signals_to(queue: Queue) -> Iterator[None]:
    """Hand signals to the queue while the block runs, if this is the main thread; ignored ones stay ignored."""

    def stop(signum: int, frame: FrameType | None) -> None:
        queue.stop(signum)

    before = {}
    try:
        for signum in STOP_SIGNALS:
            if signal.getsignal(signum) != signal.SIG_IGN:
                before[signum] = signal.signal(signum, stop)
    except ValueError:  # another thread launches: its process has the signals
        pass
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
