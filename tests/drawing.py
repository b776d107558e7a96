"""Drawings as SVG by code: boxes, words and arrows, in light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLOURS = {
    # name: fill and line where the paper is light, fill and line where it is dark
    "blue": ("#dbe9fb", "#3b78c4", "#1d3a5f", "#7db0ee"),
    "green": ("#d9f0df", "#3a8f55", "#1c4a2c", "#7fcf98"),
    "amber": ("#fbe8c8", "#b97a17", "#553a10", "#e8b45f"),
    "red": ("#f9dcd9", "#bf4a3f", "#5a2520", "#ec9389"),
    "grey": ("#eceff2", "#98a2ad", "#343b44", "#7d8894"),
}
INKS = ("#1f2933", "#5c6875", "#ffffff"), ("#e6ebf0", "#a5b0bc", "#191d22")
"""Of words, of quiet words and lines, and the paper: light, and dark."""


def style() -> str:
    """Return the style sheet of all drawings."""
    light, dark = ([f"--ink: {ink}; --quiet: {quiet}; --paper: {paper}"] for ink, quiet, paper in INKS)
    for name, (fill, line, dark_fill, dark_line) in COLOURS.items():
        light.append(f"--{name}: {fill}; --{name}-line: {line}")
        dark.append(f"--{name}: {dark_fill}; --{name}-line: {dark_line}")
    rules = [
        f":root {{ {'; '.join(light)} }}",
        f"@media (prefers-color-scheme: dark) {{ :root {{ {'; '.join(dark)} }} }}",
        ".paper { fill: var(--paper) } text { fill: var(--ink) } .quiet { fill: var(--quiet) }",
        ".bold { font-weight: 600 }",
        ".line { stroke: var(--quiet); fill: none; stroke-width: 1.4 } .head { fill: var(--quiet) }",
        ".dashed { stroke-dasharray: 4 3 } .code { font-family: ui-monospace, monospace; font-size: 12px }",
        *(f".{name} {{ fill: var(--{name}); stroke: var(--{name}-line); stroke-width: 1.2 }}" for name in COLOURS),
    ]
    return "\n".join(rules)


class Drawing:
    """Picture of some width and height in pixels, which what is drawn is added to."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, colour: str, *lines: str, more: str = "") -> None:
        """Draw a box with lines of words in its middle."""
        self.parts.append(
            f'<rect class="{colour} {more}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'
        )
        for i, line in enumerate(lines):
            self.words(x + width / 2, y + height / 2 + 4.5 + 17 * (i - (len(lines) - 1) / 2), line, "middle", "")

    def words(self, x: float, y: float, text: str, anchor: str = "start", kind: str = "quiet") -> None:
        """Draw a line of words whose baseline is at y."""
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def note(self, y: float, *lines: str) -> None:
        """Draw lines of words below each other, from the left edge on."""
        for i, line in enumerate(lines):
            self.words(14, y + 24 * i, line)

    def line(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="line{" dashed" * dashed}" points="{path}"/>')

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """Draw a line through points with a head at the last one, which it reaches along an axis."""
        self.line(*points, dashed=dashed)
        (x0, y0), (x, y) = points[-2:]
        dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
        corners = [(x, y), (x - 7 * dx + 4 * dy, y - 7 * dy + 4 * dx), (x - 7 * dx - 4 * dy, y - 7 * dy - 4 * dx)]
        path = " ".join(f"{a:g},{b:g}" for a, b in corners)
        self.parts.append(f'<polygon class="head" points="{path}"/>')

    def brace(self, x: float, y: float, width: float, text: str) -> None:
        """Draw a bracket below some columns, and what they are."""
        self.line((x, y), (x, y + 6), (x + width, y + 6), (x + width, y))
        self.words(x + width / 2, y + 22, text, "middle")

    def key(self, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
        """Draw what the colours mean, in a row."""
        for colour, text in entries:
            self.box(x, y - 11, 14, 14, colour)
            self.words(x + 20, y, text)
            x += 20 + 7.4 * len(text) + 22

    def svg(self) -> str:
        """Return the file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
                f'width="{self.width:g}" height="{self.height:g}" font-family="system-ui, sans-serif" '
                'font-size="14" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{style()}</style>",
                f'<rect class="paper" width="{self.width:g}" height="{self.height:g}" rx="8"/>',
                *self.parts,
                "</svg>\n",
            ]
        )
