"""Files that are replaced whole, removed and locked, and the errors of a disk that are not the fault of a run.

A killed run or a full disk leaves the old file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from rlpyt.run_records import open_to_write

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DISTURBED = {errno.EIO, errno.EREMOTEIO, errno.ESTALE, errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.EKEYEXPIRED}
_AWAY = {errno.ENOTCONN, errno.ESHUTDOWN, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}
MAY_PASS = frozenset(_FULL | _DISTURBED | _AWAY)
"""Error numbers of a full disk, an exhausted quota and a network folder that fails for a moment. They are not the fault
of the run: it goes on without the file, and tries again at its next write."""


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a temporary file, `<path>.tmp-<pid>`, that replaces `path` when the block ends without an error.

    File and directory are synchronised with the disk around the replacement. So after a kill or a power cut `path` has
    either all of the old content or all of the new. Its directory must exist.
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
        remove_file(temporary)  # which may fail as the disk did
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
    """Write a dictionary of JSON values, as `to_json` makes them, as an indented file; it is replaced whole."""
    text = json.dumps(content, indent=4, allow_nan=False)
    with replace_file(path) as file:
        file.write(text.encode() + b"\n")


def paths_in(folder: Path, pattern: str) -> list[Path]:
    """Return the paths in a folder that a pattern fits, such as "*/manifest.json", sorted; none if it is missing.

    Another error of the disk is raised. `Path.glob` takes it for an empty folder, from Python 3.12 on.
    """
    first, _, rest = pattern.partition("/")
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [folder / name for name in names if fnmatch.fnmatchcase(name, first)]
    return [path for place in found for path in paths_in(place, rest)] if rest else found


def remove_file(path: Path) -> None:
    """Remove a file, if it is there; it may stay, as a network folder may keep it for another machine."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def hold_lock(path: Path, holder: str) -> tuple[int, OSError | None]:
    """Lock a file, which is made if it is missing, for this process and those that inherit its descriptor.

    The lock holds until all have closed the descriptor, which is returned. The file says who holds it. The error of a
    file system without locks, such as Lustre without the option flock, is returned too. BlockingIOError says that
    another process has locked the file, and which one.
    """
    descriptor = open_to_write(path)  # to write, too: on NFS a file that is held would seem free to one who reads it
    unsupported = None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found = os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise BlockingIOError(f"in use by {found or 'another process'}") from None
    except OSError as error:
        unsupported = error
    with contextlib.suppress(OSError):  # of a full disk: who holds it is for messages alone
        os.ftruncate(descriptor, os.pwrite(descriptor, holder.encode(), 0))
    return descriptor, unsupported
