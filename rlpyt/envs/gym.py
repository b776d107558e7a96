"""Environments of gym, the predecessor of gymnasium, with the one flag that they need."""

from __future__ import annotations

import inspect
from typing import Any

from rlpyt.old_names import serve_old_names

serve_old_names(__name__)


def gym_make(id: str, **env_kwargs: Any) -> Any:
    """Return `gym.make(id, **env_kwargs)` of old gym, with its passive checker off where it has one.

    The checker of gym 0.25 and 0.26 uses `numpy.bool8`, which numpy 2 has not: every environment would die at
    its first step.

    Args:
        id: name of the environment in gym's registry.
        **env_kwargs: arguments of the environment; `disable_env_checker=False` leaves the checker on.

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
