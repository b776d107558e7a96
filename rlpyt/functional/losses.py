"""Losses to minimise and the targets in them, as functions of tensors on any device.

Losses of on-policy algorithms are scalars: means over the valid rows. Losses of algorithms with a replay have one
entry per row, because importance weights and masks are applied before the mean. Targets, old values and advantages
never receive a gradient.

Invalid rows may hold any numbers, and a null action there can make a ratio overflow. `valid_mean` keeps such a row out
of the loss. Its gradient of zero times an infinity or NaN would still be NaN, so the input in training passes
`zero_invalid` first.
"""

from __future__ import annotations

import torch

from rlpyt.functional.checks import check_same_shape
from rlpyt.functional.indexing import select_at_indexes
from rlpyt.functional.masks import valid_mean, zero_invalid

_LOG_RATIO_MAX = 30.0  # exp of it squares to 1e26: what a gradient's norm sums up stays within float32


def _log_ratio(log_prob: torch.Tensor, old_log_prob: torch.Tensor) -> torch.Tensor:
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
    return _log_ratio(log_prob, old_log_prob).exp()


def policy_gradient_loss(
    log_prob: torch.Tensor, advantage: torch.Tensor, valid: torch.Tensor | None = None
) -> torch.Tensor:
    """Return -mean(log_prob * advantage).

    Args:
        log_prob: [...] float, log pi(a_t | s_t).
        advantage: [...] float.
        valid: [...] bool; None means that all rows are valid.

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
    """Return the clipped surrogate of PPO with its sign turned, to minimise.

        ratio_t = pi(a_t | s_t) / pi_old(a_t | s_t)
        L = -mean(min(ratio_t * A_t, clip(ratio_t, 1 - ratio_clip, 1 + ratio_clip) * A_t))

    The log of the ratio is clamped at 30, where float32 would overflow at 88. Its gradient is 0 above.

    Args:
        log_prob: [...] float, of the policy in training.
        old_log_prob: [...] float, of the policy that acted.
        advantage: [...] float.
        ratio_clip: epsilon of the paper, above 0; usual values are 0.1 to 0.3.
        valid: [...] bool; None means that all rows are valid.

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
    """
    check_same_shape("value_loss", value=value, return_=return_, valid=valid)
    value = zero_invalid(value, valid)
    return valid_mean(squared_loss(return_.detach() - value), valid)


def clipped_value_loss(
    value: torch.Tensor,
    old_value: torch.Tensor,
    return_: torch.Tensor,
    *,
    value_clip: float,
    valid: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the value loss with no gain for moves of more than value_clip away from the old value.

        V_clip = V_old + clip(V - V_old, -value_clip, value_clip)
        L = mean(0.5 * max((return - V)^2, (return - V_clip)^2))

    Args:
        value: [...] float, V(s_t) of the network in training.
        old_value: [...] float, V(s_t) of the network that acted.
        return_: [...] float, the target.
        value_clip: in units of the return, above 0.
        valid: [...] bool; None means that all rows are valid.

    Source: Engstrom et al. 2020, arXiv:2005.12729 (from OpenAI baselines, ppo2).
    """
    check_same_shape("clipped_value_loss", value=value, old_value=old_value, return_=return_, valid=valid)
    value, old_value, return_ = zero_invalid(value, valid), old_value.detach(), return_.detach()
    clipped_value = old_value + (value - old_value).clamp(-value_clip, value_clip)
    loss, clipped_loss = squared_loss(return_ - value), squared_loss(return_ - clipped_value)
    return valid_mean(torch.maximum(loss, clipped_loss), valid)


@torch.no_grad()
def approx_kl(log_prob: torch.Tensor, old_log_prob: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Return an estimate of KL(pi_old || pi) from the actions of pi_old. It is a metric and no loss.

        mean((ratio_t - 1) - log ratio_t),    ratio_t = pi(a_t | s_t) / pi_old(a_t | s_t)

    The estimate is unbiased and has a lower variance than mean(-log ratio_t). No term of it is negative. The log of the
    ratio is clamped at 30, as in `ppo_clip_loss`.

    Args:
        log_prob: [...] float, of the policy in training.
        old_log_prob: [...] float, of the policy that acted.
        valid: [...] bool; None means that all rows are valid.

    Returns:
        A scalar tensor without gradient.

    Source: Schulman 2020, joschu.net/blog/kl-approx.html, estimator k3.
    """
    check_same_shape("approx_kl", log_prob=log_prob, old_log_prob=old_log_prob, valid=valid)
    log_ratio = _log_ratio(log_prob, old_log_prob)
    return valid_mean(log_ratio.expm1() - log_ratio, valid)


@torch.no_grad()
def clip_fraction(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, *, ratio_clip: float, valid: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the share of rows whose ratio lies outside the clip of PPO. It is a metric and no loss.

        mean(|ratio_t - 1| > ratio_clip),    ratio_t = pi(a_t | s_t) / pi_old(a_t | s_t)

    Args:
        log_prob: [...] float, of the policy in training.
        old_log_prob: [...] float, of the policy that acted.
        ratio_clip: as in `ppo_clip_loss`.
        valid: [...] bool; None means that all rows are valid.

    Returns:
        A scalar tensor in [0, 1], without gradient.
    """
    check_same_shape("clip_fraction", log_prob=log_prob, old_log_prob=old_log_prob, valid=valid)
    # A ratio that overflows is outside of the clip, too.
    return valid_mean((log_prob - old_log_prob).expm1().abs() > ratio_clip, valid)


def double_q_value(target_q: torch.Tensor, online_q: torch.Tensor) -> torch.Tensor:
    """Return Q_target(s, argmax_a Q_online(s, a)). With target_q in both places it is max_a Q_target(s, a).

    Args:
        target_q: [..., A] float, of the target network at the bootstrap row; or [..., A, N], atoms of a distribution.
        online_q: [..., A] float, of the network that chooses the action at the same row.

    Returns:
        [...] float, or [..., N].

    Sources: van Hasselt et al. 2016, arXiv:1509.06461, equation 4. The maximum is of Mnih et al. 2015, Nature 518.
    """
    if target_q.shape[: online_q.dim()] != online_q.shape:
        raise ValueError(
            f"double_q_value: got target_q {tuple(target_q.shape)} and online_q {tuple(online_q.shape)}; expected the "
            "same shape, or target_q with one more dimension for atoms. Take both from the same rows."
        )
    return select_at_indexes(online_q.argmax(dim=-1), target_q)


@torch.no_grad()
def td_target(return_: torch.Tensor, bootstrap_discount: torch.Tensor, target_q: torch.Tensor) -> torch.Tensor:
    """Return the n-step target, return + bootstrap_discount * target_q; it is the return where the discount is 0.

    So a final observation of which all actions are masked, with a value of minus infinity, gives no NaN.

    Args:
        return_: [...] float, of `n_step_return`.
        bootstrap_discount: [...] float, of `n_step_return`; 0 where the window ended in termination.
        target_q: [...] float, the value of the row n steps later. It is not used where bootstrap_discount is 0, and may
            be infinite there, as where no action is possible.

    Returns:
        [...] float, without gradient.
    """
    check_same_shape("td_target", return_=return_, bootstrap_discount=bootstrap_discount, target_q=target_q)
    return return_ + bootstrap_discount * target_q.masked_fill(bootstrap_discount == 0, 0.0)


def squared_loss(delta: torch.Tensor) -> torch.Tensor:
    """Return 0.5 * delta^2 of each error.

    Args:
        delta: [...] float, target minus prediction or prediction minus target.

    Returns:
        [...] float, not averaged.
    """
    return 0.5 * delta.square()


def huber_loss(delta: torch.Tensor, delta_clip: float | torch.Tensor | None) -> torch.Tensor:
    """Return, for each TD error, a square whose slope stops growing at delta_clip.

        0.5 * delta^2                                   where |delta| <= delta_clip
        delta_clip * (|delta| - 0.5 * delta_clip)       elsewhere

    Args:
        delta: [...] float, target minus prediction or prediction minus target.
        delta_clip: the largest slope, above 0; None gives `squared_loss`.

    Returns:
        [...] float, not averaged.

    Raises:
        ValueError: if delta_clip is not above 0.

    Sources: Huber 1964. Mnih et al. 2015, Nature 518, methods, call it the clipped error.
    """
    if delta_clip is None:
        return squared_loss(delta)
    if not isinstance(delta_clip, torch.Tensor) and not delta_clip > 0:  # to read a tensor would wait for its device
        raise ValueError(
            f"huber_loss: got delta_clip={delta_clip}; expected a number above 0, as any other "
            "stops all learning. Give None for the plain squared error."
        )
    size = delta.abs()
    square_part = size.clamp(max=delta_clip)
    # Both cases at once, in the fewest passes over delta: the loss of 200 x 200 quantiles is limited by memory.
    return square_part * torch.sub(size, square_part, alpha=0.5)


def clipped_double_q(q: torch.Tensor) -> torch.Tensor:
    """Return min_i Q_i, the smallest of several action values, which counters their overestimation.

    Args:
        q: [N, ...] float, of N networks at the same rows and actions.

    Returns:
        [...] float.

    Source: Fujimoto et al. 2018, arXiv:1802.09477, section 4.2.
    """
    return q.amin(0)


@torch.no_grad()
def smoothed_action(mu: torch.Tensor, noise: torch.Tensor, *, noise_std: float, noise_clip: float) -> torch.Tensor:
    """Return the target policy's action with clipped noise, at which TD3 computes its target.

        clip(mu + clip(noise_std * noise, -noise_clip, noise_clip), -1, 1)

    Args:
        mu: [..., A] float, action of the target policy.
        noise: [..., A] float, standard normal.
        noise_std: standard deviation of the noise, from 0.
        noise_clip: largest size of the noise, from 0.

    Returns:
        [..., A] float in [-1, 1], without gradient.

    Source: Fujimoto et al. 2018, arXiv:1802.09477, section 5.3, target policy smoothing.
    """
    check_same_shape("smoothed_action", mu=mu, noise=noise)
    return (mu + (noise * noise_std).clamp(-noise_clip, noise_clip)).clamp(-1, 1)


def deterministic_policy_loss(q: torch.Tensor) -> torch.Tensor:
    """Return -Q(s_t, mu(s_t)), whose gradient through the action trains the policy mu.

    Args:
        q: [...] float, values of the policy's actions.

    Returns:
        [...] float, not averaged.

    Source: Lillicrap et al. 2016, arXiv:1509.02971, equation 6.
    """
    return -q


@torch.no_grad()
def soft_value(q: torch.Tensor, log_prob: torch.Tensor, alpha: float | torch.Tensor) -> torch.Tensor:
    """Return the value of a state under a policy that is rewarded for its entropy.

        V(s) = Q(s, a) - alpha * log pi(a | s),    a ~ pi(s)

    Args:
        q: [...] float, values of actions drawn from the policy; of several networks their `clipped_double_q`.
        log_prob: [...] float, log-densities of these actions.
        alpha: weight of the entropy, from 0; a number or a scalar tensor.

    Returns:
        [...] float, without gradient.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, equation 3.
    """
    check_same_shape("soft_value", q=q, log_prob=log_prob)
    return q - alpha * log_prob


def soft_policy_loss(q: torch.Tensor, log_prob: torch.Tensor, alpha: float | torch.Tensor) -> torch.Tensor:
    """Return alpha * log pi(a | s_t) - Q(s_t, a), a ~ pi(s_t), whose gradient also goes through the action.

    Args:
        q: [...] float, values of actions drawn from the policy; of several networks their minimum or mean.
        log_prob: [...] float, log-densities of these actions.
        alpha: weight of the entropy, from 0; a number or a scalar tensor without gradient.

    Returns:
        [...] float, not averaged.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, equation 9.
    """
    check_same_shape("soft_policy_loss", q=q, log_prob=log_prob)
    return alpha * log_prob - q


def expected_soft_value(q: torch.Tensor, log_prob: torch.Tensor, alpha: float | torch.Tensor) -> torch.Tensor:
    """Return the value of a state under a policy over discrete actions that is rewarded for its entropy.

        V(s) = sum_a pi(a | s) (Q(s, a) - alpha * log pi(a | s))

    It is the mean of `soft_value`, and with its sign turned that of `soft_policy_loss`.

    Args:
        q: [..., A] float, finite values of all actions; of several networks their `clipped_double_q`.
        log_prob: [..., A] float, log-probabilities; those of illegal actions are minus infinity, and do not count.
        alpha: weight of the entropy, from 0; a number or a scalar tensor.

    Returns:
        [...] float, with gradient.

    Source: Christodoulou 2019, arXiv:1910.07207, equations 10 and 12.
    """
    check_same_shape("expected_soft_value", q=q, log_prob=log_prob)
    # 0 log 0 is 0, and so is its gradient.
    finite = log_prob.masked_fill(log_prob == -torch.inf, 0.0)
    return (log_prob.exp() * (q - alpha * finite)).sum(-1)


def temperature_loss(log_alpha: torch.Tensor, entropy_gap: torch.Tensor) -> torch.Tensor:
    """Return the loss that raises alpha while the entropy of the policy lies below its target.

        L = -log alpha * entropy_gap,    entropy_gap = mean_t(log pi(a_t | s_t) + target_entropy)

    The paper has alpha in place of log alpha. The two gradients have the same sign; that of log alpha here does not
    depend on alpha.

    Args:
        log_alpha: scalar float, in training.
        entropy_gap: scalar float, target entropy minus entropy, as a mean over the rows; receives no gradient.

    Raises:
        ValueError: if one of the two is no scalar.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, equation 18, and the reference implementation for log alpha.
    """
    if log_alpha.dim() or entropy_gap.dim():
        raise ValueError(
            f"temperature_loss: got log_alpha {tuple(log_alpha.shape)} and entropy_gap {tuple(entropy_gap.shape)}; "
            "expected two scalars. Take the mean of log_prob + target_entropy over the rows first."
        )
    return -log_alpha * entropy_gap.detach()
