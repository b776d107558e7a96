"""Files that are replaced whole: a killed run or a full disk leaves the old file."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from rlpyt.run_records import open_to_write

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full disk and of an exhausted quota: training goes on without the file."""


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    File and directory are synchronised with the disk around the replacement. So after a kill or a power cut `path` has
    either all of the old content or all of the new.

    Args:
        path: the file to create or to replace; its directory must exist.

    Yields:
        A binary file open for writing, `<path>.tmp-<pid>` in the same directory.

    Raises:
        OSError: error of the disk. The temporary file is removed and the old file stays.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with open(open_to_write(temporary, os.O_TRUNC), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Synchronise the entries of a directory with the disk."""
    # Some network file systems refuse to synchronise a directory. The file is in place nevertheless.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json(path: str | os.PathLike[str], content: Mapping[str, object]) -> None:
    """Write a dictionary of JSON values as an indented file; it is replaced whole.

    Args:
        path: the file to create or to replace.
        content: JSON values only; `rlpyt.logging.params.to_json` converts other values.
    """
    text = json.dumps(content, indent=4, allow_nan=False)
    with replace_file(path) as file:
        file.write(text.encode() + b"\n")


def remove_temporaries(directory: Path) -> None:
    """Remove the temporary files of `replace_file` that killed processes have left in `directory`."""
    for leftover in directory.glob("*.tmp-[0-9]*"):
        leftover.unlink(missing_ok=True)
