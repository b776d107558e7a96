"""Way of epsilon from its first to its last value over a run, for the algorithms whose agents explore by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from rlpyt.algos.plan_texts import about, unfinished_line
from rlpyt.core import QAgent, Remark
from rlpyt.functional import Linear, ScheduleLike
from rlpyt.settings import Hyper, Scheduled, Settings, chosen
from rlpyt.types import BatchSpec
from rlpyt.utils.replicas import Replicas

_FAR = 0.25  # epsilon beyond its last value from which on the end of a run is said to be too random


@dataclass(kw_only=True, eq=False)
class EpsilonSettings(Settings, Scheduled):
    """Settings of the way of epsilon, whose first and last value are the agent's."""

    eps_steps: float = 1e6
    """Steps over which the agent's epsilon goes from its first to its last value, on a line; give `eps_schedule` for
    another one."""
    eps_schedule: ScheduleLike | None = None
    """How far it has gone at a step, from 0 to 1; None is a straight line over `eps_steps`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("eps_steps", lambda x: x >= 1.0, "at least 1 step")

    def schedule_of(self, name: str) -> ScheduleLike | None:
        """Return the given schedule, or without `eps_schedule` a line over `eps_steps`."""
        if name == "eps_schedule" and self.eps_schedule is None:
            return Linear(0.0, 1.0, steps=self.eps_steps)
        return super().schedule_of(name)


class _Explorer(Protocol):
    """What is asked of an algorithm."""

    agent: QAgent
    batch_spec: BatchSpec
    eps_schedule: ScheduleLike | None
    eps_steps: float
    n_steps: int
    replicas: Replicas
    steps_per_itr: int

    def hyper(self, step: int) -> Hyper: ...


def explore(algo: _Explorer) -> Callable[[int], float | None]:
    """Let the agent explore by the settings of an algorithm from now on.

    Returns:
        The function that it follows: of an iteration, how far epsilon has gone after it, from 0 to 1.
    """
    exploration = partial(_annealed, algo)
    algo.agent.explore_by(exploration)
    algo.agent.anneal_exploration(algo.hyper(0).eps_schedule)
    return exploration


def _annealed(algo: _Explorer, itr: int) -> float | None:
    fraction: float | None = algo.hyper((itr + 1) * algo.steps_per_itr).eps_schedule
    return fraction


def _mean_epsilon(algo: _Explorer, fraction: float) -> float:
    """Return the mean epsilon over all environments; nan where the agent has none."""
    epsilon = algo.agent.mean_epsilon(fraction, algo.batch_spec.B * algo.replicas.world_size)
    return math.nan if epsilon is None else epsilon


def epsilon_numbers(algo: _Explorer, n_done: int) -> dict[str, float]:
    """Return for the row of the log the epsilon that the next batch is collected with, where the agent has one."""
    epsilon = _mean_epsilon(algo, algo.hyper(n_done * algo.steps_per_itr).eps_schedule)
    return {} if math.isnan(epsilon) else {"Epsilon": epsilon}


def with_epsilon(algo: _Explorer, plan: Mapping[str, object]) -> dict[str, object]:
    """Return the entries of a plan with what there is to be told of epsilon."""
    of_eps = dict[str, str]()
    at_end, last = _mean_epsilon(algo, algo.hyper(algo.n_steps).eps_schedule), _mean_epsilon(algo, 1.0)
    is_far = at_end - last > _FAR  # not where the agent has no epsilon
    if algo.eps_schedule is not None:
        of_eps = {"eps_steps": "not used, eps_schedule is given"} if "eps_steps" in chosen(cast(Settings, algo)) else {}
    elif _mean_epsilon(algo, 0.0) != last and not is_far:
        of_eps = unfinished_line("eps_steps", algo.eps_steps, algo.n_steps)
    warnings = [*cast(list[str], plan.get("warnings", [])), *([_too_random(algo, at_end)] if is_far else [])]
    return {**plan, **{name: Remark(text) for name, text in of_eps.items()}, "warnings": warnings}


def _too_random(algo: _Explorer, at_end: float) -> str:
    """Return the warning of a run whose epsilon is still large at its end."""
    length = f"the run has {algo.n_steps:,} steps, and at its end {at_end:.0%} of the actions are still random"
    if algo.eps_schedule is not None:
        return f"{length}: let eps_schedule reach 1 within the run, or raise n_steps."
    return (
        f"epsilon is annealed over {algo.eps_steps:,.0f} steps (eps_steps), {length}. Set eps_steps to about "
        f"{about(algo.n_steps / 5)}, or raise n_steps."
    )
