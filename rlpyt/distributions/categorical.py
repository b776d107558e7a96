"""Distributions over discrete actions, with unnormalised logits as parameters."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from numpy.typing import ArrayLike

from rlpyt.distributions.base import Distribution, flatten_action, shape_action
from rlpyt.functional import to_onehot
from rlpyt.namedarraytuple import NamedArrayTuple


class DistInfoLogits(NamedArrayTuple):
    """Parameters of a categorical distribution."""

    logits: torch.Tensor
    """[..., A] unnormalised log-probabilities; an action of -inf is never taken."""

    @property
    def prob(self) -> torch.Tensor:
        """[..., A] probabilities, which rlpyt 0.1 recorded in place of the logits."""
        return torch.as_tensor(self.logits).softmax(-1)


class Categorical(Distribution[DistInfoLogits]):
    """Categorical distribution over `dim` actions; an action is [...] int64.

        p = softmax(logits)

    Args:
        dim: number of actions.
    """

    DistInfo = DistInfoLogits

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def encode(self, action: torch.Tensor) -> torch.Tensor:
        """Return actions as one-hot float32 [..., dim]."""
        return to_onehot(action, self.dim, torch.float32)

    def draw_noise(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return standard Gumbel noise [batch_size, dim]."""
        return _gumbel((batch_size, self.dim), generator)

    def sample(self, dist_info: DistInfoLogits, noise: torch.Tensor) -> torch.Tensor:
        """Return argmax(logits + noise), [...] int64. It has the distribution p for Gumbel noise.

        Source: Maddison et al. 2014, arXiv:1411.0030.
        """
        return (dist_info.logits + noise).argmax(-1)

    def mode(self, dist_info: DistInfoLogits) -> torch.Tensor:
        """Return the most probable actions [...]."""
        return dist_info.logits.argmax(-1)

    def log_prob(self, action: torch.Tensor, dist_info: DistInfoLogits) -> torch.Tensor:
        """Return log p(action), [...]."""
        return _select(F.log_softmax(dist_info.logits, -1), action)

    def entropy(self, dist_info: DistInfoLogits) -> torch.Tensor:
        """Return the entropy [...] in nats."""
        return _entropy(F.log_softmax(dist_info.logits, -1))

    def log_prob_and_entropy(
        self, action: torch.Tensor, dist_info: DistInfoLogits
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log p(action) and entropy, [...] each, from one normalisation."""
        log_p = F.log_softmax(dist_info.logits, -1)
        return _select(log_p, action), _entropy(log_p)

    def kl(self, old: DistInfoLogits, new: DistInfoLogits) -> torch.Tensor:
        """Return KL(old || new), [...]."""
        log_old = _finite(F.log_softmax(old.logits, -1))
        log_new = _finite(F.log_softmax(new.logits, -1))
        return (log_old.exp() * (log_old - log_new)).sum(-1)


class MultiCategorical(Distribution[DistInfoLogits]):
    """Distribution of n independent choices (MultiDiscrete, MultiBinary); an action is [..., n] int64.

    The logits of all choices are concatenated, [..., sum(dims)]. The probabilities of the choices multiply.

    Args:
        dims: number of actions of each choice, [n]. With another shape, actions have this shape.
    """

    DistInfo = DistInfoLogits

    def __init__(self, dims: ArrayLike) -> None:
        self.shape = np.shape(dims)
        self.dims: list[int] = np.ravel(dims).tolist()
        self._each = Categorical(max(self.dims))
        self._equal = min(self.dims) == max(self.dims)

    def _table(self, x: torch.Tensor) -> DistInfoLogits:
        """Return [..., sum(dims)] as [..., n, max(dims)], padded with -inf."""
        if self._equal:
            return DistInfoLogits(x.unflatten(-1, (len(self.dims), -1)))
        width = self._each.dim
        rows = [F.pad(row, (0, width - row.shape[-1]), value=-torch.inf) for row in x.split(self.dims, -1)]
        return DistInfoLogits(torch.stack(rows, -2))

    def encode(self, action: torch.Tensor) -> torch.Tensor:
        """Return actions as concatenated one-hot vectors, float32 [..., sum(dims)]."""
        choices = zip(flatten_action(action, self.shape).unbind(-1), self.dims, strict=True)
        return torch.cat([to_onehot(choice, dim, torch.float32) for choice, dim in choices], -1)

    def draw_noise(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return standard Gumbel noise [batch_size, n, max(dims)]."""
        return _gumbel((batch_size, len(self.dims), self._each.dim), generator)

    def sample(self, dist_info: DistInfoLogits, noise: torch.Tensor) -> torch.Tensor:
        """Return argmax(logits + noise) of every choice, [..., n]."""
        return shape_action(self._each.sample(self._table(dist_info.logits), noise), self.shape)

    def mode(self, dist_info: DistInfoLogits) -> torch.Tensor:
        """Return the most probable actions [..., n]."""
        return shape_action(self._each.mode(self._table(dist_info.logits)), self.shape)

    def log_prob(self, action: torch.Tensor, dist_info: DistInfoLogits) -> torch.Tensor:
        """Return log p(action), the sum over the choices, [...]."""
        return self._each.log_prob(flatten_action(action, self.shape), self._table(dist_info.logits)).sum(-1)

    def entropy(self, dist_info: DistInfoLogits) -> torch.Tensor:
        """Return the entropy, the sum over the choices, [...] in nats."""
        return self._each.entropy(self._table(dist_info.logits)).sum(-1)

    def log_prob_and_entropy(
        self, action: torch.Tensor, dist_info: DistInfoLogits
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log p(action) and entropy, [...] each, from one normalisation."""
        choices, table = flatten_action(action, self.shape), self._table(dist_info.logits)
        log_prob, entropy = self._each.log_prob_and_entropy(choices, table)
        return log_prob.sum(-1), entropy.sum(-1)

    def kl(self, old: DistInfoLogits, new: DistInfoLogits) -> torch.Tensor:
        """Return KL(old || new), the sum over the choices, [...]."""
        return self._each.kl(self._table(old.logits), self._table(new.logits)).sum(-1)


def categorical_of(space: spaces.Space[object]) -> Categorical | MultiCategorical | None:
    """Return the distribution over a space of choices; None for any other space."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space.nvec)
    if isinstance(space, spaces.MultiBinary):
        return MultiCategorical(np.full(space.shape, 2))
    return None


def _gumbel(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    noise = torch.empty(shape, device=generator.device).exponential_(generator=generator)
    # An exponential of exactly 0 would give +inf, and +inf plus a logit of -inf is NaN.
    return noise.clamp_(min=torch.finfo(noise.dtype).tiny).log_().neg_()


def _select(log_p: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    return log_p.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)


def _finite(log_p: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities with -inf clamped, so that 0 * log 0 and its gradient are 0."""
    return log_p.clamp(min=torch.finfo(log_p.dtype).min)


def _entropy(log_p: torch.Tensor) -> torch.Tensor:
    log_p = _finite(log_p)
    return -(log_p.exp() * log_p).sum(-1)
