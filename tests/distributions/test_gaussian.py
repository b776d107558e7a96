from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Independent, Normal, kl_divergence

from rlpyt.distributions import DistInfoStd, Gaussian, SquashedGaussian
from tests.random_kit import seeded

LEADING_DIMS: list[tuple[int, ...]] = [(), (5,), (3, 5)]
CENTER, SCALE = [1.0, 0.0], [2.0, 0.5]


def random_info(lead: tuple[int, ...], g: torch.Generator, dtype: torch.dtype = torch.float32) -> DistInfoStd:
    return DistInfoStd(*(torch.randn(*lead, 2, generator=g, dtype=dtype) for _ in range(2)))


def theirs(dist_info: DistInfoStd) -> Independent:
    center, scale = torch.tensor(CENTER), torch.tensor(SCALE)
    return Independent(Normal(center + scale * dist_info.mean, scale * dist_info.log_std.exp()), 1)


def test_hand_numbers() -> None:
    distribution = Gaussian(2, [10.0, 0.0], [2.0, 1.0])
    dist_info = DistInfoStd(torch.tensor([1.0, 0.0]), torch.tensor([0.0, math.log(3)]))
    assert distribution.mode(dist_info).tolist() == [12, 0]
    assert distribution.sample(dist_info, torch.tensor([-1.0, 2.0])).tolist() == pytest.approx([10, 6])
    # Standard deviations of the actions are 2 and 3, so z = (-1, 2).
    expected = -0.5 * (1 + 4) - math.log(2) - math.log(3) - math.log(2 * math.pi)
    assert distribution.log_prob(torch.tensor([10.0, 6.0]), dist_info).item() == pytest.approx(expected)
    entropy = math.log(2) + math.log(3) + math.log(2 * math.pi * math.e)
    assert distribution.entropy(dist_info).item() == pytest.approx(entropy)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), lead=st.sampled_from(LEADING_DIMS))
def test_equals_torch_distributions(seed: int, lead: tuple[int, ...]) -> None:
    g = seeded(seed)
    distribution = Gaussian(2, CENTER, SCALE)
    old, new = random_info(lead, g), random_info(lead, g)
    noise = distribution.draw_noise(math.prod(lead), g).reshape(*lead, 2)
    action = distribution.sample(old, noise)
    log_prob, entropy = distribution.log_prob_and_entropy(action, new)
    assert action.shape == (*lead, 2)
    assert log_prob.shape == entropy.shape == lead
    torch.testing.assert_close(log_prob, theirs(new).log_prob(action), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy, theirs(new).entropy())
    torch.testing.assert_close(distribution.kl(old, new), kl_divergence(theirs(old), theirs(new)), rtol=1e-4, atol=1e-4)


def test_bounds_of_the_space_are_minus_one_and_one() -> None:
    space = Box(np.array([-2, 0, -0.1, 3], np.float32), np.array([2, 10, 3, 3], np.float32))
    distribution = Gaussian.from_space(space)
    zero = torch.zeros(4)
    torch.testing.assert_close(distribution.mode(DistInfoStd(zero, zero)), torch.tensor([0, 5, 1.45, 3]))
    torch.testing.assert_close(distribution.mode(DistInfoStd(zero + 1, zero)), torch.tensor([2.0, 10, 3, 3]))
    torch.testing.assert_close(distribution.mode(DistInfoStd(zero - 1, zero)), torch.tensor([-2.0, 0, -0.1, 3]))
    torch.testing.assert_close(distribution.encode(torch.tensor([2.0, 10, 3, 3])), torch.tensor([1.0, 1, 1, 0]))
    assert distribution.entropy(DistInfoStd(zero, zero)).item() == pytest.approx(
        math.log(2) + math.log(5) + math.log(1.55) + 1.5 * math.log(2 * math.pi * math.e)
    )


@pytest.mark.parametrize("bound", [math.inf, 1e37])
@pytest.mark.parametrize("Distribution", [Gaussian, SquashedGaussian])
def test_refuses_bounds_that_do_not_say_how_far_to_explore(
    bound: float, Distribution: type[Gaussian] | type[SquashedGaussian]
) -> None:
    with pytest.raises(ValueError, match=r"Scaling actions to their bounds: got low .* expected finite numbers"):
        Distribution.from_space(Box(np.array([-1, -bound], np.float32), np.array([1, bound], np.float32)))


@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
@pytest.mark.parametrize("lead", LEADING_DIMS)
def test_actions_have_the_shape_of_the_space(shape: tuple[int, ...], lead: tuple[int, ...]) -> None:
    distribution = Gaussian.from_space(Box(-2, 2, shape))
    dim = math.prod(shape)
    dist_info = DistInfoStd(torch.randn(*lead, dim, generator=seeded()), torch.zeros(*lead, dim))
    noise = distribution.draw_noise(math.prod(lead), seeded(1)).reshape(*lead, dim)
    action = distribution.sample(dist_info, noise)
    assert action.shape == distribution.mode(dist_info).shape == (*lead, *shape)
    torch.testing.assert_close(distribution.encode(action), dist_info.mean + noise)
    log_prob = -0.5 * noise.square().sum(-1) - dim * (math.log(2) + 0.5 * math.log(2 * math.pi))
    torch.testing.assert_close(distribution.log_prob(action, dist_info), log_prob, rtol=1e-4, atol=1e-4)


def test_sampling_first_in_inference_mode_leaves_gradients_possible() -> None:
    """On another device than the CPU ("meta" stands for any) the units are copied there at first use."""
    distribution = Gaussian(2, CENTER, SCALE)
    mean = torch.zeros(2, device="meta", requires_grad=True)
    dist_info = DistInfoStd(mean, torch.zeros_like(mean))
    noise = torch.zeros_like(mean)
    with torch.inference_mode():
        distribution.sample(dist_info, noise)
    distribution.sample(dist_info, noise).sum().backward()
    assert mean.grad is not None


@pytest.mark.parametrize(("center", "scale"), [([0.0], [1.0, 1.0]), ([0.0, 0.0], [1.0, -1.0]), (None, [1.0])])
def test_refuses_units_that_do_not_fit(center: list[float] | None, scale: list[float]) -> None:
    with pytest.raises(ValueError, match=r"Units of 2 action dimensions: got .* expected 2 numbers"):
        Gaussian(2, center, scale)
