"""Losses to minimise, and the targets in them: tensors in and out, on whatever device they are on.

Policy-gradient losses are scalars, means over the valid rows. Those on TD errors are per element,
because importance weights and masks come between them and the mean. Targets, old values and
advantages never receive a gradient.

Invalid rows hold anything, and a null action there can make a ratio overflow. `valid_mean` keeps
that from the loss, but its zero gradient times an infinity or NaN is NaN: so the one input that is
trained passes `zero_invalid` first, which stops the gradient of such rows on its way back.
"""

from __future__ import annotations

import torch

from rlpyt.functional.checks import check_same_shape
from rlpyt.functional.indexing import select_at_indexes
from rlpyt.functional.masks import valid_mean, zero_invalid

_LOG_RATIO_MAX = 30.0  # exp of it squares to 1e26: what a gradient's norm sums up stays within float32


def policy_gradient_loss(
    log_prob: torch.Tensor, advantage: torch.Tensor, valid: torch.Tensor | None = None
) -> torch.Tensor:
    """Return -mean(log_prob * advantage).

    Args:
        log_prob: [...] float, log pi(a_t | s_t).
        advantage: [...] float.
        valid: [...] bool; None means that all rows are valid.

    Returns:
        A scalar tensor.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.

    Source: Mnih et al. 2016, arXiv:1602.01783, section 4.
    """
    check_same_shape("policy_gradient_loss", log_prob=log_prob, advantage=advantage, valid=valid)
    log_prob = zero_invalid(log_prob, valid)
    return -valid_mean(log_prob * advantage.detach(), valid)


def ppo_clip_loss(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantage: torch.Tensor,
    *,
    ratio_clip: float,
    valid: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the clipped surrogate of PPO with its sign turned, to be minimised.

        ratio_t = pi(a_t | s_t) / pi_old(a_t | s_t)
        L = -mean(min(ratio_t * A_t, clip(ratio_t, 1 - ratio_clip, 1 + ratio_clip) * A_t))

    The log of the ratio stops at 30, and its gradient beyond is 0: float32 would overflow at 88.

    Args:
        log_prob: [...] float, of the policy in training.
        old_log_prob: [...] float, of the policy that acted.
        advantage: [...] float.
        ratio_clip: epsilon in the paper, above 0; 0.1 to 0.3 are usual.
        valid: [...] bool; None means that all rows are valid.

    Returns:
        A scalar tensor.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.
    """
    check_same_shape(
        "ppo_clip_loss",
        log_prob=log_prob,
        old_log_prob=old_log_prob,
        advantage=advantage,
        valid=valid,
    )
    log_prob, advantage = zero_invalid(log_prob, valid), advantage.detach()
    ratio = _log_ratio(log_prob, old_log_prob.detach()).exp()
    clipped_ratio = ratio.clamp(1 - ratio_clip, 1 + ratio_clip)
    return -valid_mean(torch.minimum(ratio * advantage, clipped_ratio * advantage), valid)


def value_loss(value: torch.Tensor, return_: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Return mean(0.5 * (return - value)^2).

    Args:
        value: [...] float, V(s_t).
        return_: [...] float, the target.
        valid: [...] bool; None means that all rows are valid.

    Returns:
        A scalar tensor.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.
    """
    check_same_shape("value_loss", value=value, return_=return_, valid=valid)
    value = zero_invalid(value, valid)
    return valid_mean(0.5 * (return_.detach() - value).square(), valid)


def clipped_value_loss(
    value: torch.Tensor,
    old_value: torch.Tensor,
    return_: torch.Tensor,
    *,
    value_clip: float,
    valid: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the value loss without a gain for moving further than value_clip from the old value.

        V_clip = V_old + clip(V - V_old, -value_clip, value_clip)
        L = mean(0.5 * max((return - V)^2, (return - V_clip)^2))

    Args:
        value: [...] float, V(s_t) of the network in training.
        old_value: [...] float, V(s_t) of the network that acted.
        return_: [...] float, the target.
        value_clip: in units of the return, above 0.
        valid: [...] bool; None means that all rows are valid.

    Returns:
        A scalar tensor.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.

    Source: Engstrom et al. 2020, arXiv:2005.12729 (from OpenAI baselines, ppo2).
    """
    check_same_shape("clipped_value_loss", value=value, old_value=old_value, return_=return_, valid=valid)
    value, old_value, return_ = zero_invalid(value, valid), old_value.detach(), return_.detach()
    clipped_value = old_value + (value - old_value).clamp(-value_clip, value_clip)
    square, clipped_square = (return_ - value).square(), (return_ - clipped_value).square()
    return valid_mean(0.5 * torch.maximum(square, clipped_square), valid)


@torch.no_grad()
def approx_kl(log_prob: torch.Tensor, old_log_prob: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Return an estimate of KL(pi_old || pi) from the actions of pi_old: a metric, no loss.

        mean((ratio_t - 1) - log ratio_t),    ratio_t = pi(a_t | s_t) / pi_old(a_t | s_t)

    Unbiased, of lower variance than mean(-log ratio_t), and no term of it is negative. The log of the ratio stops at
    30, as in `ppo_clip_loss`.

    Args:
        log_prob: [...] float, of the policy in training.
        old_log_prob: [...] float, of the policy that acted.
        valid: [...] bool; None means that all rows are valid.

    Returns:
        A scalar tensor without gradient.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if valid is not bool.

    Source: Schulman 2020, joschu.net/blog/kl-approx.html, estimator k3.
    """
    check_same_shape("approx_kl", log_prob=log_prob, old_log_prob=old_log_prob, valid=valid)
    log_ratio = _log_ratio(log_prob, old_log_prob)
    return valid_mean(log_ratio.expm1() - log_ratio, valid)


def _log_ratio(log_prob: torch.Tensor, old_log_prob: torch.Tensor) -> torch.Tensor:
    """Return log pi(a_t | s_t) - log pi_old(a_t | s_t), [...], held where its exponential is finite."""
    return (log_prob - old_log_prob).clamp(max=_LOG_RATIO_MAX)


def double_q_value(target_q: torch.Tensor, online_q: torch.Tensor) -> torch.Tensor:
    """Return Q_target(s, argmax_a Q_online(s, a)); with Q_target in both places that is max_a Q_target(s, a).

    Args:
        target_q: [..., A] float, of the target network at the bootstrap row; or [..., A, N], atoms of a distribution.
        online_q: [..., A] float, what chooses the action at the same row.

    Returns:
        [...] float, or [..., N].

    Raises:
        ValueError: if the shapes differ.

    Source: van Hasselt et al. 2016, arXiv:1509.06461, equation 4; the maximum Mnih et al. 2015, Nature 518.
    """
    if target_q.shape[: online_q.dim()] != online_q.shape:
        raise ValueError(
            f"double_q_value: got target_q {tuple(target_q.shape)} and online_q {tuple(online_q.shape)}; expected the "
            "same shape, or target_q with a dimension for atoms more. Which is of another row?"
        )
    return select_at_indexes(online_q.argmax(dim=-1), target_q)


@torch.no_grad()
def td_target(return_: torch.Tensor, bootstrap_discount: torch.Tensor, target_q: torch.Tensor) -> torch.Tensor:
    """Return the n-step target, return + bootstrap_discount * target_q.

    Args:
        return_: [...] float, of `n_step_return`.
        bootstrap_discount: [...] float, of `n_step_return`; 0 where the window ended in termination.
        target_q: [...] float, the value of the row n steps on.

    Returns:
        [...] float, without gradient.

    Raises:
        ValueError: if the shapes differ.
    """
    check_same_shape("td_target", return_=return_, bootstrap_discount=bootstrap_discount, target_q=target_q)
    return return_ + bootstrap_discount * target_q


def huber_loss(delta: torch.Tensor, delta_clip: float | None) -> torch.Tensor:
    """Return, for each TD error, a square whose slope stops growing at delta_clip.

        0.5 * delta^2                                   where |delta| <= delta_clip
        delta_clip * (|delta| - 0.5 * delta_clip)       elsewhere

    Args:
        delta: [...] float, target minus prediction or the other way round.
        delta_clip: the largest slope, above 0; None gives the square everywhere.

    Returns:
        [...] float, not averaged.

    Raises:
        ValueError: if delta_clip is not above 0.

    Source: Huber 1964; as the clipped error of Mnih et al. 2015, Nature 518, methods.
    """
    if delta_clip is None:
        return 0.5 * delta.square()
    if not delta_clip > 0:
        raise ValueError(
            f"huber_loss: got delta_clip={delta_clip}; expected a number above 0, as any other "
            "stops all learning. Give None for the plain squared error."
        )
    size = delta.abs()
    square_part = size.clamp(max=delta_clip)
    return 0.5 * square_part.square() + delta_clip * (size - square_part)
