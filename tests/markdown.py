"""Reading of README.md and docs/: prose, code blocks and tables, for the tests of the pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"), key=lambda page: page.name)]

Cell = str
Table = list[list[Cell]]


def split(page: Path) -> tuple[str, str]:
    """Return the prose and the python code of a page, each with the lines of the other left empty."""
    prose, code, fence = [], [], ""
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            fence = "" if fence else line[3:] or "text"
            line = ""
        prose.append("" if fence else line)
        code.append(line if fence == "python" else "")
    return "\n".join(prose), "\n".join(code)


def tables(page: Path) -> list[Table]:
    """Return the tables of a page, header first, without the ruling."""
    found: list[Table] = []
    inside = False
    for line in split(page)[0].splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not all(set(cell) <= {"-"} for cell in cells):
                found[-1].append(cells)
        inside = line.startswith("|")
    return found


def quoted(text: str) -> list[str]:
    """Return the code spans of a text."""
    return re.findall(r"`([^`]+)`", text)
