"""Priorities of sequences: hand numbers, loops over the valid rows, bad input."""

import math

import pytest
import torch

from rlpyt import functional as F


def priority_by_loops(td_abs_error, valid, eta):
    priorities = []
    for b in range(valid.shape[1]):
        errors = [td_abs_error[t, b].item() for t in range(len(valid)) if valid[t, b]]
        priorities.append(eta * max(errors) + (1 - eta) * sum(errors) / len(errors) if errors else 0.0)
    return priorities


def test_hand_numbers():
    error = torch.tensor([[1.0, 4.0], [2.0, 0.0], [6.0, 100.0]])
    valid = torch.tensor([[True, True], [True, True], [True, False]])
    assert F.sequence_priority(error, valid, 0.5).tolist() == [0.5 * 6 + 0.5 * 3, 0.5 * 4 + 0.5 * 2]
    torch.testing.assert_close(F.sequence_priority(error, valid, 0.9), torch.tensor([5.7, 3.8]))
    assert F.sequence_priority(error, valid, 0.0).tolist() == [3.0, 2.0]
    assert F.sequence_priority(error, valid, 1.0).tolist() == [6.0, 4.0]


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("T", [1, 2, 9])
def test_random_numbers_against_loops(T, eta):
    g = torch.Generator().manual_seed(T)
    error = torch.rand(T, 40, generator=g) * 10
    valid = torch.rand(T, 40, generator=g) < 0.6
    valid[:, 0] = False
    priority = F.sequence_priority(error.requires_grad_(), valid, eta)
    assert not priority.requires_grad
    assert priority.shape == (40,)
    assert priority.tolist() == pytest.approx(priority_by_loops(error, valid, eta), rel=1e-5)


def test_what_stands_in_invalid_rows_does_not_matter():
    error = torch.tensor([[1.0, 2.0], [math.nan, math.inf]])
    valid = torch.tensor([[True, True], [False, False]])
    assert F.sequence_priority(error, valid, 0.5).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("eta", [-0.1, 1.1, math.nan])
def test_refuses_eta_out_of_range(eta):
    with pytest.raises(ValueError, match=rf"sequence_priority: got eta={eta}; expected a number in \[0, 1\]"):
        F.sequence_priority(torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool), eta)


def test_refuses_other_shapes_and_masks_that_are_not_bool():
    with pytest.raises(ValueError, match=r"sequence_priority: got shapes td_abs_error \(2, 2\), valid \(2, 1\)"):
        F.sequence_priority(torch.zeros(2, 2), torch.ones(2, 1, dtype=torch.bool), 0.9)
    with pytest.raises(TypeError, match="valid of dtype"):
        F.sequence_priority(torch.zeros(2, 2), torch.ones(2, 2), 0.9)
