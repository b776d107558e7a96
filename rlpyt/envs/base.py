"""The predecessor's environment interface, and the error of all environments.

New environments are gymnasium's: a class with `observation_space`, `action_space`, `reset(seed=None)` that returns
(observation, info) and `step(action)` that returns (observation, reward, terminated, truncated, info). `EnvAdapter`
takes both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from rlpyt.spaces import EnvSpaces, Space


class EnvError(RuntimeError):
    """What an environment raised, or gave that its spaces do not allow; the text says which one, when and what."""


class EnvStep(NamedTuple):
    """What `step` of an `Env` returns; env_info is a named tuple or a dictionary."""

    observation: Any
    reward: Any
    done: Any
    env_info: Any


class EnvInfo(NamedTuple):
    """The empty env_info of the predecessor, for steps that have nothing to say."""


class Env(ABC):
    """An environment of the old interface: `reset` gives an observation, `step` an `EnvStep`.

    Subclasses set `_observation_space` and `_action_space`, or override the properties. env_info may hold
    `timeout` (the episode was cut off by a time limit), `traj_done` (False at a `done` after which the
    same game goes on, without a reset) and `game_score` (the raw reward of the step).
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
    def step(self, action: Any) -> EnvStep:
        """Take one step."""

    def close(self) -> None:  # noqa: B027
        """Let go of windows, files and processes."""


def env_name(env: Any) -> str:
    """Return the class of an environment and, where it was made by an id of gymnasium or gym, the id."""
    spec_id = getattr(getattr(env, "spec", None), "id", None)
    if not isinstance(spec_id, str):
        return type(env).__name__
    return f"{type(getattr(env, 'unwrapped', env)).__name__} {spec_id}"
