"""Sentences of a plan about settings that do not fit the length of a run."""

from __future__ import annotations


def unfinished_line(name: str, steps: float, n_steps: int) -> dict[str, str]:
    """Return the remark that a run ends before a line over `steps` does, if so."""
    if steps <= n_steps:
        return {}
    return {name: f"{number_text(steps)}, longer than the run, which ends at {100 * n_steps / steps:.2g} % of them"}


def about(x: float) -> str:
    """Return a number to set, at least 1, with one digit that is not 0."""
    return f"{float(f'{max(1.0, x):.1g}'):,.0f}"


def number_text(x: float) -> str:
    """Return a number as a plan has it: whole, and with commas, from a thousand on."""
    return f"{x:,.0f}" if x >= 1000 else f"{x:g}"
