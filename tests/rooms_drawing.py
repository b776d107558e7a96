"""The drawing of rooms and arrows in `docs/reference/architecture.md`, made from the imports.

`python -m tests.rooms_drawing` writes it into the page again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from tests.test_layers import FLOORS, MODULES, imports, name_of, room_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "architecture.md"
FENCE = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)
GROUND = (1, 2)
"""Floors that every room above may import: each is drawn as one box, entered from the floor above it only."""

Arrows = Mapping[str, set[str]]


def arrows() -> Arrows:
    """Return the rooms that each room imports."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        room = room_of(name_of(path))
        targets = [target for target, _, _ in imports(ast.parse(path.read_text()))]
        others = {room_of(target) for target in targets if target.startswith("rlpyt")}
        found.setdefault(room, set()).update(others - {room, ""})
    found.pop("", None)
    return found


def rendered(found: Arrows) -> str:
    """Return the drawing as a block of mermaid: a box for every room, a frame for every floor, an arrow for imports."""
    rooms = set(found).union(*found.values())
    lines = ["flowchart TD"]
    for floor in sorted({FLOORS[room] for room in rooms} - {0}, reverse=True):
        here = [room for room in FLOORS if FLOORS[room] == floor and room in rooms]
        if floor in GROUND:
            lines.append(f'    floor{floor}["floor {floor}: {", ".join(here)}"]')
            continue
        lines += [f'    subgraph floor{floor}["floor {floor}"]', *(f"        {room}" for room in here), "    end"]
    for room in sorted(found, key=lambda room: (-FLOORS[room], list(FLOORS).index(room))):
        others = [other for other in FLOORS if other in found[room] and FLOORS[other] > max(GROUND)]
        if others and FLOORS[room] > max(GROUND):
            lines.append(f"    {room} --> {' & '.join(others)}")
    for floor in sorted(GROUND, reverse=True):
        above = {room: others for room, others in found.items() if FLOORS[room] == floor + 1}
        sources = above if floor + 1 not in GROUND else [f"floor{floor + 1}"]
        if any(FLOORS[other] == floor for others in above.values() for other in others):
            lines += [f"    {source} --> floor{floor}" for source in sources]
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def drawn(page: str) -> str:
    """Return the one drawing of a page."""
    [drawing] = FENCE.findall(page)
    return drawing


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().replace(drawn(PAGE.read_text()), rendered(arrows())))
