"""Texts of several columns, as wide as the terminal, and close names for one that is unknown."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

WIDEST = 120


def did_you_mean(name: str, known: Iterable[str], otherwise: str = ".", n: int = 3) -> str:
    """Return a question for the names that are closest to one, in any case; another text where none is close."""
    lower = {key.lower(): key for key in known}
    close = [lower[key] for key in get_close_matches(name.lower(), lower, n)]
    return f"; did you mean {' or '.join(close)}?" if close else otherwise


def width() -> int:
    """Return the columns of the terminal, at most `WIDEST`."""
    return min(shutil.get_terminal_size().columns, WIDEST)


def wrapped(text: str, indent: int) -> list[str]:
    """Return a text as lines; those after the first are indented."""
    return textwrap.wrap(text, width(), subsequent_indent=" " * indent, break_on_hyphens=False) or [""]


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text; the last column is wrapped."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        start = "".join(cell.ljust(n + 2) for cell, n in zip(row, widths, strict=False))
        lines += wrapped(start + row[-1], len(start))
    return "\n".join(lines)


def paragraphs(lines: Sequence[str]) -> str:
    """Return lines as text; what follows a line that is indented, or of the usage, is indented too."""
    return "\n".join("\n".join(wrapped(line, 8 if line.startswith((" ", "usage")) else 0)) for line in lines)
