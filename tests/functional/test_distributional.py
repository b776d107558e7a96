"""Losses over distributions of the return, and its scale: hand numbers, loops in float64, torch.distributions."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from rlpyt import functional as F


def projection_by_loops(z, p, V_min, V_max):
    """Return equation 7 of arXiv:1707.06887, one pair of atoms at a time, in Python floats."""
    N = len(z)
    dz = (V_max - V_min) / (N - 1)
    projected = [0.0] * N
    for i in range(N):
        for j in range(N):
            distance = abs(min(max(z[j], V_min), V_max) - (V_min + i * dz))
            projected[i] += min(max(1 - distance / dz, 0.0), 1.0) * p[j]
    return projected


def probabilities(*shape):
    return torch.randn(shape).mul(2).softmax(-1)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def test_midpoints():
    assert F.midpoints(1).tolist() == [0.5]
    assert F.midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]
    assert F.midpoints(3, torch.device("meta")).device.type == "meta"
    assert F.midpoints(3).dtype == torch.float32


class TestProjection:
    def test_hand_numbers(self):
        z, p = torch.tensor([0.5, 1.0, 5.0]), torch.tensor([0.5, 0.25, 0.25])
        assert F.categorical_projection(z, p, 0.0, 2.0).tolist() == [0.25, 0.5, 0.25]
        z = torch.tensor([-3.0, 0.25, 1.75])
        assert F.categorical_projection(z, p, -2.0, 2.0).tolist() == [0.5, 0.25 * 0.875 + 0.25 * 0.125, 0.25]

    @pytest.mark.parametrize("N", [2, 3, 11, 51])
    @pytest.mark.parametrize(("V_min", "V_max"), [(-10.0, 10.0), (0.0, 1.0), (-0.3, 7.7), (100.0, 103.0)])
    def test_random_atoms_against_loops(self, N, V_min, V_max):
        atoms = torch.linspace(V_min, V_max, N, dtype=torch.float64)
        width = V_max - V_min
        z = torch.stack(
            [
                atoms,  # on themselves
                atoms[torch.randint(N, (N,))],  # several on the same one
                V_min + width * torch.rand(N, dtype=torch.float64),
                V_min + width * (3 * torch.rand(N, dtype=torch.float64) - 1),  # two thirds outside
                torch.full((N,), V_max + 1.0, dtype=torch.float64),
                torch.full((N,), V_min - 1e6, dtype=torch.float64),
            ]
        )
        p = probabilities(*z.shape).double()
        expected = torch.tensor(
            [projection_by_loops(a, b, V_min, V_max) for a, b in zip(z.tolist(), p.tolist(), strict=True)],
            dtype=torch.float64,
        )
        torch.testing.assert_close(F.categorical_projection(z, p, V_min, V_max), expected, rtol=0, atol=1e-12)
        single = F.categorical_projection(z.float(), p.float(), V_min, V_max)
        assert single.dtype == torch.float32
        # One rounding of z, in units of the distance between atoms.
        atol = 1e-6 + 2e-7 * N * max(abs(V_min), abs(V_max)) / width
        torch.testing.assert_close(single, expected.float(), rtol=0, atol=atol)
        torch.testing.assert_close(expected[0], p[0], rtol=0, atol=1e-12)

    def test_probabilities_stay_probabilities_whatever_the_range(self):
        # In float32 a range such as this one puts V_max above the last atom, by the rounding of the division.
        rng = np.random.default_rng(0)
        for _ in range(300):
            V_min, width, N = float(rng.uniform(-20, 5)), float(rng.uniform(0.1, 30)), int(rng.integers(2, 80))
            V_max = V_min + width
            z = torch.cat([torch.full((1, N), V_max), V_min + width * torch.rand(3, N) * 2])
            projected = F.categorical_projection(z, probabilities(4, N), V_min, V_max)
            assert (projected >= 0).all()
            torch.testing.assert_close(projected.sum(-1), torch.ones(4))
            assert F.entropy_of(projected).isfinite().all()

    def test_a_nan_comes_out_as_a_nan_and_not_as_an_index_out_of_range(self):
        z = torch.tensor([[math.nan, 1.0, 1.0], [0.0, 1.0, 2.0]])
        projected = F.categorical_projection(z, torch.full((2, 3), 1 / 3), 0.0, 2.0)
        assert projected[0].isnan().any()
        torch.testing.assert_close(projected[1], torch.full((3,), 1 / 3))

    @pytest.mark.parametrize(("N", "V_min", "V_max"), [(3, 1.0, 1.0), (3, 2.0, 1.0), (3, math.nan, 1.0), (1, 0.0, 1.0)])
    def test_refuses_a_range_without_atoms(self, N, V_min, V_max):
        with pytest.raises(ValueError, match=rf"V_min={V_min}, V_max={V_max} and {N} atoms; expected V_min below"):
            F.categorical_projection(torch.zeros(2, N), torch.zeros(2, N), V_min, V_max)

    def test_refuses_other_shapes(self):
        with pytest.raises(ValueError, match=r"categorical_projection: got shapes z \(1, 3\), p \(2, 3\)"):
            F.categorical_projection(torch.zeros(1, 3), torch.zeros(2, 3), 0.0, 1.0)


class TestCategoricalLoss:
    def test_hand_numbers(self):
        logits, p = torch.tensor([0.0, math.log(3.0)]), torch.tensor([0.5, 0.5])
        assert F.categorical_loss(logits, p).item() == pytest.approx(-0.5 * math.log(0.25) - 0.5 * math.log(0.75))

    @pytest.mark.parametrize("lead", [(), (4,), (3, 4)])
    def test_loss_and_gradient_against_torch_distributions(self, lead):
        logits = torch.randn(*lead, 7, dtype=torch.float64, requires_grad=True)
        p = probabilities(*lead, 7).double().requires_grad_()
        loss = F.categorical_loss(logits, p)
        target = Categorical(p.detach())
        expected = kl_divergence(target, Categorical(logits=logits)) + target.entropy()
        assert loss.shape == lead
        torch.testing.assert_close(loss, expected)
        loss.sum().backward()
        assert p.grad is None
        torch.testing.assert_close(logits.grad, logits.detach().softmax(-1) - p.detach())

    def test_entropy(self):
        p = probabilities(3, 4, 9)
        torch.testing.assert_close(F.entropy_of(p), Categorical(p).entropy())
        assert F.entropy_of(torch.tensor([[0.0, 1.0], [0.5, 0.5]])).tolist() == pytest.approx([0, math.log(2)])
        assert not F.entropy_of(p.requires_grad_()).requires_grad

    def test_refuses_other_shapes(self):
        with pytest.raises(ValueError, match=r"categorical_loss: got shapes logits \(2, 3\), target_p \(1, 3\)"):
            F.categorical_loss(torch.zeros(2, 3), torch.zeros(1, 3))


def quantile_loss_by_loops(quantiles, tau, target, delta_clip):
    """Return equation 10 of arXiv:1710.10044 and its gradient in one row, in Python floats."""
    loss, gradient = 0.0, [0.0] * len(quantiles)
    for i, (theta, fraction) in enumerate(zip(quantiles, tau, strict=True)):
        for goal in target:
            u = goal - theta
            weight = 1 - fraction if u < 0 else fraction
            if delta_clip is None:
                size, slope = abs(u), math.copysign(1.0, u)
            elif abs(u) <= delta_clip:
                size, slope = 0.5 * u**2 / delta_clip, u / delta_clip
            else:
                size, slope = abs(u) - 0.5 * delta_clip, math.copysign(1.0, u)
            loss += weight * size / len(target)
            gradient[i] -= weight * slope / len(target)
    return loss, gradient


class TestQuantileHuberLoss:
    @pytest.mark.parametrize(("delta_clip", "expected"), [(1.0, 0.875), (2.0, 0.625), (None, 1.25)])
    def test_hand_numbers_with_errors_of_both_signs(self, delta_clip, expected):
        # u is [[1, 4], [-2, 1]], the weights [[1/4, 1/4], [1/4, 3/4]].
        quantiles, tau, target = torch.tensor([0.0, 3.0]), torch.tensor([0.25, 0.75]), torch.tensor([1.0, 4.0])
        assert F.quantile_huber_loss(quantiles, tau, target, delta_clip).item() == expected

    @pytest.mark.parametrize("delta_clip", [1.0, 0.1, 3.0, None])
    @pytest.mark.parametrize(("N", "M"), [(1, 1), (4, 4), (5, 3), (2, 6)])
    @pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
    def test_random_numbers_against_loops(self, delta_clip, N, M, lead):
        quantiles = (2 * torch.randn(*lead, N, dtype=torch.float64)).requires_grad_()
        tau = torch.rand(*lead, N, dtype=torch.float64)
        target = (2 * torch.randn(*lead, M, dtype=torch.float64)).requires_grad_()
        loss = F.quantile_huber_loss(quantiles, tau, target, delta_clip)
        assert loss.shape == lead
        one_tau = tau.flatten()[:N]
        for_all = F.quantile_huber_loss(quantiles, one_tau, target, delta_clip)
        assert torch.equal(for_all, F.quantile_huber_loss(quantiles, one_tau.expand(*lead, N), target, delta_clip))
        loss.sum().backward()
        assert target.grad is None
        assert quantiles.grad is not None
        for index in np.ndindex(lead):
            row = quantiles[index].tolist(), tau[index].tolist(), target[index].tolist()
            expected, gradient = quantile_loss_by_loops(*row, delta_clip)
            assert loss[index].item() == pytest.approx(expected, rel=1e-9)
            assert quantiles.grad[index].tolist() == pytest.approx(gradient, rel=1e-9)

    @pytest.mark.parametrize(
        ("quantiles", "tau", "target"),
        [((2, 3), (2,), (2, 3)), ((2, 3), (1, 3), (2, 3)), ((2, 3), (3,), (3,)), ((2, 3), (3,), (1, 3))],
    )
    def test_refuses_what_would_be_broadcast(self, quantiles, tau, target):
        with pytest.raises(ValueError, match=r"quantile_huber_loss: got quantiles \(2, 3\).* same leading dimensions"):
            F.quantile_huber_loss(torch.zeros(quantiles), torch.zeros(tau), torch.zeros(target))


@pytest.mark.parametrize("eps", [0.0, 1e-3, 1e-2])
class TestValueRescale:
    def numbers(self):
        size = torch.logspace(-6, 6, 2001)
        return torch.cat([-size.flip(0), torch.zeros(1), size])

    def test_hand_numbers(self, eps):
        x = torch.tensor([0.0, 3.0, -3.0, 8.0, -99.0, 0.5625])
        h = torch.tensor([0.0, 1.0, -1.0, 2.0, -9.0, 0.25]) + eps * x
        torch.testing.assert_close(F.value_rescale(x, eps), h)
        torch.testing.assert_close(F.value_rescale_inverse(h, eps), x)

    def test_the_formula_of_the_paper_in_float64(self, eps):
        x = self.numbers()
        h = [math.copysign(math.sqrt(abs(v) + 1) - 1, v) + eps * v for v in x.tolist()]
        expected = torch.tensor(h, dtype=torch.float64)
        torch.testing.assert_close(F.value_rescale(x.double(), eps), expected, rtol=1e-8, atol=1e-15)
        torch.testing.assert_close(F.value_rescale(x, eps).double(), expected, rtol=1e-6, atol=0)

    def test_the_inverse_in_float32_over_twelve_orders_of_magnitude(self, eps):
        x = self.numbers()
        h = F.value_rescale(x, eps)
        assert h.dtype == torch.float32
        torch.testing.assert_close(F.value_rescale_inverse(h, eps), x, rtol=1e-6, atol=0)
        y = x[x.abs() < 1e3]
        torch.testing.assert_close(F.value_rescale(F.value_rescale_inverse(y, eps), eps), y, rtol=1e-6, atol=0)
