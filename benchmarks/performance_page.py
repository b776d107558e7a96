"""The measured part of docs/notes/performance.md, and its pictures, from the figures of benchmarks/performance.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

Figures = Mapping[str, list[float]]
OWN = ("rlpyt", "rlpyt_bfloat16", "rlpyt_compiled", "bare", "bare_bfloat16")


def is_faster_when_small(name: str) -> bool:
    """Return whether the figures are seconds instead of steps per second."""
    return name == "start"


def speed(name: str, numbers: list[float]) -> float:
    """Return the median as a speed, of which more is better."""
    return 1 / median(numbers) if is_faster_when_small(name) else median(numbers)


def number(x: float) -> str:
    """Return three digits."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def best_peer(name: str, figures: Figures) -> str | None:
    """Return the key of the fastest peer."""
    return max((key for key in figures if key not in OWN), key=lambda key: speed(name, figures[key]), default=None)


def summary(results: Mapping[str, Any], titles: Mapping[str, str], labels: Mapping[str, str]) -> list[str]:
    """Return the table of all workloads."""
    head = ["steps/s", "rlpyt", "compiled", "of the bare loop", "times Stable-Baselines3", "fastest peer", "times it"]
    beside_peer = ["rlpyt", "rlpyt_compiled"]
    head.append("compiled")
    if any("rlpyt_bfloat16" in results.get(name, {}) for name in titles):
        head.append("in bfloat16")
        beside_peer.append("rlpyt_bfloat16")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, title in titles.items():
        figures = results.get(name, {})
        if "rlpyt" not in figures:
            continue
        peer = best_peer(name, figures)
        cells = [title.split(":")[0] + (", seconds" if is_faster_when_small(name) else "")]
        cells += [number(median(figures[key])) if key in figures else "" for key in ("rlpyt", "rlpyt_compiled")]
        cells += [ratio(name, figures, "rlpyt", other) for other in ("bare", "stable_baselines3")]
        cells.append(f"{labels[peer]} {number(median(figures[peer]))}" if peer else "")
        cells += [ratio(name, figures, own, peer) for own in beside_peer]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def ratio(name: str, figures: Figures, key: str, other: str | None) -> str:
    """Return how many times as fast a part is as another; nothing where one of them was not measured.

    It is the median over the rounds that both have, in which they were measured one after the other.
    """
    if other is None or not {key, other} <= figures.keys():
        return ""
    pairs = zip(figures[key], figures[other], strict=False)
    return f"{median(speed(name, [own]) / speed(name, [theirs]) for own, theirs in pairs):.2f}"


def details(results: Mapping[str, Any], titles: Mapping[str, str], labels: Mapping[str, str]) -> list[str]:
    """Return the table of all medians: a row for each workload, a column for each part."""
    columns = dict(
        zip(OWN, ("rlpyt", "in bfloat16", "compiled", "bare loop", "bare, in bfloat16"), strict=True)
    ) | dict(labels)
    measured = [name for name in titles if name in results]
    columns = {key: label for key, label in columns.items() if any(key in results[name] for name in measured)}
    lines = ["| | " + " | ".join(columns.values()) + " |", "|" + "---|" * (len(columns) + 1)]
    for name in measured:
        figures = results[name]
        cells = [number(median(figures[key])) if key in figures else "" for key in columns]
        lines.append(f"| {titles[name]} | " + " | ".join(cells) + " |")
    return lines


def picture(
    path: Path, results: Mapping[str, Any], titles: Mapping[str, str], labels: Mapping[str, Mapping[str, str]]
) -> None:
    """Draw a panel for each workload: a bar for each part, with the workload's label of it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = [name for name in titles if "rlpyt" in results.get(name, {})]
    columns = 3
    rows = -(-len(names) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(13, 2.3 * rows), squeeze=False)
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    for axis, name in zip(axes.flat, names, strict=False):
        figures = results[name]
        keys = sorted(figures, key=lambda key: speed(name, figures[key]))
        colours = ["#bbbbbb" if key.startswith("bare") else "#1f77b4" if key in OWN else "#d9a441" for key in keys]
        axis.barh([labels[name][key] for key in keys], [median(figures[key]) for key in keys], color=colours)
        axis.set_title(titles[name].split(":")[0] + (" (seconds)" if is_faster_when_small(name) else ""), fontsize=10)
        axis.tick_params(labelsize=7)
        axis.locator_params(axis="x", nbins=5)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Steps per second (rlpyt blue, peers yellow, a bare loop without a library grey)", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
