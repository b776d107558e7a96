"""The rows that all replicas learn from, as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlpyt.functional import (
    Moments,
    batch_moments,
    explained_variance,
    pooled_moments,
    share_explained,
    standardize,
    valid_standardize,
)
from rlpyt.utils.replicas import Replicas


class GlobalRows:
    """Numbers of the rows of all replicas together. Alone they are those of the own rows, and cost nothing.

    All replicas make the same calls in the same order.

    Args:
        replicas: this replica and the others.
    """

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.alone = replicas.world_size == 1

    def weights(self, counts: Sequence[int]) -> list[float | None]:
        """Return weights of losses, so that the mean over the replicas is the mean over the rows of all of them.

            w_i = n_i / mean_k(n_k)

        Args:
            counts: rows of this replica in each part of a batch, such as its minibatches.

        Returns:
            A weight of every part, 0 where only other replicas have rows; None where none has any.
        """
        if self.alone:
            return [1.0 if n else None for n in counts]
        # The last number counts the replicas.
        *totals, n_replicas = self.replicas.total(torch.tensor([*counts, 1], dtype=torch.float64)).tolist()
        return [n * n_replicas / total if total else None for n, total in zip(counts, totals, strict=True)]

    def weigh_draws(
        self, valid: torch.Tensor | None, is_weights: torch.Tensor | None
    ) -> tuple[float, torch.Tensor | None]:
        """Return the weight of the losses of a batch from a replay, and its importance weights.

        These are divided by the largest of all replicas, (n_i P_i(j))^-beta / max_k w_k.

        Args:
            valid: [T, M] bool, on the CPU, rows of sequences to train on; None where all replicas have as many.
            is_weights: [M], on the CPU, as `Index.divides_by_largest` says; None where all rows weigh the same.
        """
        if valid is None and is_weights is None:
            return 1.0, is_weights
        n = 1.0 if valid is None else float(valid.sum())
        own_largest = 1.0 if is_weights is None else float(is_weights.max())
        # One collective for both.
        ns, largest, there = self.replicas.each(torch.tensor([n, own_largest, 1.0], dtype=torch.float64)).unbind(1)
        # Where no replica has a row to train on, the loss is 0 whatever its weight is.
        weight = n * float(there.sum() / ns.sum()) if ns.any() else 1.0
        return weight, None if is_weights is None else is_weights / float(largest.max())

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean of the replicas' scalars, the same to the last bit in all of them."""
        if self.alone:
            return x
        xs, there = self.replicas.each(torch.stack([x, torch.ones_like(x)])).unbind(1)
        return xs.sum() / there.sum()

    def standardize(self, x: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Return x [T, B] with mean 0 and standard deviation 1 over the valid rows of all replicas."""
        if self.alone:
            return valid_standardize(x, valid)
        mean, var, _ = self._moments(x.unsqueeze(-1), valid)
        return standardize(x.double(), mean[0], var[0], valid).to(x.dtype)

    def explained_variance(self, value: torch.Tensor, return_: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Return the part of the variance of all replicas' returns that the values [T, B] predict."""
        if self.alone:
            return explained_variance(value, return_, valid)
        mean, var, _ = self._moments(torch.stack([return_ - value, return_], -1), valid)
        unexplained, variance = var.to(return_.dtype)
        return share_explained(unexplained, variance, mean[1].to(return_.dtype))

    def _moments(self, x: torch.Tensor, valid: torch.Tensor) -> Moments:
        """Return the moments [K] of x [T, B, K] over the valid rows of all replicas."""
        return pooled_moments(batch_moments(x.flatten(0, 1), valid.flatten()), self.replicas.each)
