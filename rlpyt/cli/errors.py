"""Origin of the errors of a command: those of the library are told in a line, others with their traceback."""

from __future__ import annotations

import traceback
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""Folder of the library."""


def is_of_library(error: Exception) -> bool:
    """Return whether an error is one of the library: by its class, or for a TypeError by the place that raised it."""
    if isinstance(error, RuntimeError):
        return type(error).__module__.startswith("rlpyt.")
    raised_at = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(raised_at).is_relative_to(ROOT)
