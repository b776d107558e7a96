"""Table of a grid's runs: redrawn in a terminal, and a line for each change elsewhere."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rlpyt.launching.back_end import Launched
from rlpyt.run_records import printable
from rlpyt.utils.output import drop_lost_output
from rlpyt.utils.terminal import Region, aligned, can_redraw

_SHOW_SECONDS = 1.0
_ORDER = ("runs", "failed", "queued", "waits", "stopped", "pruned", "dropped", "finished")
_COLUMNS = ("run", "state", "slot", "steps", "return", "minutes")


class GridTable:
    """Picture of the runs of the grid in a folder."""

    def __init__(self, folder: Path, file: TextIO) -> None:
        self._folder, self._file = folder, file
        self._is_terminal = can_redraw(file)
        self._region = Region(file)
        self._last = 0.0
        self._states: dict[str, str] = {}

    def begin(self, runs: Sequence[Launched]) -> None:
        """Say what there is to do."""
        done = sum(run.state == "finished" for run in runs)
        finished = f", of which {done} have finished before" if done else ""
        self._write(f"{len(runs)} runs in {self._folder}{finished}.")
        self._states = {run.run.name: _state(run) for run in runs}

    def show(self, runs: Sequence[Launched]) -> None:
        """Show how the runs stand, at most once a second in a terminal."""
        if not self._is_terminal:
            for run in runs:
                if self._states.get(run.run.name) != (state := _state(run)):
                    self._states[run.run.name] = state
                    self._write(_line(run))
        elif time.monotonic() > self._last + _SHOW_SECONDS:
            self._last = time.monotonic()
            self._draw(runs)

    def say(self, text: str) -> None:
        """Write a text above the table."""
        self._region.clear()
        self._write(text)

    def end(self, runs: Sequence[Launched]) -> None:
        """Show the last table, and say what has failed, and how a grid that was stopped goes on."""
        self.show(runs)
        if self._is_terminal:
            self._draw(runs)
        counts = Counter(run.state for run in runs)
        self._write(", ".join(f"{n} {state}" for state, n in counts.items()) + f": {self._folder}")
        for run in runs:
            if run.state == "failed":
                self._write(f"failed: {run.run.name}, see {run.run.output}")
        if counts["stopped"] or counts["waits"]:
            self._write("go on: start the grid again with the same command")

    def _draw(self, runs: Sequence[Launched]) -> None:
        size = shutil.get_terminal_size()
        rows = [_cells(run) for run in runs]
        hidden = 0
        if len(rows) > size.lines - 4:  # those that run come first
            order = sorted(runs, key=lambda run: _ORDER.index(run.state))
            rows = [_cells(run) for run in order[: max(1, size.lines - 4)]]
            hidden = len(runs) - len(rows)
        lines = aligned([_COLUMNS, *rows], "<" * len(_COLUMNS))
        self._region.draw([*lines, *([f"and {hidden} more"] if hidden else [])])

    def _write(self, text: str) -> None:
        try:
            # It may be what a run has printed, or the name of a column.
            self._file.write("".join(f"{printable(line)}\n" for line in text.split("\n")))
            self._file.flush()
        except OSError:  # a closed terminal, a pipe without a reader, a full disk: the runs go on
            drop_lost_output()


def _cells(run: Launched) -> tuple[str, ...]:
    row = run.run.last_row()
    steps, average = row.get("Diagnostics/CumSteps", ""), row.get("ReturnAverage", "")
    minutes = f"{(time.monotonic() - run.started) / 60:.1f}" if run.state == "runs" else ""
    state = _state(run)
    state += f" ({run.failures} failed)" if run.failures and run.state != "failed" else ""
    slot = "" if run.slot is None else str(run.slot)
    return run.run.name, state, slot, _short(steps), _short(average), minutes


def _state(run: Launched) -> str:
    """Return the state of a run, with what the job system says of one in its queue."""
    return f"queued: {run.waiting}" if run.state == "queued" and run.waiting else run.state


def _line(run: Launched) -> str:
    names = zip(_COLUMNS[2:], _cells(run)[2:], strict=True)
    return f"{run.run.name} {_state(run)}" + "".join(f", {name} {cell}" for name, cell in names if cell)


def _short(number: str) -> str:
    try:
        return f"{float(number):,.6g}"
    except ValueError:
        return number
