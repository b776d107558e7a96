"""Folder in memory for tests that write many files: on a busy disk each of them may wait for a second."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = "/dev/shm"


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Yield a folder in memory, or one on the disk where there is none."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        yield Path(name)
