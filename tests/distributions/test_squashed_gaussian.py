"""The squashed Gaussian of SAC against hand numbers, float64 and integrals, out to where float32 sees no slope."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from rlpyt.distributions import DistInfoStd, SquashedGaussian
from rlpyt.distributions.squashed_gaussian import log_det_tanh
from tests.random_kit import seeded

LEADING_DIMS: list[tuple[int, ...]] = [(), (5,), (3, 5)]
ASYMMETRIC = Box(np.float32(-0.1), np.float32(3.0), (1,))


def info(mean: list[float], log_std: list[float], dtype: torch.dtype = torch.float32) -> DistInfoStd:
    return DistInfoStd(torch.tensor(mean, dtype=dtype), torch.tensor(log_std, dtype=dtype))


def log_prob_of_u(u: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """log p(tanh(u)) in float64, by the slope 1 / cosh(u)^2."""
    u, mean, log_std = u.double(), mean.double(), log_std.double()
    normal = torch.distributions.Normal(mean, log_std.exp()).log_prob(u)
    return (normal + 2 * u.cosh().log()).sum(-1)


def test_hand_numbers_in_units_of_the_bounds() -> None:
    distribution = SquashedGaussian(2)
    # u = (0.5 + 2 * 0.25, 0 - 1) = (1, -1); tanh(1) = 0.7615942, 1 - tanh(1)^2 = 0.4199743.
    x, log_prob = distribution.sample_with_log_prob(info([0.5, 0.0], [math.log(2), 0.0]), torch.tensor([0.25, -1.0]))
    assert x.tolist() == pytest.approx([0.7615942, -0.7615942])
    expected = -0.5 * (0.0625 + 1) - math.log(2) - math.log(2 * math.pi) - 2 * math.log(0.4199743)
    assert log_prob.item() == pytest.approx(expected, rel=1e-6)


def test_hand_numbers_in_the_environment_s_units() -> None:
    """Center 10 and scale 2: a is twice as spread as x, so that its density is half."""
    distribution = SquashedGaussian(1, [10.0], [2.0])
    dist_info = info([0.5], [math.log(2)])
    assert distribution.sample(dist_info, torch.tensor([0.25])).item() == pytest.approx(10 + 2 * 0.7615942)
    assert distribution.mode(dist_info).item() == pytest.approx(10 + 2 * 0.4621172)
    expected = -0.5 * 0.0625 - math.log(2) - 0.5 * math.log(2 * math.pi) - math.log(0.4199743) - math.log(2)
    assert distribution.log_prob(torch.tensor([10 + 2 * 0.7615942]), dist_info).item() == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("u", [-15.0, -12.0, -9.5, -3.0, -1e-3, 0.0, 0.5, 4.0, 8.9, 9.1, 10.1, 13.0, 15.0])
def test_log_prob_of_samples_is_exact_where_the_slope_is_zero_in_float32(u: float) -> None:
    distribution = SquashedGaussian(2)
    mean, log_std = torch.tensor([u - 0.25, 0.1]), torch.tensor([-1.0, 0.5])
    noise = torch.tensor([0.25 * math.e, -0.5])
    _, log_prob = distribution.sample_with_log_prob(DistInfoStd(mean, log_std), noise)
    u64 = mean.double() + log_std.double().exp() * noise.double()
    # Of noise itself, as (u - mean) / std is no better than float32 in u.
    normal = -0.5 * noise.double().square() - log_std.double() - 0.5 * math.log(2 * math.pi)
    expected = (normal + 2 * u64.cosh().log()).sum()
    assert log_prob.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
    if abs(u) > 9.05:
        assert torch.tensor(u).tanh().square().item() == 1.0


def test_log_det_of_tanh_over_the_whole_line() -> None:
    u = torch.linspace(-200, 200, 4001)
    result = log_det_tanh(u[:, None])
    u64 = u.double().abs()
    expected = 2 * (math.log(2) - u64 - torch.log1p((-2 * u64).exp()))  # log sech^2, written for u >= 0
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("u", [-15.0, -9.5, -2.0, 0.0, 3.0, 9.5, 15.0])
def test_gradients_of_samples_are_exact_at_the_edge_of_the_bounds(u: float) -> None:
    distribution = SquashedGaussian(1)
    mean, log_std = torch.tensor([u], requires_grad=True), torch.tensor([-2.0], requires_grad=True)
    noise = torch.tensor([0.3])
    x, log_prob = distribution.sample_with_log_prob(DistInfoStd(mean, log_std), noise)
    std = math.exp(-2.0)
    # d log p / du = 2 tanh(u), du / dmean = 1, du / dlog_std = std * noise; and -1 from log N.
    slope = 2 * math.tanh(u + std * 0.3)
    grads = torch.autograd.grad(log_prob, (mean, log_std), retain_graph=True)
    assert [g.item() for g in grads] == pytest.approx([slope, slope * std * 0.3 - 1], rel=1e-5)
    assert all(g.isfinite().all() for g in torch.autograd.grad(x.sum(), (mean, log_std)))


@pytest.mark.parametrize("action", [-0.1, 3.0, -0.1 + 1e-6, 3.0 - 1e-6, -0.2, 3.1])
def test_log_prob_and_gradients_are_finite_at_the_bounds_and_beyond(action: float) -> None:
    distribution = SquashedGaussian.from_space(ASYMMETRIC)
    mean, log_std = torch.tensor([0.3], requires_grad=True), torch.tensor([-3.0], requires_grad=True)
    log_prob = distribution.log_prob(torch.tensor([action]), DistInfoStd(mean, log_std))
    within = torch.tensor([1 - 2.0**-23]).double().copysign(torch.tensor(action) - 1.45)
    expected = log_prob_of_u(within.atanh(), mean.detach(), log_std.detach()) - math.log(1.55)
    if not -0.1 < action < 3.0:
        assert log_prob.item() == pytest.approx(expected.item(), rel=1e-5)  # that of the nearest action within
    assert log_prob.isfinite()
    assert all(g.isfinite().all() for g in torch.autograd.grad(log_prob, (mean, log_std)))


@pytest.mark.parametrize("lead", LEADING_DIMS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_log_prob_of_an_action_is_that_of_its_sample(lead: tuple[int, ...], shape: tuple[int, ...]) -> None:
    low = np.full(shape, -0.1, np.float32)
    distribution = SquashedGaussian.from_space(Box(low, np.float32(3.0) + 0 * low))
    dim, g = math.prod(shape), seeded()
    mean, log_std = 0.5 * torch.randn(*lead, dim, generator=g), -1 + 0.2 * torch.randn(*lead, dim, generator=g)
    noise = torch.randn(*lead, dim, generator=g)
    x, in_units = distribution.sample_with_log_prob(DistInfoStd(mean, log_std), noise)
    action = distribution.sample(DistInfoStd(mean, log_std), noise)
    assert action.shape == distribution.mode(DistInfoStd(mean, log_std)).shape == (*lead, *shape)
    assert x.shape == (*lead, dim)
    assert in_units.shape == lead
    torch.testing.assert_close(distribution.encode(action), x, rtol=1e-5, atol=1e-6)
    result = distribution.log_prob(action, DistInfoStd(mean, log_std))
    torch.testing.assert_close(result, in_units - dim * math.log(1.55), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        in_units.double(), log_prob_of_u(mean + log_std.exp() * noise, mean, log_std), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.2, 0.4), (0.0, 0.7), (2.0, -0.5)])
def test_the_density_integrates_to_one_over_an_asymmetric_space(mean: float, log_std: float) -> None:
    """And the mean action by the density is that of the samples. Points crowd at the bounds, where there are peaks."""
    distribution = SquashedGaussian.from_space(ASYMMETRIC)
    u = torch.linspace(-10, 10, 200_001, dtype=torch.float64)
    action = 1.45 + 1.55 * u.tanh()
    dist_info = info([mean], [log_std], torch.float64)
    density = distribution.log_prob(action[:, None], dist_info).exp()
    assert torch.trapezoid(density, action).item() == pytest.approx(1, abs=2e-3)
    samples = distribution.sample(dist_info, torch.randn(200_000, 1, generator=seeded(), dtype=torch.float64))
    assert torch.trapezoid(density * action, action).item() == pytest.approx(samples.mean().item(), abs=0.02)
    below = action <= 0.8
    share = (samples <= 0.8).double().mean().item()
    assert torch.trapezoid(density[below], action[below]).item() == pytest.approx(share, abs=5e-3)


def test_samples_keep_within_the_bounds_and_the_mode_is_their_median() -> None:
    box = Box(np.array([-0.1, -2, 0], np.float32), np.array([3, 5, 1e-3], np.float32))
    distribution = SquashedGaussian.from_space(box)
    dist_info = info([1.0, -0.5, 0.0], [1.0, 2.0, 0.5])
    action = distribution.sample(dist_info, distribution.draw_noise(100_000, seeded()))
    low, high = torch.as_tensor(box.low), torch.as_tensor(box.high)
    assert ((action >= low - 1e-6) & (action <= high + 1e-6)).all()
    assert (action.amin(0) < low + 0.01 * (high - low)).all()
    assert (action.amax(0) > high - 0.01 * (high - low)).all()
    middle = (action < distribution.mode(dist_info)).double().mean(0)
    torch.testing.assert_close(middle, torch.full((3,), 0.5).double(), atol=0.01, rtol=0)


@pytest.mark.parametrize(("given", "taken"), [(5.0, 2.0), (2.0, 2.0), (-30.0, -20.0), (-1.0, -1.0)])
def test_log_std_is_held_in_its_range_everywhere(given: float, taken: float) -> None:
    distribution, noise = SquashedGaussian(1), torch.tensor([0.5])
    outside, inside = info([0.3], [given]), info([0.3], [taken])
    action = torch.tensor([0.4])
    assert torch.equal(distribution.sample(outside, noise), distribution.sample(inside, noise))
    assert torch.equal(distribution.log_prob(action, outside), distribution.log_prob(action, inside))
    pair = (distribution.sample_with_log_prob(info, noise) for info in (outside, inside))
    assert all(torch.equal(a, b) for a, b in zip(*pair, strict=True))


def test_gradients_by_finite_differences() -> None:
    distribution, g = SquashedGaussian(2, [1.0, 0.0], [2.0, 0.5]), seeded()
    mean, log_std, noise = (torch.randn(3, 2, generator=g, dtype=torch.float64) for _ in range(3))
    action = distribution.sample(DistInfoStd(mean, log_std), noise).detach()

    def outputs(mean: torch.Tensor, log_std: torch.Tensor) -> tuple[torch.Tensor, ...]:
        new = DistInfoStd(mean, log_std)
        x, log_prob = distribution.sample_with_log_prob(new, noise)
        return x, log_prob, distribution.log_prob(action, new), distribution.sample(new, noise)

    assert torch.autograd.gradcheck(outputs, (mean.requires_grad_(), log_std.requires_grad_()))


def test_a_subclass_chooses_the_range_of_log_std() -> None:
    class Narrow(SquashedGaussian):
        min_log_std, max_log_std = -5.0, -1.0

    noise = torch.tensor([1.0])
    for log_std, clamped in ((0.0, -1), (-9.0, -5)):
        assert Narrow(1).sample(info([0.0], [log_std]), noise).item() == pytest.approx(math.tanh(math.exp(clamped)))
