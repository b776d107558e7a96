"""Optional packages: they are imported when they are needed, or refused with the command that installs them."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional_package(name: str, who: str, extra: str) -> ModuleType:
    """Return a module that is optional, or refuse: `who` needs it, and this extra of rlpyt brings it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        raise ImportError(
            f"{who}: the package {package} was not found; it is optional. Install it with `pip install rlpyt[{extra}]`."
        ) from error
