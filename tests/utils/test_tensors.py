from __future__ import annotations

import pytest
import torch

from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.utils.tensors import infer_leading_dims, restore_leading_dims

Pair = namedarraytuple("Pair", "h c")


@pytest.mark.parametrize(
    ("lead", "expected"), [((), (0, 1, 1)), ((5,), (1, 1, 5)), ((3, 5), (2, 3, 5)), ((1, 1), (2, 1, 1))]
)
@pytest.mark.parametrize("shape", [(), (4,), (2, 6, 7)])
def test_infer_then_restore(lead: tuple[int, ...], expected: tuple[int, int, int], shape: tuple[int, ...]) -> None:
    x = torch.randn(lead + shape)
    lead_dim, T, B, rest = infer_leading_dims(x, len(shape))
    assert (lead_dim, T, B) == expected
    assert rest == shape
    flat = x.reshape(T * B, *shape)
    assert torch.equal(restore_leading_dims(flat, lead_dim, T, B), x)


def test_restore_keeps_the_structure() -> None:
    x = torch.arange(6)
    plain, (named, nothing) = restore_leading_dims((x, (Pair(x, None), None)), 2, 2, 3)
    assert plain.shape == (2, 3)
    assert type(named) is Pair
    assert named["h"].shape == (2, 3)
    assert named["c"] is None
    assert nothing is None


@pytest.mark.parametrize("shape", [(4,), (1, 2, 3, 4, 5)])
def test_refuses_other_numbers_of_leading_dims(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"infer_leading_dims: got .* 2 dimensions are data; expected \[\], \[B\]"):
        infer_leading_dims(torch.zeros(shape), 2)
