"""The page of public names, `docs/reference/names.md`, as the packages have them.

`python -m tests.names_page` writes it again.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import textwrap
from pathlib import Path

import rlpyt

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "names.md"
MODULES = ["rlpyt.spaces", "rlpyt.types"]
HEAD = """# Public names

The names that a script imports, by package: `from rlpyt.agents import DqnAgent`. A name in two
packages is the same object in both. Other names may change without notice.
`python -m tests.names_page` writes this page again.
"""


def public_names(module_name: str) -> list[str]:
    """Return the names of a package's `__all__`, or what a module defines itself."""
    module = importlib.import_module(module_name)
    if module_name not in MODULES:
        return sorted(module.__all__, key=str.lower)
    own = [
        name
        for name, thing in vars(module).items()
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__ == module_name
    ]
    return sorted((name for name in own if not name.startswith("_")), key=str.lower)


def names_by_package() -> dict[str, list[str]]:
    """Return the public names of every package."""
    packages = [
        f"rlpyt.{info.name}" for info in pkgutil.iter_modules(rlpyt.__path__) if info.ispkg and info.name != "compat"
    ]
    return {name: public_names(name) for name in ["rlpyt", *sorted([*packages, *MODULES])]}


def rendered() -> str:
    """Return the page."""
    names = names_by_package()
    return HEAD + "".join(f"\n## {name}\n\n{listed(names[name])}\n" for name in names)


def listed(names: list[str]) -> str:
    """Return names as a paragraph of lines of at most 100 characters."""
    text = ", ".join(f"`{name}`" for name in names)
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(rendered())
