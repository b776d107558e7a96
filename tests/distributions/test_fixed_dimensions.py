"""A dimension whose bounds are equal is left at them, and densities are as if it were not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from rlpyt.distributions import DistInfoStd, Gaussian, SquashedGaussian

LOW, HIGH, FIXED = [-2.0, 3.0, 0.0, 7.0], [2.0, 3.0, 10.0, 7.0], [1, 3]
FREE = [0, 2]


def box(dims: list[int]) -> Box:
    return Box(np.array(LOW, np.float32)[dims], np.array(HIGH, np.float32)[dims])


@pytest.fixture(params=[Gaussian, SquashedGaussian])
def pair(request: Any) -> tuple[Any, Any]:
    """Return a distribution with fixed dimensions, and one of the others alone."""
    return request.param.from_space(box([0, 1, 2, 3])), request.param.from_space(box(FREE))


def infos(seed: int) -> DistInfoStd:
    generator = torch.Generator().manual_seed(seed)
    return DistInfoStd(torch.randn(5, 4, generator=generator), 0.3 * torch.randn(5, 4, generator=generator))


def of_free(info: DistInfoStd) -> DistInfoStd:
    return DistInfoStd(info.mean[:, FREE], info.log_std[:, FREE])


def test_actions_are_at_the_bound_and_otherwise_the_same(pair: Any) -> None:
    whole, free = pair
    info, noise = infos(0), torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    for action, other in (
        (whole.sample(info, noise), free.sample(of_free(info), noise[:, FREE])),
        (whole.mode(info), free.mode(of_free(info))),
    ):
        assert torch.equal(action[:, FIXED], torch.tensor([[3.0, 7.0]] * 5))
        assert torch.equal(action[:, FREE], other)
        x = whole.encode(action + torch.tensor([0.0, 1, 0, -5]))
        assert torch.equal(x[:, FIXED], torch.zeros(5, 2))
        assert torch.equal(x[:, FREE], free.encode(other))


def test_densities_are_those_of_the_other_dimensions(pair: Any) -> None:
    whole, free = pair
    info, new = infos(0), infos(1)
    noise = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    action = whole.sample(info, noise)
    assert (whole.dim, whole.n_free, whole.log_scale) == (4, 2, free.log_scale)
    torch.testing.assert_close(whole.log_prob(action, new), free.log_prob(action[:, FREE], of_free(new)))
    if isinstance(whole, Gaussian):
        torch.testing.assert_close(whole.kl(info, new), free.kl(of_free(info), of_free(new)))
        torch.testing.assert_close(whole.entropy(info), free.entropy(of_free(info)))
        return
    x, log_prob = whole.sample_with_log_prob(info, noise)
    other_x, other_log_prob = free.sample_with_log_prob(of_free(info), noise[:, FREE])
    torch.testing.assert_close(log_prob, other_log_prob)
    assert torch.equal(x[:, FREE], other_x)
    assert torch.equal(x[:, FIXED], torch.zeros(5, 2))


def test_gradients_are_finite_and_none_reaches_a_fixed_dimension(pair: Any) -> None:
    whole, _ = pair
    info, noise = DistInfoStd(*(x.requires_grad_() for x in infos(0))), torch.ones(5, 4)
    action = whole.sample(info, noise)
    (whole.log_prob(action, info).sum() + action.sum()).backward()
    for x in info:
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert not x.grad[:, FIXED].any()


@pytest.mark.parametrize("Cls", [Gaussian, SquashedGaussian])
def test_where_all_dimensions_are_fixed_nothing_is_left_to_chance(Cls: Any) -> None:
    distribution = Cls.from_space(box(FIXED))
    info = DistInfoStd(torch.randn(5, 2), torch.randn(5, 2))
    action = distribution.sample(info, torch.randn(5, 2))
    assert torch.equal(action, torch.tensor([[3.0, 7.0]] * 5))
    assert torch.equal(distribution.log_prob(action, info), torch.zeros(5))
