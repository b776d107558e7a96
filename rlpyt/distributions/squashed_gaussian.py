"""Gaussian distribution squashed into the bounds of the actions, for SAC."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F

from rlpyt.distributions.action_units import ActionUnits
from rlpyt.distributions.gaussian import DistInfoStd, gaussian_log_prob


class SquashedGaussian(ActionUnits):
    """Gaussian distribution whose samples go through tanh, so that actions stay within their bounds.

        u = mean + std * noise,    noise ~ N(0, I),    x = tanh(u),    action = center + scale * x
        log p(x) = log N(u; mean, std) - sum_i log(1 - tanh(u_i)^2)

    The entropy has no closed form. Densities are over the free dimensions; see `ActionUnits`, also for the arguments.
    log_std is clamped, as in the reference implementation of SAC.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, appendix C.
    """

    DistInfo = DistInfoStd
    min_log_std: ClassVar[float] = -20.0
    max_log_std: ClassVar[float] = 2.0

    def _gaussian(self, dist_info: DistInfoStd) -> DistInfoStd:
        return DistInfoStd(dist_info.mean, dist_info.log_std.clamp(self.min_log_std, self.max_log_std))

    def sample(self, dist_info: DistInfoStd, noise: torch.Tensor) -> torch.Tensor:
        """Return the actions [..., *shape] that the noise selects."""
        mean, log_std = self._gaussian(dist_info)
        return self.decode(torch.addcmul(mean, log_std.exp(), noise).tanh())

    def mode(self, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the actions [..., *shape] of the Gaussian's mean, the median of the distribution."""
        return self.decode(dist_info.mean.tanh())

    def sample_with_log_prob(self, dist_info: DistInfoStd, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x [..., A] in [-1, 1] and log p(x) [...], both in these units and differentiable in the parameters.

        The result is exact for every x because it is computed from u: in float32, 1 - x^2 is 0 from |u| = 9 on.
        """
        mean, log_std = self._gaussian(dist_info)
        u = torch.addcmul(mean, log_std.exp(), noise)
        # (u - mean) / std is the noise itself and needs no gradient.
        log_normal = -self.of_free(0.5 * noise.square() + log_std).sum(-1) - 0.5 * self.n_free * math.log(2 * math.pi)
        return self.rest_fixed(u.tanh()), log_normal - log_det_tanh(self.of_free(u))

    def log_prob(self, action: torch.Tensor, dist_info: DistInfoStd) -> torch.Tensor:
        """Return the log-density of actions [..., *shape] in the environment's units, [...].

        An action at a bound is replaced by the nearest one inside it, because u is infinite at a bound.
        """
        mean, log_std = (self.of_free(x) for x in self._gaussian(dist_info))
        limit = 1 - torch.finfo(mean.dtype).eps
        u = self.of_free(self.encode(action)).clamp(-limit, limit).atanh()
        return gaussian_log_prob(u, mean, log_std) - log_det_tanh(u) - self.log_scale


def log_det_tanh(u: torch.Tensor) -> torch.Tensor:
    """Return sum_i log(1 - tanh(u_i)^2), [...], of u [..., A].

    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) stays exact for large |u|.
    """
    return 2 * (math.log(2) - u - F.softplus(-2 * u)).sum(-1)
