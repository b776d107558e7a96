"""Statistics over the rows to train on.

`valid` is a bool array like x, False on the rows that only hold the final observation of an episode
(and on whatever else a replay marks). What stands in such rows is arbitrary, NaN included.
"""

from __future__ import annotations

import torch

from rlpyt.functional.checks import check_bool, check_same_shape


def zero_invalid(x: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """Return x with zero in the invalid places, where its gradient is exactly zero too.

    A loss does this to the input that it trains, before the arithmetic: masking its result alone
    would multiply a zero gradient by the NaN or infinity that stands in an invalid row.

    Args:
        x: any shape and dtype.
        valid: bool, the shape of x; None means that all of x is valid.

    Returns:
        The shape and dtype of x.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.
    """
    if valid is None:
        return x
    check_same_shape("masking by valid", x=x, valid=valid)
    check_bool("masking by valid", valid=valid)
    return torch.where(valid, x, 0)


def valid_mean(
    x: torch.Tensor,
    valid: torch.Tensor | None = None,
    dim: int | tuple[int, ...] | None = None,
) -> torch.Tensor:
    """Return sum(x * valid) / sum(valid), and 0 where nothing is valid.

    Args:
        x: any shape; bool and integers are averaged as float32.
        valid: bool, the shape of x; None means that all of x is valid.
        dim: dimension or dimensions to average over; None means all.

    Returns:
        A scalar tensor, or x without the dimensions averaged over.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.
    """
    x = x if x.is_floating_point() else x.float()
    if valid is None:
        return x.mean(dim=dim)
    total = zero_invalid(x, valid).sum(dim=dim)
    return total / valid.sum(dim=dim).clamp(min=1)


def _centre(x: torch.Tensor, valid: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x minus its mean, zero in the invalid places, and its variance (divided by n)."""
    centred = zero_invalid(x - valid_mean(x, valid), valid)
    return centred, valid_mean(centred.square(), valid)


def valid_standardize(x: torch.Tensor, valid: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """Return (x - mean) / max(std, eps), both taken over the valid places.

    Args:
        x: any shape, float; usually the advantage.
        valid: bool, the shape of x; None means that all of x is valid.
        eps: floor of the standard deviation, which is that of the population (divided by n): equal
            entries, or a single one, give 0.

    Returns:
        The shape of x, zero in the invalid places.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.
    """
    centred, variance = _centre(x, valid)
    # The floor comes before the root, whose slope at 0 is infinite.
    return centred / variance.clamp(min=eps**2).sqrt()


@torch.no_grad()
def explained_variance(value: torch.Tensor, return_: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Return 1 - Var[return - value] / Var[return], and 0 where the returns are all equal.

    1 is a perfect prediction, 0 as good as a constant, below 0 worse.

    Args:
        value: any shape, float.
        return_: the shape of value, float.
        valid: bool, the shape of value; None means that all is valid.

    Returns:
        A scalar tensor without gradient.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.
    """
    check_same_shape("explained_variance", value=value, return_=return_, valid=valid)
    _, unexplained = _centre(return_ - value, valid)
    _, variance = _centre(return_, valid)
    return torch.where(variance > 0, 1 - unexplained / variance, 0.0)


def episode_start_from_valid(valid: torch.Tensor) -> torch.Tensor:
    """Return where the recurrent state must be zeroed before the step: the first valid row after others.

    Row 0 is never one, whatever stands before it: the initial recurrent state stored with a batch
    is already the one to begin with.

    Args:
        valid: [T, B] bool, False on the final rows of episodes, and on those in which an environment rests.

    Returns:
        [T, B] bool.

    Raises:
        TypeError: if valid is not bool.
    """
    check_bool("episode_start_from_valid", valid=valid)
    start = torch.zeros_like(valid)
    start[1:] = valid[1:] & ~valid[:-1]
    return start
