from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.distributions import Categorical, DistInfoLogits, MultiCategorical
from tests.random_kit import seeded

LEADING_DIMS: list[tuple[int, ...]] = [(), (5,), (3, 5)]
PROBS = torch.tensor([1.0, 2.0, 5.0]) / 8


def info(logits: Any, dtype: torch.dtype = torch.float32) -> DistInfoLogits:
    return DistInfoLogits(torch.as_tensor(logits, dtype=dtype))


def assert_frequencies(counts: torch.Tensor, probs: torch.Tensor) -> None:
    """Pearson's statistic lies below df + 5 sqrt(2 df), which a right sampler exceeds once in some 10,000 seeds."""
    expected = probs * counts.sum()
    df = len(probs) - 1
    assert ((counts - expected) ** 2 / expected).sum() < df + 5 * math.sqrt(2 * df)


class TestCategorical:
    distribution = Categorical(3)

    def test_hand_numbers(self) -> None:
        dist_info = info([0.0, math.log(2), math.log(5)])
        entropy = -(1 / 8 * math.log(1 / 8) + 1 / 4 * math.log(1 / 4) + 5 / 8 * math.log(5 / 8))
        for action, p in enumerate([1 / 8, 1 / 4, 5 / 8]):
            assert self.distribution.log_prob(torch.tensor(action), dist_info).item() == pytest.approx(math.log(p))
        assert self.distribution.entropy(dist_info).item() == pytest.approx(entropy)
        uniform = info([7.0, 7.0, 7.0])
        assert self.distribution.entropy(uniform).item() == pytest.approx(math.log(3))
        assert self.distribution.kl(dist_info, uniform).item() == pytest.approx(math.log(3) - entropy, abs=1e-6)

    @settings(max_examples=50)
    @given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 3.0, 1e4]), lead=st.sampled_from(LEADING_DIMS))
    def test_equals_torch_distributions(self, seed: int, scale: float, lead: tuple[int, ...]) -> None:
        g = seeded(seed)
        old, new = (info(scale * torch.randn(*lead, 3, generator=g)) for _ in range(2))
        action = torch.randint(3, lead, generator=g)
        theirs = torch.distributions.Categorical(logits=new.logits)
        log_prob, entropy = self.distribution.log_prob_and_entropy(action, new)
        atol = 1e-5 + 1e-7 * scale  # of logits of thousands float32 has lost the last digits
        torch.testing.assert_close(log_prob, theirs.log_prob(action), atol=atol, rtol=1.3e-6)
        torch.testing.assert_close(entropy, theirs.entropy(), atol=atol, rtol=1e-4)
        torch.testing.assert_close(self.distribution.log_prob(action, new), log_prob)
        torch.testing.assert_close(self.distribution.entropy(new), entropy)
        # torch.distributions says infinity where a probability is too small for float32.
        log_old, log_new = (i.logits.double().log_softmax(-1) for i in (old, new))
        kl = (log_old.exp() * (log_old - log_new)).sum(-1).float()
        torch.testing.assert_close(self.distribution.kl(old, new), kl, atol=atol, rtol=1e-4)
        assert log_prob.shape == entropy.shape == lead

    @pytest.mark.parametrize("lead", LEADING_DIMS)
    def test_sample_is_a_function_of_the_noise(self, lead: tuple[int, ...]) -> None:
        dist_info = info(torch.randn(*lead, 3, generator=seeded(1)))
        noise = self.distribution.draw_noise(math.prod(lead), seeded(2)).reshape(*lead, 3)
        action = self.distribution.sample(dist_info, noise)
        assert action.shape == lead
        assert action.dtype == torch.int64
        assert torch.equal(action, self.distribution.sample(dist_info, noise))
        again = self.distribution.draw_noise(math.prod(lead), seeded(2)).reshape(*lead, 3)
        assert torch.equal(noise, again)
        assert torch.equal(self.distribution.sample(dist_info, torch.zeros(3)), self.distribution.mode(dist_info))

    def test_frequencies(self) -> None:
        n = 50_000
        action = self.distribution.sample(info(PROBS.log() + 3), self.distribution.draw_noise(n, seeded()))
        assert_frequencies(torch.bincount(action, minlength=3), PROBS)

    def test_actions_at_minus_infinity(self) -> None:
        masked = info([-math.inf, 0.0, -math.inf, 1.0])
        bare = info([0.0, 1.0])
        distribution, rest = Categorical(4), Categorical(2)
        torch.testing.assert_close(distribution.entropy(masked), rest.entropy(bare))
        torch.testing.assert_close(distribution.kl(masked, masked), torch.tensor(0.0))
        other = info([-math.inf, 2.0, -math.inf, 1.0])
        torch.testing.assert_close(distribution.kl(masked, other), rest.kl(bare, info([2.0, 1.0])))
        log_prob, _ = distribution.log_prob_and_entropy(
            torch.tensor([1, 0]), DistInfoLogits(masked.logits.expand(2, 4))
        )
        torch.testing.assert_close(log_prob, torch.tensor([-math.log(1 + math.e), -math.inf]))
        action = distribution.sample(masked, distribution.draw_noise(10_000, seeded()))
        assert set(action.tolist()) == {1, 3}

    def test_noise_is_finite_where_the_exponential_is_zero(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, generator: self.zero_())
        noise = self.distribution.draw_noise(2, seeded())
        assert noise.isfinite().all()
        assert (self.distribution.sample(info([-math.inf, -math.inf, 0.0]), noise) == 2).all()

    def test_gradients_with_masked_and_extreme_logits_are_finite(self) -> None:
        logits = torch.tensor([[-math.inf, 1e4, -1e4], [0.0, -math.inf, 500.0]], requires_grad=True)
        log_prob, entropy = self.distribution.log_prob_and_entropy(torch.tensor([1, 2]), DistInfoLogits(logits))
        (log_prob.sum() + entropy.sum()).backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()

    def test_means_leave_invalid_rows_out(self) -> None:
        logits = torch.tensor([[0.0, 0.0, 0.0], [math.nan] * 3, [0.0, 0.0, -math.inf]])
        valid = torch.tensor([True, False, True])
        uniform = DistInfoLogits(torch.zeros(3, 3))
        # KL(p || uniform) is log 3 - H(p): 0 for the first row, log 3 - log 2 for the last.
        mean = self.distribution.mean_kl(DistInfoLogits(logits), uniform, valid)
        assert mean.item() == pytest.approx((math.log(3) - math.log(2)) / 2)

    def test_actions_are_encoded_as_onehot(self) -> None:
        onehot = self.distribution.encode(torch.tensor([[2], [1]]))
        assert onehot.dtype == torch.float32
        assert onehot.tolist() == [[[0, 0, 1]], [[0, 1, 0]]]


class TestMultiCategorical:
    @pytest.mark.parametrize("dims", [[2, 3, 4], [3, 3], [2, 2, 2, 2], [1, 5]])
    @pytest.mark.parametrize("lead", LEADING_DIMS)
    def test_is_the_product_of_its_choices(self, dims: list[int], lead: tuple[int, ...]) -> None:
        g = seeded()
        distribution = MultiCategorical(dims)
        old, new = (info(3 * torch.randn(*lead, sum(dims), generator=g)) for _ in range(2))
        action = torch.stack([torch.randint(n, lead, generator=g) for n in dims], -1)
        log_prob, entropy = distribution.log_prob_and_entropy(action, new)
        singles = [Categorical(n) for n in dims]
        olds, news = ([info(x) for x in i.logits.split(dims, -1)] for i in (old, new))
        rows = list(zip(singles, olds, news, action.unbind(-1), strict=True))
        torch.testing.assert_close(log_prob, sum(s.log_prob(a, n) for s, _, n, a in rows))
        torch.testing.assert_close(entropy, sum(s.entropy(n) for s, _, n, _ in rows))
        torch.testing.assert_close(distribution.kl(old, new), sum(s.kl(o, n) for s, o, n, _ in rows))
        torch.testing.assert_close(distribution.log_prob(action, new), log_prob)
        torch.testing.assert_close(distribution.entropy(new), entropy)
        assert torch.equal(distribution.mode(new), torch.stack([s.mode(n) for s, _, n, _ in rows], -1))
        assert log_prob.shape == entropy.shape == lead

    def test_frequencies_of_pairs(self) -> None:
        first, second = torch.tensor([0.3, 0.7]), PROBS
        distribution = MultiCategorical([2, 3])
        noise = distribution.draw_noise(60_000, seeded())
        action = distribution.sample(info(torch.cat([first.log(), second.log() - 9])), noise)
        assert action.shape == (60_000, 2)
        assert_frequencies(
            torch.bincount(action @ torch.tensor([3, 1]), minlength=6), torch.outer(first, second).ravel()
        )

    @pytest.mark.parametrize("lead", LEADING_DIMS)
    def test_actions_have_the_shape_of_dims(self, lead: tuple[int, ...]) -> None:
        distribution = MultiCategorical(np.array([[2, 3], [4, 2]]))
        dist_info = info(torch.randn(*lead, 11, generator=seeded()))
        noise = distribution.draw_noise(math.prod(lead), seeded(1)).reshape(*lead, 4, 4)
        action = distribution.sample(dist_info, noise)
        assert action.shape == distribution.mode(dist_info).shape == (*lead, 2, 2)
        assert distribution.log_prob(action, dist_info).shape == lead
        onehot = distribution.encode(action)
        assert onehot.shape == (*lead, 11)
        for choice, x in zip(action.flatten(-2).unbind(-1), onehot.split([2, 3, 4, 2], -1), strict=True):
            assert torch.equal(x.argmax(-1), choice)

    def test_bits_are_accepted_as_int8(self) -> None:
        distribution = MultiCategorical([2, 2])
        bits = torch.tensor([[0, 1]], dtype=torch.int8)
        dist_info = info([[0.0, 0.0, 0.0, math.log(3)]])
        assert distribution.log_prob(bits, dist_info).item() == pytest.approx(math.log(1 / 2 * 3 / 4))
        assert distribution.encode(bits).tolist() == [[1, 0, 0, 1]]
