"""Hints that follow from the settings of a run: for one that has diverged, and for one that will hardly learn."""

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


_SHORT = 0.9
"""Discount from which down a run is warned of it: rewards 44 steps ahead count one hundredth."""


def discount_warning(discount: object, record: str) -> str | None:
    """Return a warning of a discount that few environments are learned with; None where there is nothing to say.

    Args:
        discount: of the algorithm, as it was given; nothing is said of a schedule, nor of 0, which means one step.
        record: of the run as a text, which names the environment. Pendulum is learned with 0.9.
    """
    if not isinstance(discount, float | int) or not 0 < discount <= _SHORT or "pendulum" in record.lower():
        return None
    return (
        f"discount is {discount:g}, with which the agent looks about {1 / (1 - discount):.0f} steps ahead "
        "(1 / (1 - discount)). Unless its episodes are as short as that, set discount to 0.99."
    )
