"""Buffers of arrays: allocated from an example, seen by numpy and torch as the same bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from rlpyt import namedarraytuple
from rlpyt.utils.arrays import (
    buffer_from_example,
    buffer_func,
    buffer_leaves,
    buffer_method,
    buffer_to,
    get_leading_dims,
    numpify_buffer,
    torchify_buffer,
)

Pair: Any = namedarraytuple("Pair", ["ale.lives", "rest"])


class Plain(NamedTuple):
    h: Any
    c: Any


EXAMPLE = Pair(np.int64(3), (np.zeros((2, 3), np.float32), None, Plain(True, Pair(torch.zeros(2), None))))


@pytest.mark.parametrize(("lead", "shape"), [(4, (4,)), ((4, 3), (4, 3)), ((), ()), ([2], (2,)), (0, (0,))])
def test_a_buffer_is_like_its_example_with_leading_dimensions(lead, shape):
    for share_memory in (False, True):
        buffer = buffer_from_example(EXAMPLE, lead, share_memory)
        assert type(buffer) is Pair
        assert type(buffer.rest) is tuple
        assert type(buffer.rest[2]) is Plain
        assert buffer.rest[1] is None
        assert [leaf.shape for leaf in buffer_leaves(buffer)] == [shape, (*shape, 2, 3), shape, (*shape, 2)]
        assert [leaf.dtype for leaf in buffer_leaves(buffer)] == [np.int64, np.float32, np.bool_, np.float32]
        assert not any(leaf.any() for leaf in buffer_leaves(buffer))


@pytest.mark.parametrize(
    ("example", "dtype"),
    [
        (1, np.int64),
        (1.0, np.float64),
        (True, np.bool_),
        (np.float32(1), np.float32),
        (np.zeros(2, np.uint8), np.uint8),
        (torch.zeros(2, dtype=torch.bfloat16), np.float32),
        (torch.zeros(2, requires_grad=True), np.float32),
        (torch.zeros((), dtype=torch.bool), np.bool_),
        ([1, 2], np.int64),
    ],
)
def test_the_dtype_is_the_examples(example, dtype):
    assert buffer_from_example(example, 2).dtype == dtype


@pytest.mark.parametrize("example", ["text", np.array(None), {"a": 1}, object(), np.array(["a", "b"])])
def test_what_is_no_number_is_refused(example):
    with pytest.raises(TypeError, match="expected numbers or booleans"):
        buffer_from_example(Pair(1, example), 2)


def test_both_libraries_see_the_same_bytes():
    buffer = buffer_from_example(EXAMPLE, 5, share_memory=True)
    as_torch = torchify_buffer(buffer)
    assert all(isinstance(leaf, torch.Tensor) for leaf in buffer_leaves(as_torch))
    buffer["ale.lives"][2] = 7
    assert as_torch["ale.lives"][2] == 7
    as_torch.rest[0][1] = 2.5
    assert (buffer.rest[0][1] == 2.5).all()
    again = numpify_buffer(as_torch)
    assert again.rest[0].__array_interface__["data"] == buffer.rest[0].__array_interface__["data"]
    assert torchify_buffer(as_torch).rest[0] is as_torch.rest[0]


def test_numpify_takes_gradients_off():
    assert numpify_buffer(torch.ones(2, requires_grad=True)).tolist() == [1, 1]
    assert numpify_buffer((1.5, None))[0].dtype == np.float64


def test_functions_go_to_every_leaf():
    buffer = Pair(np.ones(2), (np.ones(3), None))
    assert buffer_func(buffer, np.multiply, 3).rest[0].tolist() == [3, 3, 3]
    assert buffer_func(buffer, lambda x: x.shape).rest == ((3,), None)
    assert buffer_method(buffer, "sum", axis=0)["ale.lives"] == 2
    assert buffer_func(None, len) is None
    assert [leaf.size for leaf in buffer_leaves(buffer)] == [2, 3]
    assert buffer_leaves(None) == []


def test_to_a_device_copies_only_what_is_elsewhere():
    buffer = Pair(torch.ones(2), None)
    assert buffer_to(buffer, "cpu")["ale.lives"] is buffer["ale.lives"]
    assert buffer_to(buffer, "meta")["ale.lives"].device.type == "meta"


def test_only_a_copy_to_a_device_may_be_underway_when_it_is_given():
    class Leaf:
        def to(self, device: str, non_blocking: bool) -> bool:
            return non_blocking

    assert buffer_to(Pair(Leaf(), None), "cpu")["ale.lives"] is False
    assert buffer_to(Pair(Leaf(), None), torch.device("cuda:0"))["ale.lives"] is True


def test_leading_dimensions_are_those_of_every_leaf():
    buffer = Pair(np.zeros((4, 3)), (torch.zeros(4, 3, 7), None))
    assert get_leading_dims(buffer) == (4,)
    assert get_leading_dims(buffer, 2) == (4, 3)
    assert get_leading_dims(None) is None
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(4, 2\).*same for all"):
        get_leading_dims(Pair(np.zeros((4, 3)), np.zeros((4, 2))), 2)
