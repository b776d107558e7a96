"""Where the public names of rlpyt are documented on the site."""

from __future__ import annotations

import importlib
from functools import cache

from tests.names_page import names_by_package


@cache
def homes() -> dict[int, str]:
    """Return where everything public is documented, by its identity: in its own package, by its own name."""
    found: dict[int, tuple[bool, bool, str]] = {}
    for package, names in names_by_package().items():
        for name in names:
            thing = getattr(importlib.import_module(package), name)
            is_own = str(getattr(thing, "__module__", "")).startswith(f"{package}.")
            place = is_own, name == getattr(thing, "__name__", name), f"{package}.{name}"
            found[id(thing)] = max(found.get(id(thing), place), place, key=lambda place: place[:2])
    return {key: path for key, (_, _, path) in found.items()}


@cache
def short_names() -> dict[str, str]:
    """Return where a name is documented: one that is that of one thing alone, and of no setting."""
    found: dict[str, set[str]] = {}
    settings: set[str] = set()
    for package, names in names_by_package().items():
        for name in names:
            thing = getattr(importlib.import_module(package), name)
            found.setdefault(name, set()).add(homes()[id(thing)])
            settings |= set(getattr(thing, "__dataclass_fields__", ()))
    return {name: path for name, (path, *others) in found.items() if not others and name not in settings}


def target_of(code: str) -> str | None:
    """Return what a piece of code in a text names, as a class, a function or a method of one, by its whole path."""
    first, dot, rest = code.partition(".")
    if code.startswith("rlpyt."):
        return code
    if first in short_names() and rest.isidentifier() == bool(dot):
        return f"{short_names()[first]}{dot}{rest}"
    return None
