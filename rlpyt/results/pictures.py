"""Pictures of a study: learning curves, intervals of the scores, performance profiles."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from rlpyt.logging.files import replace_file
from rlpyt.results.runs import Folders, aligned_curves, folders_of
from rlpyt.results.statistics import (
    Array,
    Interval,
    interquartile_mean,
    mean_interval,
    mean_score,
    median_score,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap_interval,
)
from rlpyt.results.study import Study, read_study
from rlpyt.run_records import STEPS, refuse_link
from rlpyt.utils.packages import optional_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B", "#8C6D31")
"""Colours of Okabe and Ito, which the colour-blind can tell apart; black and yellow are darker and browner here."""
Dash = Literal["-", "--", ":", "-."]
DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.")
MANY = 6
"""Number of methods up to which all pairs are compared."""
ENOUGH = 3
"""Number of runs from which a curve has a band: the interval of two is 18 standard deviations wide."""
_INK, _PALE = "#333333", "#DDDDDD"
_NOTE = "95 % stratified bootstrap interval, none for a single run"


def plot_curves(study: Study) -> Figure:
    """Draw the learning curves of a study: a panel for each task, a line for each method.

    A line is the mean over runs; it is dotted where some runs have no value. A band is the 95 % Student t interval,
    from `ENOUGH` runs on. Thin lines are the runs.
    """
    tasks = study.tasks or [""]
    n_columns = 2 if len(tasks) == 4 else min(len(tasks), 3)
    n_rows = -(-len(tasks) // n_columns)
    figure = _figure(max(7.0, 4.6 * n_columns), 3.7 * n_rows + 0.6 + _legend_height(study.methods))
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    for axes, task in zip(panels.flat, tasks, strict=False):
        _draw_task(axes, study, task)
    for axes in panels.flat[len(tasks) :]:
        axes.remove()
    interval = f"95 % Student t interval from {ENOUGH} runs on"
    note = f"Mean over runs, {interval}; dotted: a mean of fewer runs; thin: the runs."
    _add_legend(figure, study, study.methods, note)
    return figure


def plot_scores(study: Study, repetitions: int = 2000) -> Figure:
    """Draw aggregates of the scores of each method, with stratified bootstrap intervals.

    The panels are the interquartile mean, the mean, the median over tasks if there are several, and the optimality gap
    if the scores are human-normalised. The repetitions are those of `stratified_bootstrap_interval`.
    """
    panels: dict[str, Callable[..., float]] = {"interquartile mean": interquartile_mean, "mean": mean_score}
    panels |= {"median over tasks": median_score} if len(study.tasks) > 1 else {}
    panels |= {"optimality gap (lower is better)": optimality_gap} if study.scale != study.y else {}
    names = list(study.scores)
    figure = _figure(2.2 + 2.9 * len(panels), 1.5 + 0.55 * max(len(names), 1))
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, statistic) in zip(all_axes, panels.items(), strict=True):
        _style(axes, grid="x")
        axes.set_title(title, fontsize=10)
        axes.locator_params(axis="x", nbins=4)
        for row, name in enumerate(names):
            found = _interval(statistic, [study.scores[name]], repetitions)
            _draw_interval(axes, row, found, _look(study, name)[0])
    _rows(all_axes[0], [_wrapped(name) for name in names])
    counts = " or ".join(map(str, sorted({len(matrix) for matrix in study.scores.values()})))
    runs = f"runs: {counts}" + (f" on each of {len(study.tasks)} tasks" if len(study.tasks) > 1 else "")
    figure.supxlabel(f"{_plain(study.scale)}; {runs}; {_NOTE}", fontsize=8, color=_INK)
    return figure


def plot_improvement(study: Study, repetitions: int = 2000) -> Figure:
    """Draw the probability of improvement of one method over another, with stratified bootstrap intervals.

    All pairs are drawn of up to `MANY` methods. Of more, only the one with the highest interquartile mean is compared.
    """
    names = list(study.scores)
    pairs = [*combinations(names, 2)]
    if len(names) > MANY:
        best = max(names, key=lambda name: interquartile_mean(study.scores[name]))
        pairs = [(best, name) for name in names if name != best]
    figure = _figure(8.5, 1.4 + 0.5 * max(len(pairs), 1))
    axes = figure.subplots()
    _style(axes, grid="x")
    for row, (a, b) in enumerate(pairs):
        matrices = [study.scores[a], study.scores[b]]
        found = _interval(probability_of_improvement, matrices, repetitions)
        _draw_interval(axes, row, found, _look(study, a)[0])
    _rows(axes, [_wrapped(a) for a, _ in pairs])
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(pairs)), [_wrapped(b) for _, b in pairs])
    right.tick_params(length=0, colors=_INK, labelsize=9)
    right.spines["right"].set_visible(False)
    axes.axvline(0.5, color=_INK, linewidth=1, linestyle="--", zorder=0)
    axes.set_xlim(-0.02, 1.02)
    axes.set_title("P(a run on the left scores higher than one on the right)", fontsize=10)
    choice = "; the best method and each other one" if len(names) > MANY else ""
    figure.supxlabel(f"{_NOTE}; 0.5: no difference{choice}", fontsize=8, color=_INK)
    return figure


def plot_profiles(study: Study, repetitions: int = 500) -> Figure:
    """Draw performance profiles: the fraction of runs over each score, with bootstrap intervals."""
    figure = _figure(7.0, 4.2 + _legend_height([*study.scores]))
    axes = figure.subplots()
    _style(axes)
    if study.scores:
        pooled = np.concatenate([matrix.ravel() for matrix in study.scores.values()])
        low, high = float(pooled.min()), float(pooled.max())
        margin = 0.03 * (high - low) or 1.0
        thresholds = np.linspace(low - margin, high + margin, 121)
    for name, matrix in study.scores.items():
        found = _interval(lambda scores: performance_profile(scores, thresholds), [matrix], repetitions)
        colour, dash = _look(study, name)
        axes.plot(thresholds, found.point, color=colour, linestyle=dash, linewidth=1.8)
        axes.fill_between(thresholds, found.low, found.high, color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(_plain(study.scale))
    axes.set_ylabel("fraction of runs with a higher score")
    _add_legend(figure, study, [*study.scores], _NOTE)
    return figure


Draw: TypeAlias = Callable[[Study], "Figure"]
_PICTURES: dict[str, tuple[str, Draw, int]] = {
    "curves": ("Learning curves", plot_curves, 0),
    "scores": ("Final scores", plot_scores, 1),
    "improvement": ("Probability of improvement", plot_improvement, 2),
    "profiles": ("Performance profiles", plot_profiles, 1),
}
"""Title, function, and number of methods with scores that it needs, by the name of the file."""


def plots_of(study: Study) -> dict[str, tuple[str, Draw]]:
    """Return the pictures that a study has runs for: a title and a function by the name of the file."""
    return {name: (title, draw) for name, (title, draw, least) in _PICTURES.items() if len(study.scores) >= least}


def plot_study(
    folder: Folders, y: str | None = None, x: str = STEPS, out: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Draw the runs below a folder, also while they go on, save the pictures as PNG files, and return their paths.

    They are `curves.png`; with finished runs `scores.png` and `profiles.png`; with two methods `improvement.png`. Those
    of an earlier call that cannot be drawn any more are removed. It needs matplotlib and scipy.

    Args:
        folder: the directory of a grid, of an experiment, or of one run; or several.
        y: name of the column of `progress.csv` to draw, see `read_study`, which raises what is wrong.
        x: name of the column of the axis.
        out: folder of the pictures; None is `plots` in `folder`, the first of several.
    """
    study = read_study(folder, y, x)
    target = folders_of(folder)[0] / "plots" if out is None else Path(out)
    if out is None:
        refuse_link(target)
    target.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    drawn = plots_of(study)
    for name in _PICTURES.keys() - drawn.keys():
        (target / f"{name}.png").unlink(missing_ok=True)  # the scores of other runs than those in curves.png
    for name, (_, draw) in drawn.items():
        paths.append(target / f"{name}.png")
        with replace_file(paths[-1]) as file:
            draw(study).savefig(file, format="png", dpi=150)
    return paths


# ---- parts of pictures ----


def _draw_task(axes: Axes, study: Study, task: str) -> None:
    _style(axes)
    axes.set_title(_plain(task), fontsize=11)
    axes.set_xlabel("steps" if study.x.endswith("CumSteps") else _plain(study.x))
    axes.set_ylabel(_plain(study.y))
    axes.xaxis.set_major_formatter(_thousands)
    seen: list[Array] = []
    for group in (group for group in study.groups if group.task == task):
        colour, dash = _look(study, group.method)
        curves = aligned_curves(group.runs, study.y, study.x)
        if not len(curves.steps):
            continue
        seen.append(curves.values[np.isfinite(curves.values)])
        found = mean_interval(curves.values)
        for values in curves.values if 1 < len(curves.values) <= 10 else ():
            axes.plot(curves.steps, values, color=colour, alpha=0.25, linewidth=0.7, zorder=1)
        enough = np.isfinite(curves.values).sum(axis=0) >= ENOUGH
        low, high = (np.where(enough, end, np.nan) for end in (found.low, found.high))
        axes.fill_between(curves.steps, low, high, color=colour, alpha=0.15, linewidth=0)
        gap = np.pad(~curves.complete, 1)
        fewer = np.where(gap[:-2] | gap[1:-1] | gap[2:], found.point, np.nan)
        axes.plot(curves.steps, fewer, color=colour, linestyle=(0, (1, 1.5)), linewidth=1.4, zorder=2)
        whole = np.where(curves.complete, found.point, np.nan)
        mark = "o" if len(curves.steps) == 1 else None
        axes.plot(curves.steps, whole, color=colour, linestyle=dash, linewidth=1.8, marker=mark, zorder=3)
    if seen:
        # A wide interval must not make the curves flat.
        values = np.concatenate(seen)
        margin = 0.08 * float(np.ptp(values)) or 1.0
        axes.set_ylim(float(values.min()) - margin, float(values.max()) + margin)
    else:
        axes.text(0.5, 0.5, f"no {_plain(study.y)} yet", transform=axes.transAxes, ha="center", color=_INK)


def _interval(statistic: Callable[..., ArrayLike], matrices: Sequence[Array], repetitions: int) -> Interval:
    """Return the bootstrap interval; its ends are nan for one run, whose samples are all equal."""
    if all(len(matrix) == 1 for matrix in matrices):
        point = np.asarray(statistic(*matrices), dtype=np.float64)
        return Interval(point, np.full_like(point, np.nan), np.full_like(point, np.nan))
    return stratified_bootstrap_interval(statistic, *matrices, repetitions=repetitions)


def _draw_interval(axes: Axes, row: int, found: Interval, colour: str) -> None:
    point, low, high = map(float, found)
    if np.isfinite(low):
        axes.barh(row, high - low, left=low, height=0.5, color=colour, alpha=0.35, linewidth=0)
    axes.plot([point, point], [row - 0.25, row + 0.25], color=colour, linewidth=2.2, solid_capstyle="butt")


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows of a picture of intervals, the first one on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.45, -0.55)


def _style(axes: Axes, grid: str = "both") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_PALE)
    axes.tick_params(colors=_INK, labelsize=9, length=0)
    axes.use_sticky_edges = False
    axes.grid(True, axis="x" if grid == "x" else "both", color=_PALE, linewidth=0.6)
    axes.set_axisbelow(True)


def _thousands(value: float, _position: float) -> str:
    """Return a number of steps as people write it: 250k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _look(study: Study, method: str) -> tuple[str, Dash]:
    """Return the colour and the dashes of a method."""
    index = study.methods.index(method)
    return PALETTE[index % len(PALETTE)], DASHES[index // len(PALETTE) % len(DASHES)]


def _plain(text: str) -> str:
    """Return text that matplotlib draws as it is: no formula, no character that an SVG file cannot have."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown.replace("$", r"\$")


def _wrapped(text: str, width: int = 34) -> str:
    """Return a label in several lines, broken at its commas where possible; legends hide one that begins with _."""
    lines = textwrap.wrap(text, width) or [""]
    shown = "\n".join(map(_plain, lines[:4] + (["..."] if len(lines) > 4 else [])))
    return f" {shown}" if shown.startswith("_") else shown


def _add_legend(figure: Figure, study: Study, methods: Sequence[str], note: str) -> None:
    """Put a legend below the panels, and a note over it."""
    from matplotlib.lines import Line2D

    if not methods:
        figure.supxlabel(note, fontsize=8, color=_INK)
        return
    looks = [_look(study, method) for method in methods]
    lines = [Line2D([], [], color=colour, linestyle=dash, linewidth=2) for colour, dash in looks]
    labels = [_wrapped(method) for method in methods]
    columns = _legend_columns(labels)
    style = {"frameon": False, "fontsize": 9, "title_fontsize": 8}
    legend = figure.legend(lines, labels, loc="outside lower center", ncols=columns, title=note, **style)
    legend.get_title().set_color(_INK)


def _legend_columns(labels: Sequence[str]) -> int:
    widest = max(len(line) for label in labels for line in label.split("\n"))
    return max(1, min(len(labels), 80 // (widest + 6)))


def _legend_height(methods: Sequence[str]) -> float:
    """Return the height in inches that a legend takes."""
    if not methods:
        return 0.0
    labels = [_wrapped(method) for method in methods]
    lines = max(label.count("\n") + 1 for label in labels)
    return 0.2 + 0.18 * lines * -(-len(labels) // _legend_columns(labels))


def _figure(width: float, height: float) -> Figure:
    figure: Figure = optional_package("matplotlib.figure", "Plotting a study", "plot").Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    return figure
