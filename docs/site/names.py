"""Where the public names of rlpyt are documented on the site."""

from __future__ import annotations

import importlib
from collections import Counter
from functools import cache

from tests.names_page import names_by_package


@cache
def homes() -> dict[int, str]:
    """Return where everything public is documented, by its identity: in its own package, if that names it."""
    found: dict[int, str] = {}
    for package, names in names_by_package().items():
        for name in names:
            thing = getattr(importlib.import_module(package), name)
            if id(thing) not in found or str(getattr(thing, "__module__", "")).startswith(f"{package}."):
                found[id(thing)] = f"{package}.{name}"
    return found


@cache
def short_names() -> dict[str, str]:
    """Return where a name is documented that is that of one thing alone."""
    paths = [path for path in homes().values() if not path.endswith("__")]
    many = Counter(path.rpartition(".")[2] for path in paths)
    return {name: path for path in paths if many[name := path.rpartition(".")[2]] == 1 and name != "train"}


def target_of(code: str) -> str | None:
    """Return what a piece of code in a text names, as a class, a function or a method of one, by its whole path."""
    first, dot, rest = code.partition(".")
    if code.startswith("rlpyt."):
        return code
    if first in short_names() and rest.isidentifier() == bool(dot):
        return f"{short_names()[first]}{dot}{rest}"
    return None
