"""Table of a run in a terminal, drawn in place: progress, time left, the newest row, and curves of its columns."""

from __future__ import annotations

import shutil
import time
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rlpyt.logging.sinks import STATISTICS, Row, grouped
from rlpyt.utils.terminal import WIDEST, Region, aligned, bar, clock, region_below_prints, sparkline

_SECONDS = 0.2  # between drawings while nothing but the progress has changed
_ROWS_OF_SPEED = 5
_MAIN = ("Return", "GameScore", "Length")
_CURVE_ROWS = 256  # that a curve is drawn from at most, evenly apart
_LEAST_CURVE = 12


class LiveTable:
    """Table of the run at hand. A terminal shows it in place while the block of `drawn` runs, and nothing else does."""

    def __init__(self) -> None:
        self._region: Region | None = None

    @property
    def is_drawn(self) -> bool:
        """Whether a terminal shows the table now."""
        return self._region is not None

    @contextmanager
    def drawn(self, total_steps: int, steps: int, earlier: Mapping[str, Sequence[float]]) -> Iterator[None]:
        """Draw the table while the block runs.

        Of `total_steps`, `steps` are done by earlier starts of the run. The curves begin with the columns of their
        rows.
        """
        self._total, self._steps = total_steps, steps
        self._start, self._drawn = time.monotonic(), 0.0
        self._speeds = deque([(self._start, steps)], maxlen=_ROWS_OF_SPEED)  # when a row was written, and where
        self._row: Row = {}
        self._part = ""
        # Of the columns that have curves.
        self._histories = {key: array("d", values) for key, values in earlier.items() if key.endswith(STATISTICS[0])}
        with region_below_prints() as region:
            self._region = region
            try:
                yield
            finally:
                region.end_line()
                self._draw()
                self._region = None

    def write(self, row: Row) -> None:
        """Show a row."""
        if self._region is not None:
            self._row, self._part = row, ""
            for key, value in row.items():
                if key.endswith(STATISTICS[0]) and not isinstance(value, str):
                    self._histories.setdefault(key, array("d")).append(value)
            self._speeds.append((time.monotonic(), self._steps))
            self._draw()

    def show_steps(self, steps: int) -> None:
        """Show how many steps are done."""
        if self._region is not None:
            self._steps = steps
            self._draw(_SECONDS)

    def show_part(self, name: str, fraction: float) -> None:
        """Show how far a part of the run is, such as an evaluation."""
        if self._region is not None and (fraction < 1.0 or self._part):
            self._part = f"{name}: {fraction:.0%}" if fraction < 1.0 else ""
            self._draw(_SECONDS)

    def forget_place(self) -> None:
        """Draw below what stands on the terminal, as the handler of a signal has written there."""
        if self._region is not None:
            self._region.forget()

    def _draw(self, after: float = 0.0) -> None:
        """Draw the table, if it was not drawn some seconds ago."""
        if self._region is not None and time.monotonic() >= self._drawn + after:
            self._drawn = time.monotonic()
            size = shutil.get_terminal_size()
            self._region.draw(self._lines(min(size.columns - 1, WIDEST), size.lines - 1))

    # ---- text ----

    def _lines(self, width: int, height: int) -> list[str]:
        many, single = grouped(self._row)
        names = sorted(many, key=lambda name: _MAIN.index(name) if name in _MAIN else len(_MAIN))
        table = self._table({name: many[name] for name in names}, width)
        foot = _flowing([f"{key.removeprefix('Diagnostics/')} {_short(self._row[key])}" for key in single], width)
        # Where the room is short, the statistics stay.
        fits = foot and len(foot) <= height - 2 - len(table)
        return [self._progress(width), *table[: height - 1], *(["", *foot] if fits else [])]

    def _progress(self, width: int) -> str:
        speed = self._speed()
        left = f"{clock((self._total - self._steps) / speed)} left" if speed > 0 else "-:-- left"
        if self._steps >= self._total:
            left = f"{clock(time.monotonic() - self._start)} in all"
        done = self._steps / self._total if self._total else 1.0
        texts = [f"{done:4.0%}", f"{self._steps:,} of {self._total:,} steps", left, f"{speed:,.0f} steps/s"]
        texts += [self._part] if self._part else []
        while len(text := "  ".join(texts)) > width and len(texts) > 1:
            texts.pop()
        room = min(40, width - len(text) - 1)
        return f"{bar(done, room)} {text}" if room >= 5 else text

    def _speed(self) -> float:
        """Return steps per second since some rows ago."""
        since, steps = self._speeds[0]
        seconds = time.monotonic() - since
        return max(0.0, self._steps - steps) / seconds if seconds > 0 else 0.0

    def _table(self, many: Mapping[str, Sequence[str]], width: int) -> list[str]:
        """Return a line for each name: its statistics, as many as there is room for, and the curve of its Average."""
        if not many:
            return []
        first = min(max(map(len, many)), max(6, width // 3))  # a long name must not push all numbers off the screen
        for chosen in ([0, 1, 2, 3, 4], [0, 1, 3, 4], [0, 3, 4], [0]):
            cells = [["".ljust(first), *(STATISTICS[i] for i in chosen)]]
            cells += [[name[:first], *(_short(self._row[keys[i]]) for i in chosen)] for name, keys in many.items()]
            lines = aligned(cells, "<" + ">" * len(chosen))
            room = width - max(map(len, lines)) - 2
            if room >= _LEAST_CURVE:
                break
        histories = [self._histories.get(keys[0], array("d")) for keys in many.values()]
        curves = [sparkline(x[:: 1 + len(x) // _CURVE_ROWS], max(0, min(room, 48))) for x in histories]
        return aligned(list(zip(lines, ["", *curves], strict=True)), "<<")


def row_in_one_line(row: Row, step: int, columns: Sequence[str] = ()) -> str:
    """Return what a row says in one line: its step, some of its columns, and the speed.

    Args:
        row: of the log.
        step: of the row.
        columns: by name, or by the name of statistics, of which the Average is shown; what the row has not is left
            out. Without any, returns and losses are shown.
    """
    averages = {name: row[keys[0]] for name, keys in grouped(row)[0].items()}
    cells = {**{name.removeprefix("Diagnostics/"): x for name, x in row.items()}, **row, **averages}
    names = [name for name in columns or _MAIN if name in cells]
    names += [] if columns else [name for name in averages if "loss" in name.lower()]
    texts = [f"{name} {_short(x)}" for name, x in ({name: cells[name] for name in names} or row).items()]
    speed = row.get("Diagnostics/StepsPerSecond")
    texts += [] if speed is None or not names else [f"{_short(speed)} steps/s"]
    return f"step {step:,}: {', '.join(texts)}"


def _short(value: float | int | str) -> str:
    """Return a number with five digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e9):
        return f"{int(value):,}"
    return f"{value:,.1f}" if 1e4 <= abs(value) < 1e9 else f"{value:.5g}"


def _flowing(texts: Sequence[str], width: int) -> list[str]:
    """Return texts side by side, in columns, in as many lines as they take."""
    if not texts:
        return []
    cell = max(map(len, texts)) + 3
    n = max(1, (width + 3) // cell)
    rows = -(-len(texts) // n)
    return ["".join(text.ljust(cell) for text in texts[i::rows]).rstrip() for i in range(rows)]
