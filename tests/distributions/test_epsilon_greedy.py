from __future__ import annotations

import pytest
import torch

from rlpyt.distributions import EpsilonGreedy
from tests.random_kit import seeded

Q = torch.tensor([0.0, 3.0, 1.0])


def test_hand_numbers() -> None:
    noise = torch.tensor([[0.3, 0.99], [0.29, 0.99], [0.1, 0.5], [0.1, 0.0]])
    action = EpsilonGreedy(3).sample(Q, 0.3, noise)
    assert action.tolist() == [1, 2, 1, 0]
    assert action.dtype == torch.int64


def test_the_largest_uniform_is_the_last_action() -> None:
    almost_one = 1 - 2**-24
    for dim in (3, 7, 1000):
        action = EpsilonGreedy(dim).sample(torch.zeros(dim), 1.0, torch.tensor([0.0, almost_one]))
        assert action.item() == dim - 1


@pytest.mark.parametrize("lead", [(), (5,), (3, 5)])
def test_no_exploration_is_greedy_under_any_leading_dims(lead: tuple[int, ...]) -> None:
    distribution = EpsilonGreedy(3)
    q = torch.randn(*lead, 3, generator=seeded())
    noise = torch.rand(*lead, 2, generator=seeded())
    action = distribution.sample(q, 0.0, noise)
    assert action.shape == lead
    assert torch.equal(action, q.argmax(-1))


def test_an_epsilon_for_each_environment() -> None:
    distribution = EpsilonGreedy(3)
    noise = distribution.draw_noise(20_000 * 3, seeded()).reshape(20_000, 3, 2)
    action = distribution.sample(Q.expand(20_000, 3, 3), torch.tensor([0.0, 0.3, 1.0]), noise)
    greedy = (action == 1).float().mean(0)
    assert greedy.tolist() == pytest.approx([1, 0.7 + 0.1, 1 / 3], abs=0.015)
    assert (action == 0).float().mean(0).tolist() == pytest.approx([0, 0.1, 1 / 3], abs=0.015)


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ([-torch.inf, 0.0, -torch.inf, 1.0, 2.0], [0, 1 / 3, 0, 1 / 3, 1 / 3]),
        ([-torch.inf, -torch.inf, 0.0, -torch.inf, -torch.inf], [0, 0, 1, 0, 0]),
        ([-torch.inf] * 5, [1 / 5] * 5),  # as in the null observations of an example
    ],
)
def test_masked_actions_are_not_explored(q: list[float], expected: list[float]) -> None:
    noise = torch.rand(20_000, 2, generator=seeded())
    noise[:, 1][:2] = torch.tensor([0.0, 1 - 2**-24])
    rows = torch.tensor([q, [0.0] * 5]).expand(20_000, 2, 5)
    action = EpsilonGreedy(5).sample(rows, 1.0, noise[:, None].expand(20_000, 2, 2))
    for row, shares in zip(action.T, (expected, [1 / 5] * 5), strict=True):
        counts = torch.bincount(row, minlength=5) / 20_000
        assert counts.tolist() == pytest.approx(shares, abs=0.015)
        assert not counts[torch.tensor(shares) == 0].any()


def test_encode() -> None:
    assert EpsilonGreedy(3).encode(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
