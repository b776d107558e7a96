"""Continuous actions in units in which the bounds of their space are -1 and 1, dimension by dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.distributions.base import flatten_action, shape_action


class ActionUnits:
    """Turns actions of an environment, [..., *shape], into units [..., A], and back.

        action = center + scale * x

    Args:
        dim: A.
        center: A numbers, the action that x = 0 stands for; None is 0.
        scale: A positive numbers, what one unit is in the environment; None is 1.
        shape: of an action, if it is not (A,).

    Raises:
        ValueError: if their lengths are not A, or a scale is not positive.
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
        if len(center) != dim or len(scale) != dim or not all(s > 0 for s in scale):
            raise ValueError(
                f"Units of {dim} action dimensions: got center {center} and scale {scale}; expected {dim} numbers "
                "each, the scales positive. `from_space` takes them from the bounds of a Box."
            )
        self.log_scale = sum(math.log(s) for s in scale)
        """Sum over the dimensions: a density in the environment's units is that in x divided by its exponential."""
        self._units = {torch.device("cpu"): (torch.tensor(center), torch.tensor(scale))}

    @classmethod
    def from_space(cls, space: spaces.Space) -> Self:
        """Return the units in which -1 and 1 are the bounds of a Box; a dimension with equal ones has scale 1.

        Raises:
            TypeError: if the space is no Box.
            ValueError: if a bound is infinite (or float32's largest number, which means the same).
        """
        if not isinstance(space, spaces.Box):
            raise TypeError(
                f"Scaling actions to their bounds: the action space is {space}; expected a Box. Use an agent for "
                "discrete actions, such as CategoricalPgAgent or DqnAgent."
            )
        low, high = (bound.ravel().astype(np.float64) for bound in (space.low, space.high))
        largest = np.finfo(np.float32).max
        bounded = (-largest < low) & (low <= high) & (high < largest)
        if not bounded.all():
            raise ValueError(
                f"Scaling actions to their bounds: got low {space.low} and high {space.high}; expected finite numbers, "
                "low <= high, in every dimension, as the bounds say how far to explore. Give the environment a Box "
                "with the bounds that are meant (gymnasium.wrappers.RescaleAction, or its own action_space)."
            )
        scale = np.where(high > low, (high - low) / 2, 1)
        return cls(len(scale), ((low + high) / 2).tolist(), scale.tolist(), space.shape)

    def _center_scale(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return center and scale on a device, copied there once."""
        if device not in self._units:
            center, scale = self._units[torch.device("cpu")]
            # A copy made for sampling must be fit for a later gradient.
            with torch.inference_mode(False):
                self._units[device] = center.to(device), scale.to(device)
        return self._units[device]

    def encode(self, action: torch.Tensor) -> torch.Tensor:
        """Return actions [..., *shape] as float32 x [..., A]."""
        center, scale = self._center_scale(action.device)
        return (flatten_action(action, self.shape) - center) / scale

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [..., A] as actions [..., *shape] of the environment."""
        center, scale = self._center_scale(x.device)
        return shape_action(torch.addcmul(center, x, scale), self.shape)

    def draw_noise(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return standard normal noise [batch_size, A]."""
        return torch.randn(batch_size, self.dim, generator=generator, device=generator.device)

    def draw_uniform(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return x [batch_size, A] spread evenly from -1 to 1."""
        noise = torch.rand(batch_size, self.dim, generator=generator, device=generator.device)
        return noise.mul_(2).sub_(1)
