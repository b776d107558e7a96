"""V-trace against hand numbers, the paper's sum over products, and the returns that it must equal on-policy."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlpyt.functional import generalized_advantage_estimation, importance_ratio, lambda_return, v_trace
from tests.functional.test_returns import (
    BOOTSTRAP_VALUE,
    HAND,
    HAND_VALID,
    REWARD,
    VALUE,
    assert_valid_rows,
    few,
    random_rows,
    seeds,
    unit,
    without_value,
)

bars = st.sampled_from([0.3, 1.0, 2.5, math.inf])


def off_policy_rows(seed: int, dtype: torch.dtype = torch.float64) -> tuple[dict[str, Any], torch.Tensor]:
    """Random rows with ratios, which are garbage where no action was taken."""
    rows, valid = random_rows(seed, dtype)
    generator = torch.Generator().manual_seed(seed)
    ratio = torch.randn(valid.shape, generator=generator, dtype=torch.float64).exp()
    garbage = torch.tensor([1e30, torch.nan, torch.inf])[torch.arange(valid.shape[1]) % 3].double().expand_as(ratio)
    return rows | {"ratio": torch.where(valid, ratio, garbage).to(dtype)}, valid


def target_of(rows: dict[str, torch.Tensor], t: int, b: int, h: dict[str, float]) -> float:
    """v_t by equation 1, with lambda as in remark 2: a sum over the rows ahead, each with the product of c between."""
    column = {name: x[:, b].tolist() for name, x in rows.items()}
    total = column["value"][t]
    for k in range(t, len(column["reward"])):
        product = 1.0
        for i in range(t, k):
            product *= h["lambda_"] * min(h["c_bar"], column["ratio"][i])
        next_value = 0.0 if column["terminated"][k] else column["next_value"][k]
        delta = column["reward"][k] + h["discount"] * next_value - column["value"][k]
        total += h["discount"] ** (k - t) * product * min(h["rho_bar"], column["ratio"][k]) * delta
        if column["terminated"][k] or column["truncated"][k]:
            break
    return total


@few
@given(seeds, unit, unit, bars, bars)
def test_targets_are_the_sum_of_the_paper(seed, discount, lambda_, rho_bar, c_bar):
    rows, valid = off_policy_rows(seed)
    h: dict[str, Any] = dict(discount=discount, lambda_=lambda_, rho_bar=rho_bar, c_bar=c_bar)
    _, return_ = v_trace(**rows, **h)
    assert_valid_rows(return_, lambda t, b: target_of(rows, t, b, h), valid, abs=1e-9, rel=1e-9)


@few
@given(seeds, unit, unit, bars, bars)
def test_advantages_bootstrap_from_the_targets(seed, discount, lambda_, rho_bar, c_bar):
    rows, valid = off_policy_rows(seed)
    h: dict[str, Any] = dict(discount=discount, lambda_=lambda_, rho_bar=rho_bar, c_bar=c_bar)
    T = len(valid)

    def expected(t: int, b: int) -> float:
        r, v, following, terminated, truncated = (
            rows[name][t, b].item() for name in ("reward", "value", "next_value", "terminated", "truncated")
        )
        if not (terminated or truncated or t == T - 1):
            following = lambda_ * target_of(rows, t + 1, b, h) + (1 - lambda_) * rows["value"][t + 1, b].item()
        return r + (0.0 if terminated else discount * following) - v

    advantage, _ = v_trace(**rows, **h)
    assert_valid_rows(advantage, expected, valid, abs=1e-9, rel=1e-9)


def test_by_hand():
    ratio = torch.tensor([[2.0], [0.5], [torch.nan], [0.25], [4.0], [torch.nan], [3.0]])
    rows: dict[str, Any] = dict(HAND, value=VALUE, ratio=ratio)
    advantage, return_ = v_trace(**rows, discount=0.5, rho_bar=2.0, c_bar=1.0)
    # Row 1 bootstraps from 30, the value of the final observation; row 4 from nothing.
    v1 = 20 + 0.5 * (2 + 0.5 * 30 - 20)
    v0 = 10 + 2 * (1 + 0.5 * 20 - 10) + 0.5 * 1 * (v1 - 20)
    v4 = 50 + 2 * (4 - 50)
    v3 = 40 + 0.25 * (3 + 0.5 * 50 - 40) + 0.5 * 0.25 * (v4 - 50)
    v6 = 70 + 2 * (5 + 0.5 * BOOTSTRAP_VALUE - 70)
    assert return_[HAND_VALID, 0].tolist() == [v0, v1, v3, v4, v6]
    last = 5 + 0.5 * BOOTSTRAP_VALUE - 70
    assert advantage[HAND_VALID, 0].tolist() == [
        1 + 0.5 * v1 - 10,
        2 + 0.5 * 30 - 20,
        3 + 0.5 * v4 - 40,
        4 - 50,
        last,
    ]


@few
@given(seeds, unit, unit)
@pytest.mark.parametrize("bar", [1.0, math.inf])
def test_on_policy_it_is_gae(bar, seed, discount, lambda_):
    given_rows, valid = random_rows(seed)
    rows: dict[str, Any] = given_rows
    ratio = torch.ones(valid.shape, dtype=torch.float64)
    advantage, return_ = v_trace(**rows, ratio=ratio, discount=discount, lambda_=lambda_, rho_bar=bar, c_bar=bar)
    gae, gae_return = generalized_advantage_estimation(**rows, discount=discount, gae_lambda=lambda_)
    torch.testing.assert_close(advantage[valid], gae[valid])
    torch.testing.assert_close(return_[valid], gae_return[valid])
    by_lambda = lambda_return(**without_value(rows), discount=discount, lambda_=lambda_)
    torch.testing.assert_close(return_[valid], by_lambda[valid])


@few
@given(seeds, bars)
def test_nothing_of_invalid_rows_reaches_others(seed, bar):
    rows, valid = off_policy_rows(seed)
    clean: dict[str, Any] = {
        name: torch.where(valid, x, torch.zeros_like(x)) if x.is_floating_point() else x for name, x in rows.items()
    }
    h: dict[str, Any] = dict(discount=0.9, lambda_=0.9, rho_bar=bar, c_bar=bar)
    for x, y in zip(v_trace(**rows, **h), v_trace(**clean, **h), strict=True):
        assert x[valid].isfinite().all()
        torch.testing.assert_close(x[valid], y[valid], rtol=0, atol=0)
        assert y.isfinite().all()


@pytest.mark.parametrize("factors", [[math.inf], [math.exp(30)] * 3, [math.exp(12)] * 8, [math.inf, 0.0, math.inf]])
def test_factors_that_overflow_stay_behind_the_end_of_an_episode(factors):
    """The products of factors are built over spans that cross the end."""
    T, end = 16, 4
    zeros, flag = torch.zeros(T, 1), torch.zeros(T, 1).bool()
    rows: dict[str, Any] = dict(reward=torch.ones(T, 1), value=zeros, next_value=zeros, truncated=flag)
    rows["terminated"] = flag.clone()
    rows["terminated"][end] = True
    for begin in range(end + 1, T - len(factors) + 1):
        ratio = torch.ones(T, 1)
        ratio[begin : begin + len(factors), 0] = torch.tensor(factors)
        for x in v_trace(**rows, ratio=ratio, discount=0.9, c_bar=math.inf):
            torch.testing.assert_close(x[: end + 1, 0], torch.tensor([4.0951, 3.439, 2.71, 1.9, 1.0]))


def test_extreme_ratios():
    log_prob, old_log_prob = torch.tensor([0.0, -1e30, -2.0]), torch.tensor([-1e30, 0.0, -2.0])
    ratio = importance_ratio(log_prob.requires_grad_(), old_log_prob)
    assert ratio.isfinite().all()
    assert not ratio.requires_grad
    assert ratio[1:].tolist() == [0.0, 1.0]
    rows: dict[str, Any] = dict(reward=torch.ones(40, 1), value=torch.zeros(40, 1), next_value=torch.zeros(40, 1))
    rows |= dict.fromkeys(("terminated", "truncated"), torch.zeros(40, 1).bool())
    for x in v_trace(**rows, ratio=ratio[:1].expand(40, 1), discount=1.0):
        assert x.flatten().tolist() == list(range(40, 0, -1))


@pytest.mark.parametrize("off_policy", [True, False])
def test_float32_is_close_to_float64_over_long_rows_and_no_gradient_flows(off_policy):
    torch.manual_seed(0)
    T, B = 2048, 4
    flags: dict[str, Any] = dict(terminated=torch.rand(T, B) < 0.001, truncated=torch.rand(T, B) < 0.001)
    rows: dict[str, Any] = {name: torch.randn(T, B) for name in ("reward", "value", "next_value")}
    returns_of: Any = partial(generalized_advantage_estimation, **flags, discount=0.999, gae_lambda=0.99)
    if off_policy:
        rows["ratio"] = torch.randn(T, B).mul(0.1).exp()
        returns_of = partial(v_trace, **flags, discount=0.999, lambda_=0.99)
    before = {name: x.clone() for name, x in rows.items()}
    double: dict[str, Any] = {name: array.double() for name, array in rows.items()}
    rows["value"].requires_grad_()
    for x, y in zip(returns_of(**rows), returns_of(**double), strict=True):
        assert x.dtype == torch.float32
        assert not x.requires_grad
        torch.testing.assert_close(x.double(), y, rtol=1e-5, atol=1e-4)
    for name, x in rows.items():
        assert torch.equal(x, before[name])


def test_errors_say_what_came_and_what_was_expected():
    rows: dict[str, Any] = dict(HAND, value=VALUE, ratio=VALUE)
    with pytest.raises(ValueError, match=r"V-trace: got shapes .*ratio \(7,\).*expected all of them equal"):
        v_trace(**dict(rows, ratio=VALUE[:, 0]), discount=0.99)
    with pytest.raises(TypeError, match=r"V-trace: got terminated of dtype torch.float32; expected bool"):
        v_trace(**dict(rows, terminated=REWARD), discount=0.99)
    with pytest.raises(ValueError, match=r"importance_ratio: got shapes log_prob \(7, 1\), old_log_prob \(7,\)"):
        importance_ratio(VALUE, VALUE[:, 0])
