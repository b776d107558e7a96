"""Remarks for the plan of a run: what becomes of settings of a replay that other settings or the batch change."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

_BETA_LINE = ("pri_beta_init", "pri_beta_final", "pri_beta_steps")


def unused_settings(
    given: Mapping[str, Any], *, prioritized: bool, sequences: bool, has_beta: bool, asks_for_cpu: bool
) -> dict[str, str]:
    """Return the settings that were given and have no effect, with the reason.

    Args:
        given: arguments of the algorithm by name, without those that have their defaults.
        prioritized: whether the replay is prioritised.
        sequences: whether an update takes sequences.
        has_beta: whether `pri_beta` is given.
        asks_for_cpu: whether `replay_on_device` is True and the device is the CPU.
    """
    reasons: dict[str, str] = {}
    if sequences:
        reasons["batch_size"] = "an update takes batch_B sequences of warmup_T + batch_T rows"
    if asks_for_cpu:
        reasons["replay_on_device"] = "the agent is on the CPU, as the replay is"
    if has_beta:
        reasons |= dict.fromkeys(_BETA_LINE, "pri_beta is given")
    if not prioritized:
        reasons |= dict.fromkeys(("pri_alpha", "pri_beta", *_BETA_LINE, "pri_eta"), "prioritized_replay is False")
    elif not sequences:
        reasons["pri_eta"] = "it is for sequences"
    return {name: f"not used, {reason}" for name, reason in reasons.items() if name in given}


def unused_prefetch(draws_ahead: bool, n_updates: int) -> dict[str, str]:
    """Return the remark that `prefetch` has no effect, with the reason, if so.

    Args:
        draws_ahead: whether priorities let a batch be drawn ahead.
        n_updates: updates an iteration.
    """
    if not draws_ahead:
        return {"prefetch": "not used, a prioritised batch waits for the priorities of the update before it"}
    return {} if n_updates > 1 else {"prefetch": "not used, an iteration has one update"}


def rounded_settings(settings: Mapping[str, tuple[Any, float, str]]) -> dict[str, str]:
    """Return the plain numbers that a run rounds.

    Args:
        settings: name -> the setting, the number that the run has in its place, and what it is a whole number of.
    """
    return {
        name: f"{_text(float(given))} rounded to {_text(made)}, whole {units}"
        for name, (given, made, units) in settings.items()
        if isinstance(given, Real) and made != given
    }


def unfinished_line(name: str, steps: float, n_steps: int) -> dict[str, str]:
    """Return the remark that a run ends before a line over `steps` does, if so."""
    if steps <= n_steps:
        return {}
    return {name: f"{_text(steps)}, longer than the run, which ends at {100 * n_steps / steps:.2g} % of them"}


def about(x: float) -> str:
    """Return a number to set, at least 1, with one digit that is not 0."""
    return f"{float(f'{max(1.0, x):.1g}'):,.0f}"


def _text(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:g}"
