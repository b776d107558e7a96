"""The drawing of rooms and arrows for `docs/reference/architecture.md`, made from the imports.

`python -m tests.rooms_drawing` draws it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.drawing import FOLDER, Drawing
from tests.shape import imports, room_of, sources
from tests.test_layers import FLOORS

PICTURE = FOLDER / "rooms.svg"
GROUND = (1, 2)
"""Floors that every room above may import: each is drawn as one box, entered from the floor above it only."""
COLOURS = ("grey", "grey", "grey", "amber", "green", "blue", "amber", "red", "grey")
"""Of the floors, from 0."""
WIDTH, HEIGHT, GAP = 116, 34, 92

Arrows = Mapping[str, set[str]]


def arrows() -> Arrows:
    """Return the rooms that each room imports."""
    found: dict[str, set[str]] = {}
    for name, tree in sources().items():
        room = room_of(name)
        targets = [target for target, _, _ in imports(tree)]
        others = {room_of(target) for target in targets if target.startswith("rlpyt")}
        found.setdefault(room, set()).update(others - {room, ""})
    found.pop("", None)
    return found


def rendered(found: Arrows) -> str:
    """Return the drawing: a box for every room, in the row of its floor, and an arrow for every import."""
    rooms = set(found).union(*found.values())
    floors = sorted({FLOORS[room] for room in rooms} - {0}, reverse=True)
    drawing = Drawing(960, 24 + GAP * len(floors), "Rooms and floors: every arrow is an import, and goes down")
    places: dict[str, tuple[float, float]] = {}
    for i, floor in enumerate(floors):
        here, y = [room for room in FLOORS if FLOORS[room] == floor and room in rooms], 24.0 + GAP * i
        drawing.words(14, y + 22, f"floor {floor}")
        if floor in GROUND:
            here = [", ".join(here)]
        for j, room in enumerate(here):
            places[room] = 90 + 850 * (j + 0.5) / len(here), y
        places[f"floor {floor}"] = places[here[0]]
    for room in found:
        for other in sorted(found[room]):
            if FLOORS[room] > max(GROUND) and FLOORS[other] > max(GROUND):
                curve(drawing, places[room], places[other], COLOURS[FLOORS[room]])
    for floor in sorted(GROUND, reverse=True):
        curve(drawing, places[f"floor {floor + 1}"], places[f"floor {floor}"], COLOURS[floor + 1])
    for name, (x, y) in places.items():
        if not name.startswith("floor "):
            width = max(WIDTH, 9 * len(name))
            floor = next((f for f in floors if name == room_names(f, rooms)), FLOORS.get(name, 0))
            drawing.box(x - width / 2, y, width, HEIGHT, COLOURS[floor], name)
    return drawing.svg()


def room_names(floor: int, rooms: set[str]) -> str:
    """Return the rooms of a floor in one line."""
    return ", ".join(room for room in FLOORS if FLOORS[room] == floor and room in rooms)


def curve(drawing: Drawing, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    """Draw an arrow from the lower edge of a box to the upper edge of another."""
    (x0, y0), (x, y) = (start[0], start[1] + HEIGHT), (end[0], end[1] - 6)
    bend = (y - y0) / 2
    drawing.parts.append(
        f'<path d="M {x0:g} {y0:g} C {x0:g} {y0 + bend:g}, {x:g} {y - bend:g}, {x:g} {y:g}" '
        f'style="fill: none; stroke: var(--{colour}-line); opacity: .75"/>'
    )
    drawing.arrow((x, y), (x, y + 5))


if __name__ == "__main__":
    PICTURE.write_text(rendered(arrows()))
