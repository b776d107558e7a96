"""Page of a study: one HTML file with pictures and tables, which needs no server, no network and no other file."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

import numpy as np

from rlpyt.logging.files import replace_file
from rlpyt.results.groups import RunGroup
from rlpyt.results.pictures import plots_of
from rlpyt.results.runs import Folders, RunResult, folders_of
from rlpyt.results.statistics import mean_interval
from rlpyt.results.study import Study, read_study
from rlpyt.run_records import STEPS

_STYLE = """
:root { color-scheme: light; --ink: #222; --pale: #e2e2e2; --soft: #f6f7f8; --blue: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 76rem; color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--pale); }
p.about { margin: 0; color: #555; }
figure { margin: 0; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; white-space: nowrap; background: var(--soft); border-bottom: 1px solid #bbb; padding: 0; }
th button { all: unset; cursor: pointer; display: block; width: 100%; padding: .45rem .6rem; font-weight: 600;
  box-sizing: border-box; }
th button:focus-visible { outline: 2px solid var(--blue); outline-offset: -2px; }
th button::after { content: " \\2195"; color: #aaa; }
th[aria-sort=ascending] button::after { content: " \\2191"; color: var(--blue); }
th[aria-sort=descending] button::after { content: " \\2193"; color: var(--blue); }
td { padding: .4rem .6rem; border-bottom: 1px solid var(--pale); vertical-align: top;
  overflow-wrap: break-word; max-width: 24rem; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th.number button { text-align: right; }
tbody tr:hover { background: var(--soft); }
.status { white-space: nowrap; font-weight: 600; }
.finished { color: #006b4f; } .running { color: #0060a0; }
.failed, .killed { color: #b23a00; } .interrupted, .none { color: #6a5a00; }
li { overflow-wrap: anywhere; }
/* On a phone a picture keeps the size at which its text can be read, and what is wider than the screen says so. */
@media (max-width: 44rem) {
  body { padding: 1rem .8rem 3rem; }
  figure { overflow-x: auto; }
  img { max-width: none; width: 42rem; }
  div.wide::before, figure::before { content: "scroll sideways \\2194"; position: sticky; left: 0; display: block;
    color: #555; font-size: .8rem; }
}
"""

_SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table")) {
  const headers = [...table.querySelectorAll("th")];
  headers.forEach((header, place) => header.querySelector("button").addEventListener("click", () => {
    const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of headers) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const key = row => row.cells[place].dataset.key;
    const isNumber = header.classList.contains("number");
    const order = (a, b) => {
      if (!isNumber) return sign * key(a).localeCompare(key(b), undefined, {numeric: true});
      if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === "");
      return sign * (Number(key(a)) - Number(key(b)));
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(order));
  }));
}
"""

_SIGNS = {
    "finished": "\u2713",
    "running": "\u25b6",
    "failed": "\u2717",
    "killed": "\u2717",
    "interrupted": "\u25ae\u25ae",
}


@dataclass(frozen=True)
class _Cell:
    """Cell of a table: its text, its class, and what its column is sorted by."""

    text: str
    kind: str = ""
    key: str | None = None

    def html(self) -> str:
        kind = f' class="{self.kind}"' if self.kind else ""
        key = self.text if self.key is None else self.key
        return f'<td{kind} data-key="{escape(key)}">{escape(self.text)}</td>'


def write_page(
    folder: Folders,
    y: str | None = None,
    x: str = STEPS,
    out: str | os.PathLike[str] | None = None,
) -> Path:
    """Write the page of a study: learning curves, scores, and tables of the groups and of the runs.

    The page is one file that a browser opens from the disk. Its pictures are inside, and nothing is loaded. Only its
    own script may run, whatever the names of runs and settings are.

    Args:
        folder: the directory of a grid, of an experiment, or of one run; or several.
        y: name of the column of `progress.csv` to draw, see `read_study`.
        x: name of the column of the axis.
        out: the file; None is `study.html` in `folder`, the first of several.

    Returns:
        The path of the page.

    Raises:
        ImportError: if matplotlib is not installed.
        FileNotFoundError: if there is no such folder.
        ValueError: if there is no run in it, or no run has the column.
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
    allowed = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(name)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(name)}</h1>",
        f'<p class="about">{escape(_summary(study))}</p>',
        *_remarks(study.remarks),
        *_pictures(study),
        *_group_table(study),
        *_run_table(study),
        f"<script>{_SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _summary(study: Study) -> str:
    finished = sum(run.finished for run in study.runs)
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return f"{len(study.runs)} runs, {finished} finished; {len(study.groups)} groups. Written {now}."


def _remarks(remarks: Sequence[str]) -> list[str]:
    if not remarks:
        return []
    items = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    return ["<h2>Remarks</h2>", f'<ul id="remarks">{items}</ul>']


def _pictures(study: Study) -> list[str]:
    parts = []
    for name, (title, draw) in plots_of(study).items():
        file = io.BytesIO()
        draw(study).savefig(file, format="svg")
        # A picture in img runs no script, whatever text is in it.
        data = base64.b64encode(file.getvalue()).decode()
        image = f'<img id="{name}" alt="{title}" src="data:image/svg+xml;base64,{data}">'
        parts += [f"<h2>{title}</h2>", f"<figure>{image}</figure>"]
    return parts


def _group_table(study: Study) -> list[str]:
    heads = [("settings", ""), ("task", ""), ("runs", "number"), ("finished", "number")]
    heads += [(f"{study.y} at the end", "number"), ("95 % interval", "number")]
    rows = [_group_row(study, group) for group in study.groups]
    about = f"Mean over finished runs of {study.y} over the last tenth of the steps, and its Student t interval."
    return ["<h2>Groups</h2>", f'<p class="about">{escape(about)}</p>', *_table("groups", heads, rows)]


def _group_row(study: Study, group: RunGroup) -> list[_Cell]:
    finals = np.array([[run.final(study.y, study.x)] for run in group.finished]).reshape(-1, 1)
    mean, low, high = (float(part[0]) for part in mean_interval(finals)) if len(finals) else (math.nan,) * 3
    interval = f"{_digits(low)} to {_digits(high)}" if math.isfinite(low) else ""
    return [
        _Cell(group.method),
        _Cell(group.task),
        _number(len(group.runs)),
        _number(len(group.finished)),
        _number(mean),
        _Cell(interval, "number", repr(low) if interval else ""),
    ]


def _run_table(study: Study) -> list[str]:
    groups = {run.directory: group for group in study.groups for run in group.runs}
    heads = [("run", ""), ("settings", ""), ("task", ""), ("seed", "number"), ("status", "")]
    heads += [("steps", "number"), (f"{study.y} at the end", "number"), ("seconds", "number"), ("note", "")]
    rows = [_run_row(study, run, groups.get(run.directory)) for run in study.runs]
    return ["<h2>Runs</h2>", *_table("runs", heads, rows)]


def _run_row(study: Study, run: RunResult, group: RunGroup | None) -> list[_Cell]:
    known = {study.x, study.y} <= set(run.columns)
    seconds = run.columns.get("Diagnostics/CumTime (s)", np.empty(0))
    kind = run.status if run.status in _SIGNS else "none"
    return [
        _Cell(run.name),
        _Cell(group.method if group else ""),
        _Cell(group.task if group else run.task),
        _Cell("" if run.seed is None else str(run.seed), "number"),
        _Cell(f"{_SIGNS.get(run.status, '?')} {run.status}", f"status {kind}", run.status),
        _number(run.last_step),
        _number(run.final(study.y, study.x) if known else math.nan),
        _number(float(np.nanmax(seconds)) if np.isfinite(seconds).any() else math.nan),
        _Cell(run.note),
    ]


def _table(name: str, heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[_Cell]]) -> list[str]:
    """Return a table whose columns a click on the head sorts."""
    kinds = [f' class="{kind}"' if kind else "" for _, kind in heads]
    cells = "".join(
        f'<th scope="col"{kind}><button type="button">{escape(head)}</button></th>'
        for kind, (head, _) in zip(kinds, heads, strict=True)
    )
    lines = ["<tr>" + "".join(cell.html() for cell in row) + "</tr>" for row in rows]
    table = f'<div class="wide"><table id="{name}"><thead><tr>{cells}</tr></thead><tbody>'
    return [table, *lines, "</tbody></table></div>"]


def _number(value: float) -> _Cell:
    return _Cell(_digits(value), "number", repr(value) if math.isfinite(value) else "")


def _digits(value: float) -> str:
    """Return a number with four significant digits, whole ones in full; empty for nan."""
    if not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 10_000 else f"{value:.4g}"
