"""Statistics over the rows to train on.

`valid` is a bool tensor of the shape of x. It is False on rows that only hold the final observation of an episode, and
on rows that a replay excludes. Such rows may hold any numbers, NaN included.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlpyt.functional.checks import check_bool, check_same_shape


def zero_invalid(x: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """Return x with zero in the invalid places, where its gradient is exactly zero too.

    A loss applies it to the input in training before any arithmetic. If only the result were masked, a gradient of zero
    would be multiplied by the NaN or infinity of an invalid row.

    Args:
        x: any shape and dtype.
        valid: bool, the shape of x; None means that all of x is valid.

    Returns:
        The shape and dtype of x.
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
    """Return sum(x * valid) / sum(valid), or 0 where nothing is valid.

    Args:
        x: any shape; bool and integers are averaged as float32.
        valid: bool, the shape of x; None means that all of x is valid.
        dim: dimension or dimensions to average over; None means all.

    Returns:
        A scalar tensor, or x without the dimensions averaged over.
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


def valid_standardize(x: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Return (x - mean) / max(std, 1e-6), with mean and std over the valid places.

    Args:
        x: any shape, float; usually the advantage.
        valid: bool, the shape of x; None means that all of x is valid.

    Returns:
        The shape of x, zero in the invalid places. The variance is divided by n, so equal entries, or a single one,
        give 0.
    """
    centred, variance = _centre(x, valid)
    return _scaled(centred, variance)


def standardize(
    x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, valid: torch.Tensor | None = None
) -> torch.Tensor:
    """Return (x - mean) / max(std, 1e-6) with a given mean and variance, such as those of several batches.

    Args:
        x: any shape, float.
        mean: scalar, the dtype of x.
        var: scalar, the dtype of x.
        valid: bool, the shape of x; None means that all of x is valid.

    Returns:
        The shape of x, zero in the invalid places.
    """
    return _scaled(zero_invalid(x - mean, valid), var)


def _scaled(centred: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    # Clamped before the root, whose slope at 0 is infinite.
    return centred / variance.clamp(min=1e-12).sqrt()


@torch.no_grad()
def explained_variance(value: torch.Tensor, return_: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Return the part of the variance of the returns that the values predict.

        1 - Var[return - value] / Var[return]

    1 is a perfect prediction, 0 is as good as a constant, and below 0 is worse than a constant. If the returns are all
    equal, or no row is valid, there is no variance to explain and the result is 0.

    Args:
        value: [T, B] float, or any other shape.
        return_: the shape of value, float.
        valid: bool, the shape of value; None means that all rows are valid.

    Returns:
        A scalar tensor without gradient, computed without a synchronisation.
    """
    check_same_shape("explained_variance", value=value, return_=return_, valid=valid)
    _, unexplained = _centre(return_ - value, valid)
    _, variance = _centre(return_, valid)
    return share_explained(unexplained, variance, valid_mean(return_, valid))


@torch.no_grad()
def share_explained(unexplained: torch.Tensor, variance: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Return 1 - unexplained / variance, or 0 where the variance is no more than rounding.

    Args:
        unexplained: scalar float, Var[return - value].
        variance: scalar float, Var[return], in the precision that the returns were computed in.
        mean: scalar float, of the returns.
    """
    # The mean of equal returns may differ from each of them by some roundings.
    rounding = 16 * torch.finfo(variance.dtype).eps * mean.abs()
    return torch.where(variance > rounding.square(), 1 - unexplained / variance, 0.0)


@torch.no_grad()
def mean_perplexity(entropy: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Return the mean of exp(entropy): how many equally likely actions have the same entropy.

    An entropy is clamped at 60 nats. That of a Gaussian has no bound, and float32 would overflow at 88.

    Args:
        entropy: any shape, float, in nats.
        valid: bool, the shape of entropy; None means that all rows are valid.

    Returns:
        A scalar tensor without gradient.
    """
    return valid_mean(entropy.clamp(max=60.0).exp(), valid)


def legal_choices(mask: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Return which actions a mask allows; all of a choice of which it allows none, as after the end of an episode.

    Args:
        mask: [..., sum(sizes)] integers or bool, not 0 where an action is legal.
        sizes: actions of each choice, such as [n] of a `Discrete`; their masks stand one after the other.

    Returns:
        The shape of mask, bool.

    Raises:
        ValueError: if the mask is not of so many actions.
    """
    if mask.shape[-1:] != (sum(sizes),):
        raise ValueError(
            f"legal_choices: got a mask of {tuple(mask.shape)} and choices of {list(sizes)} actions; expected "
            f"{sum(sizes)} in the last dimension. Put the masks of the choices one after the other."
        )
    parts = (mask != 0).split(list(sizes), -1)
    return torch.cat([part | ~part.any(-1, keepdim=True) for part in parts], -1)


def mask_illegal(x: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
    """Return logits or action values with minus infinity where an action is illegal, without a gradient there.

    Args:
        x: [..., A] float.
        legal: the shape of x, bool, of `legal_choices`.

    Returns:
        The shape and dtype of x. A softmax gives illegal actions exactly 0, and no maximum takes them.

    Source: Huang and Ontanon 2020, arXiv:2006.14171, section 3, with minus infinity in place of a large number.
    """
    check_same_shape("mask_illegal", x=x, legal=legal)
    check_bool("mask_illegal", legal=legal)
    return x.masked_fill(~legal, -torch.inf)


def episode_start_from_valid(valid: torch.Tensor, done: torch.Tensor | None = None) -> torch.Tensor:
    """Return the rows before which the recurrent state must be zero: each first valid row after an invalid one.

    Row 0 is never one of them, because the recurrent state stored with a batch already fits its first row.

    Args:
        valid: [T, B] bool, False on final rows of episodes and on rows in which an environment was not stepped.
        done: [T, B] bool, rows that ended an episode, where final observations have no rows: the valid rows after them
            are starts, too.

    Returns:
        [T, B] bool, True before which the state must be zero.
    """
    check_bool("episode_start_from_valid", valid=valid)
    start = torch.zeros_like(valid)
    start[1:] = valid[1:] & (~valid[:-1] if done is None else ~valid[:-1] | done[:-1])
    return start
