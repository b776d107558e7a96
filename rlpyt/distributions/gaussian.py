"""The diagonal Gaussian over continuous actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.distributions.base import Distribution, flatten_action, shape_action
from rlpyt.namedarraytuple import NamedArrayTuple


class DistInfoStd(NamedArrayTuple):
    """Parameters of a diagonal Gaussian, in units in which the bounds of the action space are -1 and 1."""

    mean: torch.Tensor
    """[..., A]."""
    log_std: torch.Tensor
    """[..., A], logarithm of the standard deviation."""


class Gaussian(Distribution[DistInfoStd]):
    """A Gaussian whose actions, [..., A] float32, are in the environment's units.

        a = center + scale * (mean + std * noise),    noise ~ N(0, I)

    Densities, and so log-probabilities and entropies, are those of a. Actions are not clipped to the bounds: that is
    left to the environment's side, after the log-probability was recorded.

    Args:
        dim: A.
        center: A numbers, the action that mean 0 stands for; None is 0.
        scale: A positive numbers, what one unit of the mean is in the environment; None is 1.
        shape: of an action, if it is not (A,).

    Raises:
        ValueError: if their lengths are not A, or a scale is not positive.
    """

    DistInfo = DistInfoStd

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
                f"Gaussian over {dim} action dimensions: got center {center} and scale {scale}; expected {dim} numbers "
                "each, the scales positive. `Gaussian.from_space` takes them from the bounds of a Box."
            )
        self._log_scale = sum(math.log(s) for s in scale)
        self._units = {torch.device("cpu"): (torch.tensor(center), torch.tensor(scale))}

    @classmethod
    def from_space(cls, space: spaces.Box) -> Self:
        """Return the Gaussian whose means -1 and 1 are the bounds of the space, dimension by dimension.

        A dimension with an infinite bound, or with equal ones, is left as it is: center 0 (or the bound), scale 1.
        """
        low, high = (bound.ravel().astype(np.float64) for bound in (space.low, space.high))
        with np.errstate(over="ignore"):  # float32's largest number as a bound means no bound
            bounded = np.isfinite((high - low).astype(np.float32))
        low, high = np.where(bounded, low, -1), np.where(bounded, high, 1)
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
        """Return actions [..., A] as float32, in the units of the mean."""
        center, scale = self._center_scale(action.device)
        return (flatten_action(action, self.shape) - center) / scale

    def draw_noise(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return standard normal noise [batch_size, A]."""
        return torch.randn(batch_size, self.dim, generator=generator, device=generator.device)

    def sample(self, dist_info: DistInfoStd, noise: torch.Tensor) -> torch.Tensor:
        """Return the actions [..., A] that the noise selects, differentiable in the parameters."""
        mean, log_std = dist_info
        center, scale = self._center_scale(mean.device)
        return shape_action(center + scale * (mean + log_std.exp() * noise), self.shape)

    def mode(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the mean as actions [..., A]."""
        center, scale = self._center_scale(dist_info.mean.device)
        return shape_action(center + scale * dist_info.mean, self.shape)

    def log_prob(self, action: torch.Tensor, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the log-density of the actions, [...].

        z = ((a - center) / scale - mean) / std
        log p(a) = -sum_i (z_i^2 / 2 + log std_i + log scale_i) - A/2 log(2 pi)
        """
        mean, log_std = dist_info
        z = (self.encode(action) - mean) * torch.exp(-log_std)
        return -(0.5 * z.square() + log_std).sum(-1) - (self._log_scale + 0.5 * self.dim * math.log(2 * math.pi))

    def entropy(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the differential entropy, sum_i (log std_i + log scale_i) + A/2 log(2 pi e), [...] in nats."""
        return dist_info.log_std.sum(-1) + (self._log_scale + 0.5 * self.dim * math.log(2 * math.pi * math.e))

    def kl(self, old: DistInfoStd, new: DistInfoStd) -> torch.Tensor:
        """Return KL(old || new), [...]; the units cancel.

        sum_i (log std_new - log std_old + (std_old^2 + (mean_old - mean_new)^2) / (2 std_new^2) - 1/2)
        """
        log_ratio = new.log_std - old.log_std
        z = (old.mean - new.mean) * torch.exp(-new.log_std)
        return (log_ratio + 0.5 * (torch.exp(-2 * log_ratio) + z.square() - 1)).sum(-1)
