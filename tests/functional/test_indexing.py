"""Indexing under zero, one and two leading dimensions."""

import pytest
import torch

from rlpyt.functional import from_onehot, select_at_indexes, to_onehot


@pytest.mark.parametrize("leading", [(), (4,), (3, 2)])
@pytest.mark.parametrize("trailing", [(), (6,), (6, 2)])
def test_select_at_indexes(leading, trailing):
    tensor = torch.randn(*leading, 5, *trailing)
    indexes = torch.randint(5, leading)
    selected = select_at_indexes(indexes.int(), tensor)
    assert selected.shape == (*leading, *trailing)
    for place in torch.ones(leading).nonzero().tolist():
        assert torch.equal(selected[tuple(place)], tensor[(*place, indexes[tuple(place)].item())])


def test_select_at_indexes_passes_gradient_to_the_selected_alone():
    q = torch.randn(3, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(select_at_indexes(torch.tensor([0, 1, 1]), q).sum(), q)
    assert gradient.tolist() == [[1, 0], [0, 1], [0, 1]]


@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 1, 5), (3, 2, 5)])
def test_select_at_indexes_refuses_to_broadcast(shape):
    with pytest.raises(ValueError, match=r"got indexes \(4, 2\) and tensor .*expected the tensor to have"):
        select_at_indexes(torch.zeros(4, 2, dtype=torch.long), torch.zeros(shape))


@pytest.mark.parametrize("index", [-1, 3])
def test_select_at_indexes_refuses_what_is_out_of_range(index):
    with pytest.raises(ValueError, match=rf"got indexes from {min(index, 1)} to {max(index, 1)}; expected 0 to 2"):
        select_at_indexes(torch.tensor([1, index]), torch.zeros(2, 3, 4))


@pytest.mark.parametrize("leading", [(), (4,), (3, 2)])
def test_onehot_there_and_back(leading):
    indexes = torch.randint(5, leading)
    onehot = to_onehot(indexes, 5, dtype=torch.float32)
    assert onehot.shape == (*leading, 5)
    assert onehot.dtype == torch.float32
    assert torch.equal(onehot.sum(-1), torch.ones(leading))
    assert torch.equal(from_onehot(onehot), indexes)
    assert to_onehot(indexes.to(torch.uint8), 5).dtype == torch.uint8
    assert from_onehot(onehot, dtype=torch.int32).dtype == torch.int32


def test_onehot_by_hand():
    assert to_onehot(torch.tensor([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert from_onehot(torch.tensor([[0, 1], [1, 0], [0, 0]]), dim=0).tolist() == [1, 0]
