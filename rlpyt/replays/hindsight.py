"""Hindsight replay: transitions are read as if the agent had wanted a goal that it did reach.

An episode that missed its goal has still reached others. Most transitions of a batch are given one of those in the
place of the goal that was set, with the rewards that the environment would have given for it. So an agent learns from
success although it has none yet. The rows of the replay stay as they were collected.

Source: Andrychowicz et al. 2017, arXiv:1707.01495, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias, cast, get_args

import numpy as np

from rlpyt.functional import n_step_return
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.replays.reading import SamplesFromReplay, Transitions
from rlpyt.replays.storage import Storage
from rlpyt.types import Info
from rlpyt.utils.arrays import taken

GoalFunction: TypeAlias = Callable[[np.ndarray, np.ndarray, Info], Buffer]
"""Function of achieved goals [N, ...], desired goals [N, ...] and an empty info; returns one number or flag each, [N].
gymnasium-robotics calls it `compute_reward` and `compute_terminated`."""
Strategy: TypeAlias = Literal["future", "final", "episode"]
"""Where goals are taken from; see `Hindsight`."""

FUNCTIONS = ("compute_reward", "compute_terminated")
"""Methods that an environment of goals has."""
_GOALS = ("achieved_goal", "desired_goal")
_FIRST_WINDOW = 32  # rows in which the end of an episode is looked for at first


@dataclass(frozen=True, kw_only=True)
class Hindsight:
    """How goals are chosen in hindsight, and what the environment says of them.

    Observations are dictionaries with the fields `observation`, `achieved_goal` and `desired_goal`, as environments of
    gymnasium-robotics have. Goals come to the functions in row form: float32 of a Box.

    Raises:
        ValueError: if there is no such strategy, or `n_goals` is not above 0.
        TypeError: if a function cannot be called.
    """

    strategy: Strategy = "future"
    """Where a goal is taken from: "future" is a row of the episode after the one that is read, "episode" any row of the
    episode, "final" its last one, the final observation. Of an episode that goes on, the newest row is the last."""
    n_goals: float = 4.0
    """Transitions with a goal chosen in hindsight for every one with the goal that was set; k of the paper."""
    compute_reward: GoalFunction | None = None
    """Rewards of goals that were achieved by a step, where others were desired. None asks the environment."""
    compute_terminated: GoalFunction | None = None
    """Whether the step ends the episode by termination then. None asks the environment; where that has none, and where
    it does not depend on goals, an episode that ended by termination still does."""

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.strategy not in get_args(Strategy):
            raise ValueError(
                f"Hindsight: strategy is {self.strategy!r}; expected one of {', '.join(get_args(Strategy))}. Give one."
            )
        if isinstance(self.n_goals, bool) or not 0 < self.n_goals < np.inf:
            raise ValueError(
                f"Hindsight: n_goals is {self.n_goals!r}; expected a number above 0, such as 4. For a replay without "
                "goals of hindsight leave hindsight out."
            )
        for name in FUNCTIONS:
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise TypeError(
                    f"Hindsight: {name} is {function!r:.80}; expected a function of achieved goals, desired goals and "
                    "an info, such as the environment's method. Give the function itself."
                )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: its functions may belong to an environment, which has no state here."""
        return self

    def with_functions(self, of_env: Mapping[str, GoalFunction]) -> Self:
        """Return the same with the environment's functions, by name, in the place of those that were not given."""
        reward, terminated = (getattr(self, name) or of_env.get(name) for name in FUNCTIONS)
        return replace(self, compute_reward=reward, compute_terminated=terminated)

    def fitting(self, observation: Buffer) -> Self:
        """Return the same for a run with these observations, with functions that were tried out on its goals.

        Args:
            observation: one, without leading dimensions.

        Raises:
            TypeError: if observations are no dictionaries with two arrays of goals, or there is no `compute_reward`.
            ValueError: if the two goals have different shapes, or a function fails with several goals at once.
        """
        goal = _goal_of(observation)
        if self.compute_reward is None:
            raise TypeError(
                "Hindsight: there is no compute_reward, and the environment has no method of this name; expected a "
                "function (achieved_goal, desired_goal, info) of arrays [N, ...] that returns rewards [N]. Give "
                "hindsight=Hindsight(compute_reward=...)."
            )
        goals = np.stack([goal] * 3)
        _tried("compute_reward", self.compute_reward, goals)
        if self.compute_terminated is None:
            return self
        result = _tried("compute_terminated", self.compute_terminated, goals, takes_false=True)
        # One flag for several goals that were all reached, and not True: it does not depend on goals.
        return self if np.ndim(result) else replace(self, compute_terminated=None)


def as_hindsight(given: Hindsight | str, who: str) -> Hindsight:
    """Return what was given, or the way of a strategy that was named.

    Raises:
        TypeError: if it is neither; the message begins with `who`.
        ValueError: if there is no such strategy.
    """
    if isinstance(given, str):
        return Hindsight(strategy=cast(Strategy, given))
    if isinstance(given, Hindsight):
        return given
    raise TypeError(
        f"{who}: hindsight is {given!r:.100}; expected an rlpyt.replays.Hindsight, or the name of a strategy. Give "
        'hindsight="future", say.'
    )


class HindsightTransitions(Transitions):
    """Reading of n-step transitions, of which most get a goal that their episode achieved, and the rewards for it.

    A share of n_goals / (n_goals + 1) of the transitions is chosen at random and read anew: `desired_goal` of both
    observations is the goal, and all rewards of the n steps follow from it, as `prev_reward` does. Where
    `compute_terminated` says that a step terminates, the return ends with it; an episode that ended otherwise is
    bootstrapped from its final row.

    Args:
        n_step_return: number of rewards summed in a return, n.
        hindsight: how goals are chosen; of `Hindsight.fitting`.
        rng: random stream to draw goals from. It is that of the replay's index, with which it is saved.
    """

    def __init__(self, n_step_return: int, hindsight: Hindsight, rng: np.random.Generator) -> None:
        super().__init__(n_step_return)
        self.hindsight, self.rng = hindsight, rng

    def read(self, storage: Storage, T_idxs: np.ndarray, B_idxs: np.ndarray, discount: float) -> SamplesFromReplay:
        """Return the transitions that begin at rows, [M]."""
        rows, of_env = storage.rows, self.hindsight
        chosen = self.rng.random(len(T_idxs)) < of_env.n_goals / (of_env.n_goals + 1)
        goals = storage.field("desired_goal", T_idxs, B_idxs)
        goals[chosen] = self._achieved_goals(storage, T_idxs[chosen], B_idxs[chosen])
        # Row k has what step k - 1 has led to; step -1 is the one before. Behind an episode's end nothing is summed.
        after = (T_idxs + np.arange(self.n_step_return + 1)[:, None]) % storage.T
        achieved = storage.field("achieved_goal", after, B_idxs)
        before = (after - 1) % storage.T, B_idxs
        reward, terminated, truncated = rows.reward[before], rows.terminated[before], rows.truncated[before]
        assert of_env.compute_reward is not None
        of_goals = _computed("compute_reward", of_env.compute_reward, achieved, goals, np.float32)
        of_goals[0] *= rows.valid[before[0][0], B_idxs]  # an episode's first row follows no reward
        np.copyto(reward, of_goals, where=chosen)
        if of_env.compute_terminated is not None:
            done = terminated | truncated
            ended = _computed("compute_terminated", of_env.compute_terminated, achieved, goals, np.bool_)
            np.copyto(terminated, ended, where=chosen)
            np.copyto(truncated, done & ~terminated, where=chosen)
        n_step = n_step_return(reward[1:], terminated[1:], truncated[1:], discount=discount)
        both = storage.agent_inputs(np.array([T_idxs, (T_idxs + n_step.steps) % storage.T]), B_idxs)
        both.observation["desired_goal"][:, chosen] = goals[chosen]
        both.prev_reward[:] = reward[0], np.take_along_axis(reward, n_step.steps[None], axis=0)[0]
        return SamplesFromReplay(
            agent_inputs=both[0],
            action=taken(rows.action, T_idxs, B_idxs),
            return_=n_step.return_,
            terminated=n_step.terminated_n,
            bootstrap_discount=n_step.bootstrap_discount,
            target_inputs=both[1],
            reward=reward[1],
        )

    def _achieved_goals(self, storage: Storage, T_idxs: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return a goal for each row, as the strategy draws it."""
        valid, strategy = storage.rows.valid, self.hindsight.strategy
        n_newer = (storage.written - 1 - T_idxs) % storage.T
        # The next row that is not valid is the final one; of an episode that goes on the newest row counts.
        last = np.minimum(rows_to_invalid(valid, T_idxs, B_idxs, n_newer, 1), n_newer)
        away = last
        if strategy != "final":
            first = np.ones_like(last)
            if strategy == "episode":
                first -= rows_to_invalid(valid, T_idxs, B_idxs, (T_idxs - storage.oldest) % storage.T, -1)
            away = self.rng.integers(first, last, endpoint=True)
        return storage.field("achieved_goal", (T_idxs + away) % storage.T, B_idxs)


def rows_to_invalid(
    valid: np.ndarray, T_idxs: np.ndarray, B_idxs: np.ndarray, most: np.ndarray, direction: int
) -> np.ndarray:
    """Return how many rows lie from rows of a ring to the next one that is not valid, [M] int64 from 1.

    They are looked for in windows of 32, 64, ... rows, by those only that have not found theirs.

    Args:
        valid: [T, B] bool; the row after T - 1 is row 0.
        T_idxs: [M] int64, time indexes.
        B_idxs: [M] int64, environments.
        most: [M] int64, rows to look at; where all of them are valid the number is one more.
        direction: 1 forwards in time, -1 backwards.
    """
    found, left = most + 1, np.flatnonzero(most)
    first, size = 1, _FIRST_WINDOW
    while len(left):
        away = np.arange(first, first + size)[:, None]
        ends = ~valid[(T_idxs[left] + direction * away) % len(valid), B_idxs[left]]
        nearest = first + ends.argmax(0)
        found[left] = np.where(ends.any(0), np.minimum(nearest, found[left]), found[left])
        first, size = first + size, 2 * size
        left = left[~ends.any(0) & (most[left] >= first)]
    return found


def _goal_of(observation: Buffer) -> np.ndarray:
    """Return a goal of an observation; refuse one that has none."""
    fields = observation._fields if isinstance(observation, NamedArrayTuple) else ()
    goals = [observation[name] for name in _GOALS if name in fields]
    if len(goals) < len(_GOALS) or any(isinstance(goal, tuple) for goal in goals):
        has = f"a dictionary of {', '.join(fields)}" if fields else "no dictionary"
        raise TypeError(
            f"Hindsight: an observation of the environment is {has}; expected one with achieved_goal and desired_goal, "
            "each an array, as environments of gymnasium-robotics have. Wrap the environment, or leave hindsight out."
        )
    achieved, desired = map(np.asarray, goals)
    if achieved.shape != desired.shape:
        raise ValueError(
            f"Hindsight: achieved_goal has the shape {list(achieved.shape)} and desired_goal {list(desired.shape)}; "
            "expected one shape, as goals that were achieved are given as desired ones. Wrap the environment."
        )
    return achieved


def _tried(name: str, function: GoalFunction, goals: np.ndarray, takes_false: bool = False) -> np.ndarray:
    """Return the result of a function for goals [N, ...] that are achieved and desired; refuse one for all of them."""
    advice = (
        f"Give Hindsight({name}=...) a function of whole arrays, which takes norms over the last axis alone: "
        "np.linalg.norm(achieved_goal - desired_goal, axis=-1)."
    )
    try:
        result = np.asarray(function(goals, goals.copy(), {}))
    except Exception as error:
        raise ValueError(
            f"Hindsight: {name} was called with {len(goals)} achieved and {len(goals)} desired goals at once, arrays "
            f"{list(goals.shape)}, and an empty info, and raised {type(error).__name__}: {error}. {advice}"
        ) from error
    if result.dtype.kind not in "fiub" or not (
        result.shape == goals.shape[:1] or (takes_false and result.shape == () and not result)
    ):
        raise ValueError(
            f"Hindsight: {name} was called with {len(goals)} achieved and {len(goals)} desired goals at once, arrays "
            f"{list(goals.shape)}, and returned {result!r:.80}; expected {len(goals)} numbers, one for each. {advice}"
        )
    return result


def _computed(name: str, function: GoalFunction, achieved: np.ndarray, goals: np.ndarray, dtype: type) -> np.ndarray:
    """Return what a function says of achieved goals [n, M, ...] where goals [M, ...] are desired, [n, M], a copy."""
    lead, shape = achieved.shape[:2], achieved.shape[2:]
    desired = np.broadcast_to(goals, achieved.shape).reshape(-1, *shape)
    result = np.asarray(function(achieved.reshape(-1, *shape), desired, {}))
    if result.shape != desired.shape[:1]:
        raise ValueError(
            f"Hindsight: {name} was called with {len(desired)} goals and returned an array of shape "
            f"{list(result.shape)}; expected [{len(desired)}]. Return a number for each."
        )
    return result.reshape(lead).astype(dtype)
