"""Learning curves from `progress.csv`."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path

from rlpyt.logging.files import replace_file
from rlpyt.run_records import PARAMS_FILE, STEPS, TASK_NAMES, inside, open_to_read, printable, read_json
from rlpyt.utils.packages import optional_package


def read_progress(run_dir: str | os.PathLike[str]) -> dict[str, list[float]]:
    """Read the `progress.csv` of a run, also while it is being written: a last row without its end is left out.

    Returns:
        A list for each column, in order, with a number for each row; nan where a cell is empty or has text.

    Raises:
        FileNotFoundError: if the run has written no row yet.
    """
    path = Path(run_dir) / "progress.csv"
    if not path.is_file():
        raise FileNotFoundError(
            f"reading progress: there is no file {path}, expected a run directory such as "
            "data/run_0 with at least one row logged."
        )
    with open_to_read(path) as file:
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]  # half a number is another number
    reader = csv.DictReader(io.StringIO(whole.decode(), newline=""))
    keys = list(reader.fieldnames or [])
    rows = list(reader)
    return {key: [_to_number(row[key]) for row in rows] for key in keys}


def _to_number(cell: str | None) -> float:
    try:
        return float(cell or "nan")
    except ValueError:
        return math.nan


def plot_progress(
    run_dir: str | os.PathLike[str] | None,
    x: str = STEPS,
    y: str = "ReturnAverage",
    file: str = "learning_curve.png",
) -> Path:
    """Draw one column of a run over another, save the picture, and return its path.

    If `y` is the Average of a statistic, the range from its Min to its Max is shaded. Rows where a column is empty or
    nan are left out.

    Args:
        run_dir: the directory of the run.
        x: name of the column for the x-axis.
        y: name of the column for the y-axis.
        file: the picture, relative to `run_dir`; the ending gives the format.

    Raises:
        ImportError: if matplotlib is not installed.
        FileNotFoundError: if the run has written no row yet.
        ValueError: if a column is missing, or there is no directory.
    """
    if run_dir is None:
        raise ValueError("plot_progress: the logger has no run directory; train within `logger_context`.")
    matplotlib_figure = optional_package("matplotlib.figure", "plot_progress", "plot")
    progress = read_progress(run_dir)
    for column in (x, y):
        if column not in progress:
            raise ValueError(f"plotting {run_dir}: got column {column!r}, expected one of {sorted(progress)}.")
    xs, ys = _finite(progress[x], progress[y])
    figure = matplotlib_figure.Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot(xs, ys, label=y)
    low, high = (progress.get(y.removesuffix("Average") + statistic) for statistic in ("Min", "Max"))
    if y.endswith("Average") and low and high:
        axes.fill_between(*_finite(progress[x], low, high), alpha=0.2, linewidth=0, label="Min to Max")
    if not xs:
        # A run too short for a whole episode has no numbers to plot, which is not an error.
        axes.text(0.5, 0.5, f"no {y} yet", transform=axes.transAxes, ha="center")
    axes.set(xlabel="environment steps" if x == STEPS else x, ylabel=y, title=_title(Path(run_dir).resolve()))
    axes.legend()
    axes.grid(alpha=0.3)
    path = Path(run_dir) / file
    with replace_file(path) as picture:
        figure.savefig(picture, format=path.suffix[1:] or None, dpi=120)
    return path


def _title(directory: Path) -> str:
    """Return the algorithm, the environment and the name of a run, as far as its params.json has them."""
    params, _ = read_json(directory / PARAMS_FILE)
    algo, sampler = inside(params, "algo", "class"), inside(params, "runner", "settings", "sampler", "settings")
    names = [inside(sampler, "env_kwargs", key) for key in TASK_NAMES]
    env = "-".join(name for name in names if isinstance(name, str)) or inside(sampler, "EnvCls", "name")
    what = [algo if isinstance(algo, str) else "", f"on {env.rpartition(':')[2]}" if isinstance(env, str) else ""]
    return printable(" ".join(word for word in (*what, f"({directory.name})") if word) if any(what) else directory.name)


def _finite(*columns: Sequence[float]) -> tuple[list[float], ...]:
    rows = [row for row in zip(*columns, strict=True) if all(map(math.isfinite, row))]
    return tuple([row[i] for row in rows] for i in range(len(columns)))
