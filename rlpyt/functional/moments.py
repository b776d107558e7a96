"""Mean and variance of batches, and of several batches together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from rlpyt.functional.masks import zero_invalid


class Moments(NamedTuple):
    """Moments of a batch, float64."""

    mean: torch.Tensor
    """[...]."""
    var: torch.Tensor
    """[...], divided by the count."""
    n: torch.Tensor
    """Scalar, entries of the batch."""


@torch.no_grad()
def batch_moments(x: torch.Tensor, valid: torch.Tensor | None = None) -> Moments:
    """Return the moments of the valid entries of a batch.

    Args:
        x: [N, ...] float; each of the trailing entries has its own moments.
        valid: [N] bool, entries to count; None counts all.
    """
    x = x.double()
    if valid is None:
        n, keep = torch.full((), len(x), dtype=x.dtype, device=x.device), None
    else:
        n, keep = valid.sum(dtype=x.dtype), valid.reshape(-1, *[1] * (x.dim() - 1)).expand_as(x)
    least_1 = n.clamp(min=1)
    mean = zero_invalid(x, keep).sum(0) / least_1
    return Moments(mean, zero_invalid((x - mean).square(), keep).sum(0) / least_1, n)


@torch.no_grad()
def pooled_moments(moments: Moments, each: Callable[[torch.Tensor], torch.Tensor]) -> Moments:
    """Return the moments of the batches of all replicas together, exact for unequal counts too.

        n = sum_i n_i,    mean = sum_i n_i mean_i / n,    var = sum_i n_i (var_i + (mean_i - mean)^2) / n

    Args:
        moments: of the batch of this replica.
        each: returns the tensors [replicas, ...] of all of them, such as `Replicas.each`.

    Source: Chan et al. 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
    """
    shape, size = moments.mean.shape, moments.mean.numel()
    numbers = each(torch.cat([part.reshape(-1) for part in moments]))
    mean, var, count = numbers.split([size, size, 1], dim=1)
    share = count / count.sum().clamp(min=1)
    pooled = (share * mean).sum(0)
    pooled_var = (share * (var + (mean - pooled).square())).sum(0)
    return Moments(pooled.reshape(shape), pooled_var.reshape(shape), count.sum())
