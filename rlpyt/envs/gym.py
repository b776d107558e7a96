"""Environments of old gym, and environments in the interface of rlpyt 0.1."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium

from rlpyt.envs.adapter import read_reset, seeded_reset
from rlpyt.envs.base import Env, EnvStep
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import as_gymnasium
from rlpyt.types import Info, InfoDict
from rlpyt.utils.arguments import suggesting


class GymEnvWrapper(Env):
    """Environment of gymnasium or old gym in the interface of rlpyt 0.1.

    `reset` returns the observation alone, and `step` an `EnvStep`, whose env_info has `timeout` and is read by key or
    by attribute. Samplers take such an environment without the wrapper, too. Observations and actions are unchanged.

    Args:
        env: the environment.
        info_example: fields that env_info has at every step, with their values where the environment gives none.

    Raises:
        TypeError: if a space is of an unsupported kind.
    """

    @suggesting
    def __init__(self, env: Any, info_example: Info | None = None) -> None:
        self.env = env
        self.spec = getattr(env, "spec", None)
        self.render_mode = getattr(env, "render_mode", None)
        self.metadata = getattr(env, "metadata", None) or {}
        self._info_example = dict(info_example or {})
        self._observation_space = as_gymnasium(env.observation_space)
        self._action_space = as_gymnasium(env.action_space)
        self._seeded_reset = seeded_reset(env)

    @property
    def unwrapped(self) -> Any:
        """Return the environment within all wrappers."""
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, seed: int | None = None) -> Any:
        """Start an episode and return its first observation.

        Args:
            seed: seeds the environment; None continues its random stream.
        """
        result = self.env.reset() if seed is None else self._seeded_reset(seed)
        return read_reset(result, self.observation_space)[0]

    def step(self, action: Buffer) -> EnvStep:
        """Take one step; `timeout` of env_info is True if only a time limit ended the episode."""
        observation, reward, *ends, info = self.env.step(action)
        done = any(ends)
        timeout = done and (not ends[0] if len(ends) == 2 else info.get("TimeLimit.truncated", False))
        return EnvStep(observation, reward, done, InfoDict({**self._info_example, **info, "timeout": bool(timeout)}))

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the environment's `render` returns."""
        return self.env.render(*args, **kwargs)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def make(id: str, info_example: Info | None = None, **env_kwargs: Any) -> GymEnvWrapper:
    """Return `gymnasium.make(id, **env_kwargs)` in the interface of rlpyt 0.1.

    Args:
        id: name of the environment in gymnasium's registry.
        info_example: see `GymEnvWrapper`.
        **env_kwargs: arguments of the environment.
    """
    return GymEnvWrapper(gymnasium.make(id, **env_kwargs), info_example)


def gym_make(id: str, **env_kwargs: Any) -> Any:
    """Return `gym.make(id, **env_kwargs)` of old gym, without its passive checker.

    The checker of gym 0.25 and 0.26 uses `numpy.bool8`, which numpy 2 no longer has: every environment would fail at
    its first step.

    Args:
        id: name of the environment in the registry of gym.
        **env_kwargs: arguments of the environment; `disable_env_checker=False` keeps the checker.

    Raises:
        ImportError: if gym is not installed.
    """
    try:
        import gym
    except ImportError as error:
        raise ImportError(
            f"gym_make({id!r}) needs the old gym: pip install rlpyt[gym]. Environments of its maintained successor are "
            "made by EnvCls=gymnasium.make."
        ) from error
    if "disable_env_checker" in inspect.signature(gym.make).parameters:
        env_kwargs = {"disable_env_checker": True, **env_kwargs}
    return gym.make(id, **env_kwargs)
