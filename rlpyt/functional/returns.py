"""Returns and advantages over `[T, B]` rows, for every algorithm.

next_value[t] is the value of the observation that action[t] led to. A sampler's batch keeps this observation in row t+1
in every case, so next_value is the batch's value shifted by one row, with the bootstrap value last. A terminated step
does not use it; a truncated step does. The results are meaningless in rows that hold the final observation of an
episode (`valid` False). They are finite there for finite input. No number of such a row, NaN included, reaches another
row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from rlpyt.functional.checks import check_bool, check_same_shape


def _sum_backward(y: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """Turn y in place into the sums y_t := y_t + decay_t * y_t+1 with y_T = 0, and return it.

    The span doubles in each of log2(T) rounds: y_t, summed over `span` rows so far, adds y_t+span times the decay
    between. On one CPU core, [128, 8] takes 94 us (an in-place loop over t takes 245 us), and [2048, 1] takes 167 us
    (3,900 us).
    """
    T, span = len(y), 1
    while span < T:
        # decay[t] is the product over rows t to t+span-1 here.
        carry = decay[: T - span]
        # Where the decay is 0, y_t+span may be NaN, and 0 * NaN is NaN.
        y[:-span].add_((carry * y[span:]).masked_fill_(carry == 0, 0.0))
        # A product that has overflowed behind an end stays cut off there, though 0 * inf is NaN.
        decay = (decay[:-span] * decay[span:]).nan_to_num_(nan=0.0, posinf=math.inf)
        span *= 2
    return y


@torch.no_grad()
def lambda_return(
    reward: torch.Tensor,
    next_value: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    *,
    discount: float,
    lambda_: float,
) -> torch.Tensor:
    """Return the lambda-returns, which are mixtures of the n-step returns of all n.

        G_t = r_t + discount * (1 - terminated_t) * ((1 - l_t) * next_value_t + l_t * G_t+1),
        l_t = 0 where the step was truncated or t = T-1, else lambda

    Args:
        reward: [T, B] float; reward[t] follows action[t].
        next_value: [T, B] float, V of the observation that action[t] led to.
        terminated: [T, B] bool, True at the step that ended the episode by itself.
        truncated: [T, B] bool, True at the step after which the episode was cut.
        discount: gamma in [0, 1].
        lambda_: in [0, 1]; 0 gives one-step targets, 1 the discounted return.

    Returns:
        return_: [T, B] float, without gradient.

    Source: Sutton and Barto 2018, section 12.1.
    """
    flags = {"terminated": terminated, "truncated": truncated}
    check_same_shape("lambda_return", reward=reward, next_value=next_value, **flags)
    check_bool("lambda_return", **flags)
    done = terminated | truncated
    bootstrap = torch.full_like(next_value, 1 - lambda_).masked_fill_(done, 1.0)
    bootstrap[-1:] = 1.0
    target = reward + discount * bootstrap * next_value.masked_fill(terminated, 0.0)
    decay = torch.full_like(target, discount * lambda_).masked_fill_(done, 0.0)
    return _sum_backward(target, decay)


@torch.no_grad()
def running_return(
    reward: torch.Tensor, done: torch.Tensor, previous: torch.Tensor, *, discount: float
) -> torch.Tensor:
    """Return the discounted sums of the rewards from the start of the episode up to each row.

        R_t = r_t + discount * (1 - done_t-1) * R_t-1

    Their standard deviation estimates the scale of the returns, by which rewards are divided to normalise them.

    Args:
        reward: [T, B] float.
        done: [T, B] bool, True at the step that ended the episode, terminated or truncated.
        previous: [B] float, R of the row before the first; 0 where that row ended an episode.
        discount: gamma in [0, 1].

    Returns:
        [T, B] float, without gradient.

    Source: Engstrom et al. 2020, arXiv:2005.12729, appendix A.2 (reward scaling of OpenAI baselines).
    """
    check_same_shape("running_return", reward=reward, done=done)
    check_same_shape("running_return", reward=reward[0], previous=previous)
    check_bool("running_return", done=done)
    y, decay = reward.flip(0), torch.full_like(reward, discount)
    y[-1] += discount * previous
    decay[:-1].masked_fill_(done[:-1].flip(0), 0.0)
    return _sum_backward(y, decay).flip(0)


@torch.no_grad()
def generalized_advantage_estimation(
    reward: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    *,
    discount: float,
    gae_lambda: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages and lambda-returns by GAE.

        delta_t = r_t + discount * (1 - terminated_t) * next_value_t - value_t
        A_t     = delta_t + discount * gae_lambda * (1 - done_t) * A_t+1,    A_T = 0
        G_t     = A_t + value_t

    Args:
        reward: [T, B] float; reward[t] follows action[t].
        value: [T, B] float, V(s_t) of the behaviour policy.
        next_value: [T, B] float, V of the observation that action[t] led to. Where the episode was truncated this is
            its final observation, and not the first one after the reset.
        terminated: [T, B] bool, True at the step that ended the episode by itself.
        truncated: [T, B] bool, True at the step after which the episode was cut; done is either.
        discount: gamma in [0, 1].
        gae_lambda: lambda in [0, 1]; 1 gives the discounted return minus value.

    Returns:
        advantage, return_: [T, B] float each, without gradient.

    Source: Schulman et al. 2016, arXiv:1506.02438, section 3.
    """
    flags = {"terminated": terminated, "truncated": truncated}
    check_same_shape("GAE", reward=reward, value=value, next_value=next_value, **flags)
    check_bool("GAE", **flags)
    delta = reward + discount * next_value.masked_fill(terminated, 0.0) - value
    decay = torch.full_like(delta, discount * gae_lambda).masked_fill_(terminated | truncated, 0.0)
    advantage = _sum_backward(delta, decay)
    return advantage, advantage + value


@torch.no_grad()
def v_trace(
    reward: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    ratio: torch.Tensor,
    *,
    discount: float,
    lambda_: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages and V-trace targets, from rows of an older policy.

        rho_t   = min(rho_bar, ratio_t),    c_t = lambda * min(c_bar, ratio_t)
        delta_t = rho_t * (r_t + discount * (1 - terminated_t) * next_value_t - value_t)
        G_t     = value_t + delta_t + discount * (1 - done_t) * c_t * (G_t+1 - value_t+1)
        A_t     = r_t + discount * (1 - terminated_t) * n_t - value_t,
        n_t     = lambda * G_t+1 + (1 - lambda) * value_t+1, and next_value_t where done_t or t = T-1

    The advantage has no importance weight. The policy's loss multiplies it by min(pg_rho_bar, ratio_t). With
    lambda = 1 the two are those of the paper. Where all ratios are 1, they are those of GAE for any lambda.

    Args:
        reward: [T, B] float; reward[t] follows action[t].
        value: [T, B] float, V(s_t) of the network in training.
        next_value: [T, B] float, V of the observation that action[t] led to, by the same network.
        terminated: [T, B] bool, True at the step that ended the episode by itself.
        truncated: [T, B] bool, True at the step after which the episode was cut; done is either.
        ratio: [T, B] float, pi(a_t | s_t) / mu(a_t | s_t) of the policy in training and the one that acted.
        discount: gamma in [0, 1].
        lambda_: in [0, 1]; less than 1 shortens the traces.
        rho_bar: largest weight of a TD error, above 0, or infinity. It decides whose values the targets are: infinity
            gives those of pi, near 0 those of mu.
        c_bar: largest factor of a trace, from 0, or infinity. It decides the variance alone; the paper has at most
            rho_bar.

    Returns:
        advantage, return_: [T, B] float each, without gradient.

    Source: Espeholt et al. 2018, arXiv:1802.01561, sections 4.1 and 4.2; lambda is that of its remark 2.
    """
    flags = {"terminated": terminated, "truncated": truncated}
    check_same_shape("V-trace", reward=reward, value=value, next_value=next_value, ratio=ratio, **flags)
    check_bool("V-trace", **flags)
    done = terminated | truncated
    td_error = reward + discount * next_value.masked_fill(terminated, 0.0) - value
    decay = (discount * lambda_ * ratio.clamp(max=c_bar)).masked_fill_(done, 0.0)
    # The products of decays cross rows that are not valid, where 0 * NaN would be NaN.
    decay.nan_to_num_(nan=0.0, posinf=math.inf)
    correction = _sum_backward(ratio.clamp(max=rho_bar) * td_error, decay)
    advantage = td_error.clone()
    advantage[:-1] += (discount * lambda_ * correction[1:]).masked_fill_(done[:-1], 0.0)
    return advantage, correction + value


class NStepReturn(NamedTuple):
    """Results of `n_step_return`, one entry per window; every field has the trailing shape of the windows."""

    return_: np.ndarray
    """float: discounted sum of the rewards up to and including the first done."""
    bootstrap_discount: np.ndarray
    """float: discount ** steps, or 0 where the window ended in termination."""
    terminated_n: np.ndarray
    """bool: whether the window ended in termination."""
    steps: np.ndarray
    """int64 in 1..n_step: number of rewards summed; the bootstrap row is start + steps."""


def n_step_return(reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, *, discount: float) -> NStepReturn:
    """Return the n-step returns of windows of n_step rows.

        steps = 1 + (index of the first done in the window, or n_step - 1)
        G     = sum_{k < steps} discount^k * r_k

    The caller adds bootstrap_discount * (value or Q at row start + steps). The arrays are numpy, as those of a replay
    are. For a sequence of T + n_step - 1 rows the windows of all T rows are
    `np.moveaxis(np.lib.stride_tricks.sliding_window_view(reward, n_step, axis=0), -1, 0)`.

    Args:
        reward: [n_step, ...] float; the windows side by side, for example [n_step, M] or [n_step, T, B].
        terminated: [n_step, ...] bool, True at the step that ended the episode by itself.
        truncated: [n_step, ...] bool, True at the step after which the episode was cut.
        discount: gamma in [0, 1].

    Returns:
        NStepReturn of arrays [...]; the floats are float32, or float64 where reward is.

    Source: Sutton and Barto 2018, equation 7.1.
    """
    flags = {"terminated": terminated, "truncated": truncated}
    check_same_shape("n_step_return", reward=reward, **flags)
    check_bool("n_step_return", **flags)
    dtype = np.result_type(reward, np.float32)
    powers = np.array([float(discount) ** k for k in range(len(reward) + 1)], dtype)
    return_, terminated_n = reward[-1].astype(dtype), terminated[-1].copy()
    steps = np.ones(return_.shape, np.int64)
    for k in reversed(range(len(reward) - 1)):
        goes_on = ~(terminated[k] | truncated[k])
        # What lies behind the end of an episode may be anything, NaN too.
        return_ = reward[k] + np.where(goes_on, powers[1] * return_, 0)
        steps = 1 + goes_on * steps
        terminated_n = terminated[k] | goes_on & terminated_n
    bootstrap_discount = np.where(terminated_n, dtype.type(0), powers[steps] if len(reward) > 1 else powers[1])
    return NStepReturn(return_, bootstrap_discount, terminated_n, steps)
