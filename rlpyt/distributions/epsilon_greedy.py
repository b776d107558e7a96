"""Epsilon-greedy selection of actions by their Q-values."""

from __future__ import annotations

import numpy as np
import torch

from rlpyt.functional import to_onehot
from rlpyt.old_rlpyt import tells_old_attributes
from rlpyt.utils.arguments import SuggestsArguments
from rlpyt.utils.arrays import numpify_buffer


@tells_old_attributes
class EpsilonGreedy(SuggestsArguments):
    """Selection of the best of `dim` actions, or with probability epsilon of a random one; an action is [...] int64.

    An action whose q is minus infinity is never taken, so a model may mask illegal actions this way.

    Args:
        dim: number of actions.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def encode(self, action: torch.Tensor) -> torch.Tensor:
        """Return actions as one-hot float32 [..., dim], the form in which a model takes `prev_action`."""
        return to_onehot(action, self.dim, torch.float32)

    def draw_noise(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return uniform noise [batch_size, 2]: the first decides whether to explore, the second on the action."""
        return torch.rand(batch_size, 2, generator=generator, device=generator.device)

    def sample(self, q: torch.Tensor, epsilon: float | torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return the actions that the noise selects.

        Args:
            q: [..., dim] float.
            epsilon: probability of a random action, a number or [B], one per environment.
            noise: [..., 2], from `draw_noise`.

        Returns:
            [...] int64.
        """
        if not q.is_cpu:
            chosen = _random_among(q > -torch.inf, noise[..., 1])
            return torch.where(noise[..., 0] < epsilon, chosen, q.argmax(-1))
        # In numpy, whose calls cost a third of those of torch: a batch is often a few rows.
        values, u, limit = numpify_buffer((q, noise, torch.as_tensor(epsilon)))
        if values.min() == -np.inf:
            random = _random_among(q > -torch.inf, noise[..., 1]).numpy()
        else:
            # Rounding may lift the product to dim.
            random = np.minimum((u[..., 1] * self.dim).astype(np.int64), self.dim - 1)
        return torch.from_numpy(np.where(u[..., 0] < limit, random, values.argmax(-1)))


def _random_among(allowed: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return one index [...] of those where `allowed` [..., dim] is True, of all where none is, by uniform u [...]."""
    allowed = allowed | ~allowed.any(-1, keepdim=True)
    ranks = allowed.cumsum(-1)  # 1 for the first that is allowed
    n_allowed = ranks[..., -1]
    chosen = torch.minimum((u * n_allowed).long() + 1, n_allowed)
    return ((ranks == chosen.unsqueeze(-1)) & allowed).long().argmax(-1)
