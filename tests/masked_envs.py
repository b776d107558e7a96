"""Environments whose legal actions change at every step, and that raise where an illegal one is taken."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

N_ACTIONS = 4


class MaskedEnv(gymnasium.Env[Any, Any]):
    """Pays how far an action lies below the highest legal one, times -1/4: the best return is 0.

    An episode is truncated after 5 steps, or terminated after 3 where it began so; which of the actions are legal is
    drawn at every step. The mask of a final observation forbids all. The observation beside the mask says nothing but
    the step.

    Args:
        of_info: whether the mask is in info, and not in a Dict observation.
        sizes: of the choices of a MultiDiscrete; None for a Discrete of 4 actions.
        as_tuple: whether the masks of several choices are a tuple, and not one after the other.
        p_legal: probability that an action is legal.
        composite: whether the first choice stands alone in a Dict, beside a Tuple of a Box and the other choices.
    """

    def __init__(
        self,
        of_info: bool = False,
        sizes: tuple[int, ...] | None = None,
        as_tuple: bool = False,
        p_legal: float = 0.5,
        composite: bool = False,
    ) -> None:
        self.of_info, self.as_tuple, self.p_legal = of_info, as_tuple, p_legal
        self.sizes = sizes or (N_ACTIONS,)
        self.action_space = spaces.MultiDiscrete(list(sizes)) if sizes else spaces.Discrete(N_ACTIONS)
        if composite:
            assert sizes is not None
            rest = spaces.Tuple([spaces.Box(-2, 1, (2,), np.float32), spaces.MultiDiscrete(list(sizes[1:]))])
            self.action_space = spaces.Dict([("move", spaces.Discrete(sizes[0], start=3)), ("deep", rest)])
        plain: Any = spaces.Box(0, 1, (6,), np.float32)
        mask: Any = spaces.Box(0, 1, (sum(self.sizes),), np.int8)
        if as_tuple:
            mask = spaces.Tuple([spaces.MultiBinary(n) for n in self.sizes])
        self.observation_space = plain if of_info else spaces.Dict({"observation": plain, "action_mask": mask})
        self.t, self.length = 0, 5
        self.masks: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.choice([3, 5]))
        return self._row()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action} at step {self.t} is not in {self.action_space}"
        if isinstance(action, dict):
            action = [action["move"] - 3, *action["deep"][1]]
        choices = np.ravel(action)
        for choice, mask in zip(choices, self.masks, strict=True):
            assert mask[choice], f"the illegal action {action} at step {self.t} of {self.masks}"
        self.t += 1
        best = sum(int(np.flatnonzero(mask)[-1]) for mask in self.masks)
        over = self.t == self.length
        observation, info = self._row(over)
        return observation, (int(choices.sum()) - best) / 4, over and self.length == 3, over and self.length == 5, info

    def _row(self, over: bool = False) -> tuple[Any, dict[str, Any]]:
        self.masks = []
        for n in self.sizes:
            mask = (self.np_random.random(n) < self.p_legal).astype(np.int8)
            mask[self.np_random.integers(n)] = 1
            self.masks.append(mask * (not over))
        given: Any = tuple(self.masks) if self.as_tuple else np.concatenate(self.masks)
        observation = np.eye(6, dtype=np.float32)[self.t]
        return (observation, {"action_mask": given}) if self.of_info else (
            {"observation": observation, "action_mask": given}, {}
        )  # fmt: skip
