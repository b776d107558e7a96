"""Hints for a run that has diverged, which follow from its settings."""

from __future__ import annotations

import math
from collections.abc import Mapping

_UNBOUNDED = {
    "clip_grad_norm": "which clips no gradient: try 1",
    "q_target_clip": "which bounds no target: try the largest return that is possible",
}
"""Settings that bound something, and what infinity means there."""


def divergence_hints(settings: Mapping[str, object], hyper: Mapping[str, object], precision: str) -> list[str]:
    """Return what to change first, with the values that the run had.

    Args:
        settings: of the algorithm by name, as they were given.
        hyper: those that may be schedules, as they stood.
        precision: of the networks.
    """
    unused = () if settings.get("fixed_alpha") is None else ("alpha_learning_rate",)
    hints = [
        f"{name} was {value:g}: try {value / 10:g}"
        for name, value in hyper.items()
        if name.endswith("learning_rate") and name not in unused and isinstance(value, float | int) and value
    ]
    hints += [f"{name} was inf, {why}" for name, why in _UNBOUNDED.items() if hyper.get(name) == math.inf]
    if isinstance(clip := hyper.get("clip_grad_norm"), float | int) and 1 < clip < math.inf:
        hints.append(f"clip_grad_norm was {clip:g}: try 1")
    if settings.get("normalize_reward") is False:
        hints.append("rewards were as they came: try normalize_reward=True, or rewards of about 1")
    if precision != "float32":
        hints.append(f"the networks computed in {precision}: try settings=ComputeSettings(precision='float32')")
    if "double_dqn" in settings:
        hints.append("a model that gives illegal actions -inf must leave one legal action where an episode goes on")
    return [*hints, "look at the largest observations and rewards, and normalise them"]
