"""Standard output and standard error of a process that goes on without its terminal.

A write to a terminal that was closed, or to a pipe without a reader, raises. What was not written is written again when
Python ends, which then ends with exit code 120.
"""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def drop_lost_output() -> None:
    """Replace by the null device what standard output and standard error write to, where nobody reads it any more."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # There may be no stream, or one that is closed, has no descriptor, or is a replacement of another kind.
        with suppress(OSError, ValueError, AttributeError):
            descriptor = stream.fileno()  # type: ignore[union-attr]
            if _is_lost(descriptor):
                with open(os.devnull, "wb") as null:
                    os.dup2(null.fileno(), descriptor)


def _is_lost(descriptor: int) -> bool:
    """Return whether the terminal or the reader is gone; a full disk, as any other error, may pass."""
    poller = select.poll()
    poller.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poller.poll(0))


def write_text(stream: TextIO | None, text: str) -> None:
    """Write a text at once; go on without it if the stream is closed, or nobody reads it any more."""
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except UnicodeEncodeError:
        write_text(stream, text.encode("ascii", "backslashreplace").decode())
    except (OSError, ValueError):
        drop_lost_output()


class _Output(io.FileIO):
    """Raw standard stream whose writes go to the null device once nobody reads them."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some bytes."""
        try:
            return super().write(data)
        except OSError:
            drop_lost_output()
            return super().write(data)


def outlive_terminal() -> None:
    """Let no print of this process fail because its terminal is gone, also one of other code."""
    sys.stdout, sys.stderr = _outliving(sys.stdout), _outliving(sys.stderr)


def _outliving(stream: TextIO) -> TextIO:
    # A stream that other code has put there is left alone.
    if not isinstance(stream, io.TextIOWrapper) or stream not in (sys.__stdout__, sys.__stderr__):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering or stream.write_through,
    )
