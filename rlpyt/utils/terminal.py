"""Lines of a terminal that are drawn in place, and the signs that they are drawn with.

`rich.live.Live` is not used. It hides the cursor, which a killed process would leave hidden, ends a line that a script
prints in pieces, and does not count what a narrower terminal has wrapped. A table of rich takes 9 ms, ten times as long
as joined texts, and a run draws one at every row.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import isfinite
from typing import Any, TextIO, cast

from rlpyt.run_records import printable
from rlpyt.utils.output import write_text

WIDEST = 120
"""Columns of a terminal that are used at most."""
_LEVELS = "▁▂▃▄▅▆▇█"


def can_redraw(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal whose lines can be drawn again: of UTF-8, and not with TERM=dumb.

    A terminal has one region: where there is one, a second is not drawn.
    """
    if stream is None or isinstance(cast(object, stream), _Above) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        return stream.isatty() and (stream.encoding or "").lower() in ("utf-8", "utf8")
    except (OSError, ValueError):  # it is closed
        return False


class Region:
    """Last lines of a terminal, which are drawn again and again in the same place.

    Lines are cut to the width of the terminal. Lines that were drawn wider than it is now have wrapped, which counts.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pid = os.getpid()
        self._widths: list[int] = []  # of the lines that are drawn
        self._lock = threading.RLock()
        self._at_line_start = True

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the lines; those for which there is no room are left out."""
        with self._lock:
            if not self._at_line_start:
                return  # somebody prints a line in pieces
            size = shutil.get_terminal_size()
            shown = [printable(line)[: size.columns - 1] for line in lines[: max(1, size.lines - 1)]]
            write_text(self._stream, self._erased(size.columns) + "".join(f"{line}\n" for line in shown))
            self._widths = [len(line) for line in shown]

    def clear(self) -> None:
        """Erase the lines."""
        with self._lock:
            if self._widths:
                write_text(self._stream, self._erased(shutil.get_terminal_size().columns))
                self.forget()

    def forget(self) -> None:
        """Leave the lines where they are, and draw below them from now on; a signal's handler may call this."""
        self._widths = []

    def write_above(self, text: str) -> int:
        """Write text of others in the place of the lines, which come again below it when they are drawn next."""
        if os.getpid() != self._pid:  # a forked process does not know what is drawn, nor who held the lock
            write_text(self._stream, text)
        elif text:
            with self._lock:
                self.clear()
                self._at_line_start = text.endswith("\n")
                write_text(self._stream, text)
        return len(text)

    def end_line(self) -> None:
        """End a line of others, so that the lines can be drawn below it."""
        if not self._at_line_start:
            self.write_above("\n")

    def _erased(self, columns: int) -> str:
        """Return the codes that erase all lines, and put the cursor where the first one was."""
        n = sum(max(1, -(-width // columns)) for width in self._widths)
        # A Ctrl-C is shown by the terminal itself, which moves the cursor in its line.
        return f"\x1b[{n}F\x1b[J" if n else "\r\x1b[J"


class _Above:
    """Standard stream whose text stands above a region of the same terminal."""

    def __init__(self, stream: TextIO, region: Region) -> None:
        self._stream, self.write = stream, region.write_above

    def writelines(self, lines: Iterable[str], /) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def region_below_prints() -> Iterator[Region]:
    """Yield a region of standard output's terminal; what the process prints meanwhile stands above it.

    Output of other processes is not seen: it comes below, and may be drawn over.
    """
    stdout, stderr = sys.stdout, sys.stderr
    region = Region(stdout)
    above = cast(TextIO, _Above(stdout, region))
    sys.stdout = above
    if can_redraw(stderr):
        sys.stderr = above
    try:
        yield region
    finally:
        # Whoever has put another stream there since keeps it.
        sys.stdout = stdout if sys.stdout is above else sys.stdout
        sys.stderr = stderr if sys.stderr is above else sys.stderr


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Return rows as lines, in which each column stands on the side that `sides` names for it: "<" or ">"."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    columns = list(zip(sides, widths, strict=True))
    return ["  ".join(f"{x:{side}{n}}" for x, (side, n) in zip(row, columns, strict=True)).rstrip() for row in rows]


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a curve of at most `width` signs; each is the mean of the values in its place, empty if none is finite."""
    n = min(width, len(values))
    if n < 1:
        return ""
    edges = [i * len(values) // n for i in range(n + 1)]
    parts = [[x for x in values[a:b] if isfinite(x)] for a, b in pairwise(edges)]
    # Halves: sums and differences of a loss that diverges are finite, too.
    means = [sum(x / 2 / len(part) for x in part) if part else None for part in parts]
    known = [x for x in means if x is not None]
    if not known:
        return " " * n
    low, scale = min(known), max(known) - min(known)
    levels = [None if x is None else int((x - low) / scale * 7.999) if scale > 0 else 3 for x in means]
    return "".join(" " if level is None else _LEVELS[level] for level in levels)


def bar(fraction: float, width: int) -> str:
    """Return a bar of `width` signs, of which a fraction is filled."""
    n = int(min(max(fraction, 0.0), 1.0) * width)
    return "█" * n + "░" * (width - n)


def clock(seconds: float) -> str:
    """Return a duration: 0:07, 12:05, 1:02:03 or 2d 03:04."""
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24:02}:{m:02}"
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"
