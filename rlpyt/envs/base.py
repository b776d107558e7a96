"""Environment interface of rlpyt 0.1, and the error of all environments.

New environments have the interface of gymnasium: a class with `observation_space`, `action_space`, `reset(seed=None)`
that returns (observation, info), and `step(action)` that returns (observation, reward, terminated, truncated, info).
`EnvAdapter` takes both.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space

Reset: TypeAlias = tuple[Buffer, dict[str, Any]]
"""Observation and info of a reset, of one environment or of many."""
VectorStep: TypeAlias = tuple[Buffer, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
"""Observation, reward, terminated, truncated and info of a step of a vector environment."""


class EnvError(RuntimeError):
    """Error of an environment that raised, or gave a value outside of its spaces; the text has rank and step."""


class EnvStep(NamedTuple):
    """Result of `step` of an `Env`; env_info is a named tuple or a dictionary."""

    observation: Buffer
    reward: Buffer
    done: Buffer
    env_info: Buffer


class EnvInfo(NamedTuple):
    """Empty env_info of rlpyt 0.1, for steps without any field."""


class Env(ABC):
    """Environment of the interface of rlpyt 0.1: `reset` returns an observation, `step` an `EnvStep`.

    A subclass sets `_observation_space` and `_action_space`, or overrides the properties. env_info may have `timeout`
    (a time limit ended the episode), `traj_done` (False at a `done` after which the same game continues without a
    reset) and `game_score` (the raw reward of the step).
    """

    _observation_space: Space
    _action_space: Space

    @property
    def observation_space(self) -> Space:
        """Return the space of observations."""
        return self._observation_space

    @property
    def action_space(self) -> Space:
        """Return the space of actions."""
        return self._action_space

    @property
    def spaces(self) -> EnvSpaces:
        """Return both spaces."""
        return EnvSpaces(self.observation_space, self.action_space)

    @abstractmethod
    def reset(self) -> Any:
        """Start an episode and return its first observation."""

    @abstractmethod
    def step(self, action: Buffer) -> EnvStep:
        """Take one step."""

    def close(self) -> None:  # noqa: B027
        """Release windows, files and processes."""


def env_name(env: Any) -> str:
    """Return the class of an environment, and its id if it was made by an id of gymnasium or gym."""
    spec_id = getattr(getattr(env, "spec", None), "id", None)
    if not isinstance(spec_id, str):
        return type(env).__name__
    return f"{type(getattr(env, 'unwrapped', env)).__name__} {spec_id}"


def meant(name: str, known: Collection[str], instead: str = "") -> str:
    """Return in words which of the known names may be meant, or else `instead`, or all of them."""
    close = difflib.get_close_matches(name, known)
    return f"did you mean {' or '.join(close)}" if close else instead or f"expected one of {', '.join(known)}"


def told_result(result: object) -> str:
    """Return in words what a `step` gave in place of a tuple of its values: of a tuple or list the types."""
    if isinstance(result, tuple | list):
        return f"{type(result).__name__} of {len(result)} values: {', '.join(type(x).__name__ for x in result)}"
    return f"{type(result).__name__}: {result!r:.100}"
