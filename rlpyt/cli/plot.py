"""Command `rlpyt plot`: pictures of runs and grids."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import tyro

from rlpyt.cli.arguments import Text
from rlpyt.results import find_runs, plot_study, read_study, write_page
from rlpyt.run_records import STEPS, printable, refuse_link


def plot(
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    y: Text = None,
    x: str = STEPS,
    out: Path | None = None,
    page: Path | None = None,
) -> int:
    """Draw the runs of a folder; runs that differ in nothing but their seeds are one curve.

    Args:
        folders: directories of a run, or of a grid of runs.
        y: column of progress.csv; the default is ReturnAverage, or GameScoreAverage of Atari games.
        x: column of the axis.
        out: folder of the pictures; the default is plots in the folder of the runs, or here for several folders, and
            in it a folder of the column's name if --y names one.
        page: HTML file with the pictures and tables, too; it needs no server.
    """
    if not folders:
        raise ValueError("got no folder; expected that of a run or of a grid, such as data/ppo_CartPole-v1.")
    check_columns(folders, [name for name in (x, y) if name is not None])
    if out is None and (y is not None or len(folders) > 1):
        own = folders[0] / "plots" if len(folders) == 1 else Path("plots")
        refuse_link(own)
        out = own if y is None else own / re.sub(r"[^\w.-]", "_", y).lstrip(".")
        refuse_link(out)
    for path in plot_study(folders, y, x, out):
        print(printable(path))
    for remark in read_study(folders, y, x).remarks:  # why a run, or the scores, are in no picture
        print(printable(f"note: {remark}"), file=sys.stderr)
    if page is not None:
        print(write_page(folders, y, x, page))
    return 0


def check_columns(folders: Sequence[Path], names: list[str]) -> None:
    """Raise ValueError for a column that no run of the folders has; the message names the close ones."""
    columns = {column for run in find_runs(folders) for column in run.columns}
    folder = ", ".join(map(str, folders))
    if not columns:
        raise ValueError(f"there is no row in the progress.csv of the runs in {folder}; expected runs with a log.")
    # Of the five columns of a metric the average is meant by its name alone.
    meant = {**{column: column for column in columns}, **{column.removesuffix("Average"): column for column in columns}}
    for name in [name for name in names if name not in columns]:
        close = list(dict.fromkeys(meant[key] for key in get_close_matches(name, meant, 4)))
        close = close or sorted(column for column in columns if name.lower() in column.lower())[:4]
        hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(sorted(columns))}."
        raise ValueError(f"no run in {folder} has the column {name!r}; {hint}")
