"""Diagonal Gaussian distribution over continuous actions."""

from __future__ import annotations

import math

import torch

from rlpyt.distributions.action_units import ActionUnits
from rlpyt.distributions.base import Distribution
from rlpyt.namedarraytuple import NamedArrayTuple


class DistInfoStd(NamedArrayTuple):
    """Parameters of a diagonal Gaussian, in units in which the bounds of the action space are -1 and 1."""

    mean: torch.Tensor
    """[..., A]."""
    log_std: torch.Tensor
    """[..., A], logarithms of the standard deviations."""


class Gaussian(ActionUnits, Distribution[DistInfoStd]):
    """Gaussian distribution of actions [..., A] float32 in the environment's units.

        a = center + scale * (mean + std * noise),    noise ~ N(0, I)

    Log-probabilities and entropies are of the density of a. Actions are not clipped to the bounds here. The
    environment's side clips them, after the log-probability was recorded. See `ActionUnits` for the arguments and for
    fixed dimensions.
    """

    DistInfo = DistInfoStd

    def sample(self, dist_info: DistInfoStd, noise: torch.Tensor) -> torch.Tensor:
        """Return the actions [..., *shape] that the noise selects, differentiable in the parameters."""
        mean, log_std = dist_info
        return self.decode(torch.addcmul(mean, log_std.exp(), noise))

    def mode(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the mean as actions [..., *shape]."""
        return self.decode(dist_info.mean)

    def log_prob(self, action: torch.Tensor, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the log-density of the actions, [...], in the environment's units."""
        return gaussian_log_prob(self.of_free(self.encode(action)), *self._free(dist_info)) - self.log_scale

    def entropy(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the differential entropy [...] in nats: sum_i (log std_i + log scale_i) + A/2 log(2 pi e)."""
        log_std = self.of_free(dist_info.log_std)
        return log_std.sum(-1) + (self.log_scale + 0.5 * self.n_free * math.log(2 * math.pi * math.e))

    def kl(self, old: DistInfoStd, new: DistInfoStd) -> torch.Tensor:
        """Return KL(old || new), [...]; it does not depend on the units.

        sum_i (log std_new - log std_old + (std_old^2 + (mean_old - mean_new)^2) / (2 std_new^2) - 1/2)
        """
        old, new = self._free(old), self._free(new)
        log_ratio = new.log_std - old.log_std
        z = (old.mean - new.mean) * torch.exp(-new.log_std)
        return (log_ratio + 0.5 * (torch.exp(-2 * log_ratio) + z.square() - 1)).sum(-1)

    def _free(self, dist_info: DistInfoStd) -> DistInfoStd:
        return DistInfoStd(self.of_free(dist_info.mean), self.of_free(dist_info.log_std))


def gaussian_log_prob(x: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Return log N(x; mean, std), [...], of x [..., A].

    -sum_i (z_i^2 / 2 + log std_i) - A/2 log(2 pi),    z = (x - mean) / std
    """
    z = (x - mean) * torch.exp(-log_std)
    return -(0.5 * z.square() + log_std).sum(-1) - 0.5 * x.shape[-1] * math.log(2 * math.pi)
