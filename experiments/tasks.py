"""Tasks of `experiments.figures` that have no id for `gymnasium.make`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.envs import ChannelsFirst


def minatar_breakout() -> gymnasium.Env[Any, Any]:
    """Return Breakout of MinAtar as images [4, 10, 10], whose planes are a pixel's kinds: Young and Tian 2019."""
    if "MinAtar/Breakout-v1" not in gymnasium.registry:
        import_module("minatar.gym").register_envs()
    return ChannelsFirst(gymnasium.make("MinAtar/Breakout-v1"))


class LegalActions(gymnasium.Env[Any, Any]):
    """Pays 1 for the best of the three legal actions, which are others in each of 20 steps; there are six in all.

    The best is the one with the largest number, or in half of the episodes the one with the smallest, which an
    observation of 1 or -1 tells. An illegal action raises an error.

    Args:
        hidden: whether that is told in the first row of an episode alone, so that it must be remembered.
    """

    action_space = spaces.Discrete(6)
    observation_space = spaces.Dict(observation=spaces.Box(-1.0, 1.0, (1,)), action_mask=spaces.MultiBinary(6))

    def __init__(self, hidden: bool = False) -> None:
        self.hidden = hidden

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._sign, self._t = float(self.np_random.choice([-1, 1])), 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a legal action."""
        if action not in self._legal:
            raise ValueError(f"action {action} is illegal; those legal are {self._legal}.")
        best = self._legal.max() if self._sign > 0 else self._legal.min()
        self._t += 1
        return self._observation(), float(action == best), self._t == 20, False, {}

    def _observation(self) -> dict[str, np.ndarray]:
        self._legal = self.np_random.choice(6, 3, replace=False)
        told = self._sign if self._t == 0 or not self.hidden else 0.0
        return {
            "observation": np.array([told], np.float32),
            "action_mask": np.isin(np.arange(6), self._legal).astype(np.int8),
        }
