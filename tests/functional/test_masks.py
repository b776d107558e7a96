"""Masked statistics: hand numbers, and nothing from invalid places."""

import math

import pytest
import torch

from rlpyt.functional import (
    episode_start_from_valid,
    explained_variance,
    legal_choices,
    mask_illegal,
    mean_perplexity,
    valid_mean,
    valid_standardize,
    zero_invalid,
)

X = torch.tensor([[1.0, math.nan], [3.0, 8.0]])
VALID = torch.tensor([[True, False], [True, True]])


def gradient(output, x):
    return torch.autograd.grad(output, x)[0]


def test_valid_mean_by_hand():
    assert valid_mean(X, VALID).item() == 4.0
    assert valid_mean(X, VALID, dim=0).tolist() == [2.0, 8.0]
    assert valid_mean(X, VALID, dim=1).tolist() == [1.0, 5.5]
    assert valid_mean(X, VALID, dim=(0, 1)).item() == 4.0
    assert valid_mean(X[1]).item() == 5.5
    assert valid_mean(torch.eye(4), dim=0).tolist() == [0.25] * 4


def test_nothing_valid_gives_zero_value_and_zero_gradient():
    x = X.clone().requires_grad_()
    mean = valid_mean(x, torch.zeros_like(VALID))
    assert mean.item() == 0
    assert gradient(mean, x).tolist() == [[0, 0], [0, 0]]
    assert valid_mean(X, VALID & torch.tensor([True, False]), dim=0).tolist() == [2.0, 0.0]
    assert valid_standardize(X, torch.zeros_like(VALID)).tolist() == [[0, 0], [0, 0]]


def test_gradient_is_zero_at_invalid_places():
    x = X.clone().requires_grad_()
    expected = torch.tensor([[2.0, 0.0], [6.0, 16.0]]) / 3
    mean_square = valid_mean(zero_invalid(x, VALID).square(), VALID)
    torch.testing.assert_close(gradient(mean_square, x), expected)


def test_valid_standardize_by_hand():
    standard = valid_standardize(X, VALID)
    std = math.sqrt((9 + 1 + 16) / 3)
    torch.testing.assert_close(standard, torch.tensor([[-3.0, 0.0], [-1.0, 4.0]]) / std)
    assert valid_mean(standard, VALID).item() == pytest.approx(0, abs=1e-6)
    assert valid_mean(standard.square(), VALID).item() == pytest.approx(1)
    torch.testing.assert_close(valid_standardize(X[1]), torch.tensor([-1.0, 1.0]))


def test_valid_standardize_of_equal_entries_is_zero_with_finite_gradient():
    x = torch.full((5,), 7.0, requires_grad=True)
    standard = valid_standardize(x)
    assert standard.tolist() == [0] * 5
    assert gradient(standard.sum(), x).isfinite().all()
    assert valid_standardize(torch.tensor([3.0])).item() == 0


def test_explained_variance():
    return_ = torch.tensor([1.0, 2.0, 3.0, math.nan])
    valid = torch.tensor([True, True, True, False])
    assert explained_variance(return_ + 5, return_, valid).item() == pytest.approx(1)
    assert explained_variance(torch.full((4,), 9.0), return_, valid).item() == pytest.approx(0)
    assert explained_variance(-return_, return_, valid).item() == pytest.approx(-3)
    assert explained_variance(return_[:3] / 2, return_[:3]).item() == pytest.approx(0.75)
    rows = [x.reshape(2, 2) for x in (return_ + 5, return_, valid)]
    assert explained_variance(*rows).item() == pytest.approx(1)


def test_explained_variance_where_there_is_none():
    """Equal returns, one row or no row: 0 whatever the values are, and never NaN."""
    ones, values, valid = torch.ones(3, 2), torch.randn(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    assert explained_variance(values, ones).item() == 0
    assert explained_variance(ones, ones).item() == 0
    assert explained_variance(values, values, valid).item() == 0
    valid[1, 1] = True
    assert explained_variance(values, ones, valid).item() == 0


@pytest.mark.parametrize("return_", [0.1, 0.3, -99.7, 1e6 + 0.3])
@pytest.mark.parametrize("n", [3, 7, 100, 1000, 4095])
def test_explained_variance_of_equal_returns_whose_mean_is_rounded(n, return_):
    values = torch.linspace(-1, 1, n)
    assert explained_variance(values, torch.full((n,), return_)).item() == 0
    assert explained_variance(values, torch.full((n,), return_), values < 0.5).item() == 0
    almost = return_ * (1 + 1e-4 * values)
    assert explained_variance(almost + 1, almost).item() == pytest.approx(1, abs=0.01)


def test_perplexity_is_of_the_valid_rows_and_does_not_overflow():
    entropy = torch.tensor([math.log(4), math.log(2), 1e4], requires_grad=True)
    perplexity = mean_perplexity(entropy, torch.tensor([True, True, False]))
    assert perplexity.item() == pytest.approx(3)
    assert not perplexity.requires_grad
    assert mean_perplexity(torch.full((10_000,), 1e4)).isfinite()


def test_episode_start_follows_the_final_row():
    valid = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1], [1, 0]]) != 0
    expected = torch.tensor([[0, 0], [0, 1], [0, 0], [1, 0], [0, 0]]) != 0
    assert torch.equal(episode_start_from_valid(valid), expected)
    assert episode_start_from_valid(valid[:1]).tolist() == [[False, False]]
    # Where final observations have no rows, the row after the end of an episode begins another, too.
    done = torch.tensor([[1, 1], [0, 1], [1, 0], [0, 0], [0, 0]]) != 0
    expected = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]]) != 0
    assert torch.equal(episode_start_from_valid(valid, done), expected)


def test_errors():
    with pytest.raises(ValueError, match=r"got shapes x \(2, 2\), valid \(2,\); expected all of them equal"):
        valid_mean(X, VALID[0])
    with pytest.raises(TypeError, match=r"got valid of dtype torch.float32; expected bool. Convert"):
        valid_mean(X, VALID.float())
    with pytest.raises(TypeError, match="episode_start_from_valid: got valid"):
        episode_start_from_valid(VALID.float())
    with pytest.raises(ValueError, match=r"explained_variance: got shapes value \(2,\), return_ \(2, 1\)"):
        explained_variance(torch.ones(2), torch.ones(2, 1))


def test_legal_choices_by_hand():
    mask = torch.tensor([[1, 0, 0, 1, 1], [0, 0, 0, 2, 0], [0, 0, 0, 0, 0]])
    assert legal_choices(mask, [5]).int().tolist() == [[1, 0, 0, 1, 1], [0, 0, 0, 1, 0], [1, 1, 1, 1, 1]]
    assert legal_choices(mask, [2, 3]).int().tolist() == [[1, 0, 0, 1, 1], [1, 1, 0, 1, 0], [1, 1, 1, 1, 1]]
    assert torch.equal(legal_choices(mask.bool(), [2, 3]), legal_choices(mask, [2, 3]))
    with pytest.raises(ValueError, match=r"a mask of \(3, 5\) and choices of \[2, 2\] actions; expected 4"):
        legal_choices(mask, [2, 2])


def test_illegal_logits_have_no_probability_and_no_gradient():
    x = torch.tensor([[1.0, 5.0, 1.0], [0.0, math.inf, 2.0]], requires_grad=True)
    masked = mask_illegal(x, torch.tensor([[True, False, True], [True, False, True]]))
    assert masked.softmax(-1)[0].tolist() == [0.5, 0.0, 0.5]
    (slope,) = torch.autograd.grad(masked.log_softmax(-1)[:, 0].sum(), x)
    assert slope[0].tolist() == [0.5, 0.0, -0.5]
    assert slope[:, 1].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="mask_illegal"):
        mask_illegal(x, torch.ones(3, dtype=torch.bool))
    with pytest.raises(TypeError, match="expected bool"):
        mask_illegal(x, torch.ones(2, 3))
