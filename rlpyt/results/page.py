"""Page of a study: one HTML file with pictures and tables, which needs no server, no network and no other file."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlpyt.logging.files import replace_file
from rlpyt.results.groups import RunGroup
from rlpyt.results.pictures import plots_of
from rlpyt.results.runs import Folders, RunResult, folders_of
from rlpyt.results.statistics import mean_interval
from rlpyt.results.study import Study, read_study
from rlpyt.run_records import STEPS
from rlpyt.utils.packages import optional_package

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPLATE = Path(__file__).with_name("page.html")


def write_page(
    folder: Folders, y: str | None = None, x: str = STEPS, out: str | os.PathLike[str] | None = None
) -> Path:
    """Write the page of a study: learning curves, scores, and tables of the groups and of the runs; return its path.

    The page is one file that a browser opens from the disk. Its pictures are inside, and nothing is loaded. Only its
    own script may run, whatever the names of runs and settings are. It needs matplotlib, scipy and jinja2.

    Args:
        folder: the directory of a grid, of an experiment, or of one run; or several.
        y: name of the column of `progress.csv` to draw, see `read_study`, which raises what is wrong.
        x: name of the column of the axis.
        out: the file; None is `study.html` in `folder`, the first of several.
    """
    study = read_study(folder, y, x)
    folders = folders_of(folder)
    path = folders[0] / "study.html" if out is None else Path(out)
    page = _page(study, ", ".join(path.resolve().name for path in folders))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(page.encode("utf-8", errors="replace"))
    return path


def _page(study: Study, name: str) -> str:
    jinja2 = optional_package("jinja2", "Writing the page of a study", "plot")
    blocks = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, **blocks)
    environment.filters |= {"digits": _digits, "sha256": _sha256}
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    finished = sum(run.finished for run in study.runs)
    page: str = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        name=name,
        summary=f"{len(study.runs)} runs, {finished} finished; {len(study.groups)} groups. Written {now}.",
        study=study,
        pictures={id: (title, _svg(draw(study))) for id, (title, draw) in plots_of(study).items()},
        groups=[(group, *_mean_of_finished(study, group)) for group in study.groups],
        runs=_runs(study),
    )
    return page


def _svg(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="svg")
    return base64.b64encode(file.getvalue()).decode()


def _mean_of_finished(study: Study, group: RunGroup) -> tuple[float, ...]:
    """Return the mean of a group's finished runs, and the ends of its interval; nan without any."""
    finals = np.array([[run.final(study.y, study.x)] for run in group.finished]).reshape(-1, 1)
    return tuple(float(part[0]) for part in mean_interval(finals)) if len(finals) else (math.nan,) * 3


def _runs(study: Study) -> Iterator[tuple[RunResult, RunGroup | None, float, float]]:
    """Yield each run with its group, its score and the seconds that it took."""
    groups = {run.directory: group for group in study.groups for run in group.runs}
    for run in study.runs:
        score = run.final(study.y, study.x) if {study.x, study.y} <= set(run.columns) else math.nan
        yield run, groups.get(run.directory), score, run.last("Diagnostics/CumTime (s)")


def _digits(value: float) -> str:
    """Return a number with four significant digits, whole ones in full; empty for nan."""
    if not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 10_000 else f"{value:.4g}"


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
