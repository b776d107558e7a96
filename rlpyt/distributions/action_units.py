"""Conversion of continuous actions to units in which the bounds of their space are -1 and 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.distributions.base import flatten_action, shape_action
from rlpyt.old_rlpyt import tells_old_attributes
from rlpyt.utils.arguments import SuggestsArguments

_LARGEST = 1e36
"""Bounds from here on stand for infinity: noise of some standard deviations beyond them is no float32 any more."""


@tells_old_attributes
class ActionUnits(SuggestsArguments):
    """Conversion between actions of an environment, [..., *shape], and units x, [..., A].

        action = center + scale * x

    A dimension with scale 0 is fixed: its action is always the center. It does not count in densities, and `encode`
    returns 0 for it. Nothing is rounded here. In a space of integers the environment gets the nearest integer
    (`rlpyt.spaces.to_env`).

    Args:
        dim: A.
        center: A numbers, the action at x = 0; None is 0.
        scale: A numbers from 0, the size of one unit in the environment; None is 1.
        shape: of an action, if it is not (A,).

    Raises:
        ValueError: if center or scale has not A entries, or a scale is negative.
    """

    def __init__(
        self,
        dim: int,
        center: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.dim = dim
        self.shape = (dim,) if shape is None else shape
        center = [0.0] * dim if center is None else list(center)
        scale = [1.0] * dim if scale is None else list(scale)
        if len(center) != dim or len(scale) != dim or not all(s >= 0 for s in scale):
            raise ValueError(
                f"Units of {dim} action dimensions: got center {center} and scale {scale}; expected {dim} numbers "
                "each, the scales from 0. `from_space` takes them from the bounds of a Box."
            )
        free = [i for i, s in enumerate(scale) if s > 0]
        self.n_free = len(free)
        """Number of dimensions that are not fixed."""
        self.log_scale = sum(math.log(scale[i]) for i in free)
        """Sum of log scale over the free dimensions. log p(action) = log p(x) - log_scale."""
        units = torch.tensor(center), torch.tensor(scale), torch.tensor(free, dtype=torch.int64)
        self._units = {torch.device("cpu"): units}

    @classmethod
    def from_space(cls, space: spaces.Space[Any]) -> Self:
        """Return the units in which the bounds of a Box are -1 and 1. A dimension with equal bounds is fixed.

        Raises:
            TypeError: if the space is no Box.
            ValueError: if a bound is infinite, or from 1e36 on, which stands for infinity.
        """
        if not isinstance(space, spaces.Box):
            raise TypeError(
                f"Scaling actions to their bounds: the action space is {space}; expected a Box. Use an agent for "
                "discrete actions, such as CategoricalPgAgent or DqnAgent, or PgAgent with A2C, PPO or VTrace, which "
                "takes Dict and Tuple actions too."
            )
        low, high = (bound.ravel().astype(np.float64) for bound in (space.low, space.high))
        bounded = (low > -_LARGEST) & (low <= high) & (high < _LARGEST)
        if not bounded.all():
            raise ValueError(
                f"Scaling actions to their bounds: got low {space.low} and high {space.high}; expected finite numbers "
                f"below {_LARGEST:g} in size, low <= high, in every dimension, because the bounds set the range of "
                "exploration. "
                "Leave out gymnasium.wrappers.ClipAction, which takes the bounds away: actions are clipped to them "
                "here. Where the environment itself has no bounds, give its action_space some: "
                "gymnasium.wrappers.TransformAction(env, lambda action: action, Box(-1, 1, (n,))), or for a simulator "
                "on a device env.single_action_space = Box(-1, 1, (n,))."
            )
        return cls(len(low), ((low + high) / 2).tolist(), ((high - low) / 2).tolist(), space.shape)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without tensors on other devices: a worker that unpickles them would start CUDA."""
        cpu = torch.device("cpu")
        return {**self.__dict__, "_units": {cpu: self._units[cpu]}}

    def _units_on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return center, scale and the indexes of the free dimensions on a device, copied there once."""
        if device not in self._units:
            center, scale, free = self._units[torch.device("cpu")]
            # A copy made during sampling is used in updates later, and these need a gradient.
            with torch.inference_mode(False):
                self._units[device] = center.to(device), scale.to(device), free.to(device)
        return self._units[device]

    def encode(self, action: torch.Tensor) -> torch.Tensor:
        """Return actions [..., *shape] as float32 x [..., A]."""
        center, scale, _ = self._units_on(action.device)
        x = flatten_action(action, self.shape) - center
        return x / scale if self.n_free == self.dim else self.rest_fixed(x) / torch.where(scale > 0, scale, 1.0)

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [..., A] as actions [..., *shape] of the environment."""
        center, scale, _ = self._units_on(x.device)
        return shape_action(torch.addcmul(center, x, scale), self.shape)

    def rest_fixed(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [..., A] with 0 in the fixed dimensions, as `encode` returns taken actions."""
        return x if self.n_free == self.dim else torch.where(self._units_on(x.device)[1] > 0, x, 0.0)

    def of_free(self, x: torch.Tensor) -> torch.Tensor:
        """Return the free dimensions [..., n_free] of x [..., A], over which densities are."""
        return x if self.n_free == self.dim else x[..., self._units_on(x.device)[2]]

    def draw_noise(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return standard normal noise [batch_size, A]."""
        return torch.randn(batch_size, self.dim, generator=generator, device=generator.device)

    def draw_uniform(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return x [batch_size, A], uniform from -1 to 1."""
        noise = torch.rand(batch_size, self.dim, generator=generator, device=generator.device)
        return noise.mul_(2).sub_(1)
