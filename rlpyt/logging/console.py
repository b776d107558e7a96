"""Console of a run: text, and what is shown of rows and progress."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from rlpyt.logging.files import open_to_append
from rlpyt.logging.live_table import LiveTable, row_in_one_line
from rlpyt.logging.plots import read_progress
from rlpyt.logging.sinks import Row, print_line
from rlpyt.utils.terminal import can_redraw, region_below_prints

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST = 120
"""Columns of a terminal that are used at most."""

Verbosity = Literal["table", "lines", "quiet"]
"""What a run prints: "table": text, and a table of every row, in a terminal one that is drawn in place; "lines": one
line for each row, why the run ends early or does nothing, and warnings; "quiet": warnings only. Files get everything in
any case."""


def check_verbosity(verbosity: Verbosity) -> Verbosity:
    """Return a verbosity.

    Raises:
        ValueError: if there is no such one.
    """
    if verbosity not in get_args(Verbosity):
        raise ValueError(f"verbosity: got {verbosity!r}, expected one of {get_args(Verbosity)}.")
    return verbosity


class Console:
    """Console that prints the text of a run, and appends it to `debug.log`.

    Args:
        directory: of the run; None if it has none.
        verbosity: what is printed, see `Verbosity`.
        line_columns: what "lines" shows of a row, see `row_in_one_line`.

    Raises:
        ValueError: if there is no such verbosity.
    """

    is_silent: ClassVar[bool] = False
    """Whether another replica writes for this one."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        verbosity: Verbosity = "table",
        line_columns: Sequence[str] = (),
    ) -> None:
        self.directory = None if directory is None else Path(directory)
        self.verbosity = check_verbosity(verbosity)
        self.line_columns = line_columns
        self.live: LiveTable | None = None
        self.texts: list[str] | None = None
        """What was logged, for another process that logs it; None prints it here."""
        self._prefixes: list[str] = []
        self._said: set[str] = set()

    def log(self, text: str, with_prefix: bool = True) -> None:
        """Print text, and append it to `debug.log` with the time before each line; only "table" prints it."""
        self._log(text, with_prefix, is_shown=self.verbosity == "table")

    def notice(self, text: str) -> None:
        """Log what "lines" prints too, such as why a run has ended."""
        self._log(text, with_prefix=True, is_shown=self.verbosity != "quiet")

    def log_drawn(self, text: str, draw: Callable[[], RenderableType]) -> None:
        """Log a text of several lines, in whose place a terminal shows what rich draws.

        Args:
            text: for `debug.log`, and for outputs that are no terminal.
            draw: returns what rich draws; called where it is shown.
        """
        shows = self.verbosity == "table" and can_redraw(sys.stdout)
        self._log(text, with_prefix=True, is_shown=self.verbosity == "table", drawn=rendered(draw()) if shows else None)

    def warn(self, text: str) -> None:
        """Log a warning, which is printed at every verbosity."""
        self._log(f"WARNING: {text}", with_prefix=True, is_shown=True)

    def _log_table(self, text: str) -> None:
        self._log(text, with_prefix=True, is_shown=self.verbosity == "table" and self.live is None)

    def _log(self, text: str, with_prefix: bool, is_shown: bool, drawn: str | None = None) -> None:
        if self.texts is not None:
            self.texts.append(text)
            return
        prefix = "".join(self._prefixes) if with_prefix else ""
        lines = [prefix + line for line in text.split("\n")]
        if self.directory is not None:
            time = datetime.now().isoformat(sep=" ", timespec="milliseconds")
            content = "".join(f"{time} | {line}\n" for line in lines)
            # The text is on the console, too. A disk error must not end the run.
            with (
                contextlib.suppress(OSError),
                open(open_to_append(self.directory / "debug.log"), "ab") as file,
            ):
                file.write(content.encode(errors="backslashreplace"))
        if is_shown:
            print_line("\n".join(lines if drawn is None else [prefix + line for line in drawn.splitlines()]))

    @property
    def shows_progress(self) -> bool:
        """Whether bars show the progress of the run."""
        return self.verbosity == "table" and not self.is_silent

    def forget_place(self) -> None:
        """Draw the table of the run below what the handler of a signal has written to the terminal."""
        if self.live is not None:
            self.live.forget_place()

    @contextlib.contextmanager
    def live_table(self, total_steps: int, steps: int) -> Iterator[None]:
        """Draw one table of the run in place while the block runs, instead of printing one for each row.

        Args:
            total_steps: at the end of the run.
            steps: that are done.
        """
        if not self.shows_progress or not can_redraw(sys.stdout):
            yield
            return
        with region_below_prints() as region:
            self.live = LiveTable(region, total_steps, steps)
            if steps and self.directory is not None and (self.directory / "progress.csv").exists():
                self.live.remember(read_progress(self.directory))
            try:
                yield
            finally:
                self.live.end()
                self.live = None

    def show_row(self, row: Row, step: int) -> None:
        """Show a row in the table that is drawn in place, or in one line."""
        if self.live is not None:
            self.live.write(row)
        elif self.verbosity == "lines":
            print_line(row_in_one_line(row, step, self.line_columns))

    def show_steps(self, steps: int) -> None:
        """Show how many steps of the run are done, where its table is drawn in place."""
        if self.live is not None:
            self.live.show_steps(steps)

    def take_warnings(self) -> list[str]:
        """Return the warnings that were kept for another process to log: none here."""
        return []

    def warn_once(self, key: str, text: str) -> None:
        """Log a warning the first time that it is called with `key`."""
        if key not in self._said:
            self._said.add(key)
            self.warn(text)

    def push_prefix(self, text: str) -> None:
        """Put `text` before every line of text until `pop_prefix`."""
        self._prefixes.append(text)

    def pop_prefix(self) -> None:
        """Undo the last `push_prefix`."""
        self._prefixes.pop()

    @contextlib.contextmanager
    def prefix(self, text: str) -> Iterator[None]:
        """Put `text` before every line of text while the block runs; blocks nest."""
        with pushed(self._prefixes, text):
            yield


def rendered(drawn: RenderableType) -> str:
    """Return what rich draws, as the text and the codes that a terminal shows it by."""
    from rich.console import Console as RichConsole  # here, as it takes a while and few starts need it

    file = io.StringIO()
    width = min(shutil.get_terminal_size().columns, WIDEST)
    RichConsole(file=file, force_terminal=True, width=width, highlight=False).print(drawn)
    return file.getvalue().rstrip("\n")


@contextlib.contextmanager
def pushed(prefixes: list[str], text: str) -> Iterator[None]:
    """Keep a text at the end of a list while the block runs."""
    n = len(prefixes)
    prefixes.append(text)
    try:
        yield
    finally:
        del prefixes[n:]
