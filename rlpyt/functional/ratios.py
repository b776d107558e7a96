"""Ratios of the probabilities that two policies give to the same action."""

from __future__ import annotations

import torch

from rlpyt.functional.checks import check_same_shape

_LOG_RATIO_MAX = 30.0  # exp of it squares to 1e26: what a gradient's norm sums up stays within float32


def log_ratio_of(log_prob: torch.Tensor, old_log_prob: torch.Tensor) -> torch.Tensor:
    """Return log pi(a_t | s_t) - log pi_old(a_t | s_t), [...], clamped so that its exponential is finite."""
    return (log_prob - old_log_prob).clamp(max=_LOG_RATIO_MAX)


@torch.no_grad()
def importance_ratio(log_prob: torch.Tensor, old_log_prob: torch.Tensor) -> torch.Tensor:
    """Return pi(a_t | s_t) / pi_old(a_t | s_t). Its log is clamped at 30, where float32 would overflow at 88.

    Args:
        log_prob: [...] float, of the policy in training.
        old_log_prob: [...] float, of the policy that acted.

    Returns:
        [...] float, without gradient.
    """
    check_same_shape("importance_ratio", log_prob=log_prob, old_log_prob=old_log_prob)
    return log_ratio_of(log_prob, old_log_prob).exp()
