"""Refuses arguments of a runner that cannot be meant."""

from __future__ import annotations

from math import inf
from typing import Any

from rlpyt.core import Agent, Algorithm, Sampler


def check_parts(runner: str, algo: Any, agent: Any, sampler: Any) -> None:
    """Refuse parts that are something else, or in another order.

    Raises:
        TypeError: if one is.
    """
    for name, part, kind in (("algo", algo, Algorithm), ("agent", agent, Agent), ("sampler", sampler, Sampler)):
        if not isinstance(part, kind):
            raise TypeError(
                f"{runner}: {name} is {part!r:.100}; expected an instance of {kind.__name__}. The order is algo, "
                "agent, sampler; each may be given by name."
            )


def check_numbers(runner: str, n_steps: float, log_interval_steps: float, seed: float | None) -> None:
    """Refuse numbers that are too small, not finite or not whole.

    Raises:
        ValueError: if one is.
    """
    for name, steps, most in (("n_steps", n_steps, 2**62), ("log_interval_steps", log_interval_steps, inf)):
        if not 1 <= steps <= most:
            raise ValueError(f"{runner}: {name} is {steps!r}; expected a number of steps from 1.")
    if seed is not None and not (seed >= 0 and seed % 1 == 0):
        raise ValueError(f"{runner}: seed is {seed!r}; expected a whole number from 0, or None for one that is drawn.")
