from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.spaces import (
    FloatBox,
    IntBox,
    as_gymnasium,
    check_action_space,
    leaf_spaces,
    null_action,
    null_value,
    random_value,
    subspaces,
    to_env,
    to_rows,
)
from tests.envs.env_kinds import NESTED, old_space, random_spaces


def slow_row(space: Any, value: Any) -> Any:
    """What the table in the module says, as plain nested lists of (dtype, numbers)."""
    if isinstance(space, spaces.Dict):
        return [slow_row(s, value[key]) for key, s in space.spaces.items()]
    if isinstance(space, spaces.Tuple):
        return [slow_row(s, x) for s, x in zip(space.spaces, value, strict=True)]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return "int64", (np.asarray(value) - space.start).tolist()
    dtype = str(space.dtype)
    dtype = "float32" if dtype == "float64" else dtype
    return dtype, np.asarray(value, dtype).tolist()


def plain(row: Any) -> Any:
    return [plain(x) for x in row] if isinstance(row, tuple) else (str(row.dtype), row.tolist())


def close(space: Any, a: Any, b: Any) -> bool:
    """Whether two values of the environment's form agree, up to float32."""
    parts = subspaces(space)
    if parts:
        at = (lambda v, k: v[int(k)]) if isinstance(space, spaces.Tuple) else (lambda v, k: v[k])
        return type(a) is type(b) and all(close(s, at(a, k), at(b, k)) for k, s in parts)
    return bool(np.allclose(a, b, rtol=1e-6, atol=1e-6))


@settings(max_examples=60)
@given(space=random_spaces, seed=st.integers(0, 2**31))
def test_row_form_and_back(space, seed):
    space.seed(seed)
    value = space.sample()
    row = to_rows(space)(value)
    assert plain(row) == slow_row(space, value)
    back = to_env(space)(row)
    assert space.contains(back)
    assert close(space, back, value)


@settings(max_examples=60)
@given(space=random_spaces, seed=st.integers(0, 2**31))
def test_null_value_is_zeros_of_the_same_form_as_a_sample(space, seed):
    null, sample = null_value(space), random_value(space, np.random.default_rng(seed))

    def form(row):
        return (row._fields, [form(x) for x in row]) if isinstance(row, NamedArrayTuple) else (row.shape, row.dtype)

    def is_zero(row):
        return all(is_zero(x) for x in row) if isinstance(row, tuple) else not np.any(row)

    assert form(null) == form(sample)
    assert is_zero(null)
    assert plain(sample) == plain(random_value(space, np.random.default_rng(seed)))


def test_fields_keep_the_order_and_the_names_of_the_keys():
    row = null_value(NESTED)
    assert row._fields == tuple(NESTED.spaces)
    assert "ale.lives" in row
    assert row["pair"]._fields == ("0", "1")
    assert row["image"]["pixels"].dtype == np.uint8
    assert row["zoom"].dtype == np.float32
    assert plain(pickle.loads(pickle.dumps(row))) == plain(row)


def test_rows_pass_through_without_a_copy():
    x = np.zeros((3,), np.float32)
    assert to_rows(spaces.Box(-1, 1, (3,)))(x) is x
    image = np.zeros((2, 2), np.uint8)
    assert to_rows(spaces.Box(0, 255, (2, 2), np.uint8))(image) is image


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">u2"])
def test_rows_have_the_byte_order_of_the_machine(dtype):
    space = spaces.Box(0, 9, (2,), np.dtype(dtype))
    row = to_rows(space)(np.array([1, 2], dtype))
    assert row.dtype.isnative
    assert torch.from_numpy(row).tolist() == [1, 2]
    assert torch.from_numpy(null_value(space)).tolist() == [0, 0]


def test_float64_is_stored_as_float32_and_lists_and_wider_integers_are_taken():
    row = to_rows(spaces.Box(-1, 1, (2,), np.float64))(np.array([0.1, 0.2]))
    assert row.dtype == np.float32
    assert row.tolist() == np.array([0.1, 0.2], "f4").tolist()
    assert to_rows(spaces.Box(-1, 1, (2,)))([0, 1]).dtype == np.float32
    assert to_rows(spaces.Box(0, 255, (2,), np.uint8))(np.array([0, 255])).dtype == np.uint8


@pytest.mark.parametrize(
    ("space", "value", "error", "text"),
    [
        (spaces.Box(-1, 1, (3,)), None, TypeError, r"obs: expected float32 of shape \(3,\), got NoneType"),
        (spaces.Box(-1, 1, (3,)), "abc", TypeError, "obs: expected float32.*got str"),
        (spaces.Box(-1, 1, (3,)), np.zeros(4, "f4"), ValueError, r"obs: expected shape \(3,\), got \(4,\)"),
        (
            spaces.Box(-1, 1, (3,)),
            np.array([0, np.nan, 0], "f4"),
            ValueError,
            "obs must be finite as float32, got .*nan",
        ),
        (spaces.Box(-1, 1, (2, 1)), [[np.inf], [0]], ValueError, "obs must be finite"),
        (spaces.Box(0, 9, (2,), np.uint8), np.zeros(2), TypeError, r"obs: expected uint8 .*got ndarray \(float64\)"),
        (spaces.Box(0, 9, (2,), np.uint8), np.array([0, 300]), ValueError, "from 0 to 300 do not fit into uint8"),
        (spaces.MultiBinary(2), [0, 2], ValueError, r"obs: expected zeros and ones, got \[0, 2\]"),
        (spaces.MultiBinary(2), np.array([0, -1], np.int8), ValueError, "obs: expected zeros and ones"),
        (spaces.MultiBinary(2), [True, False], None, ""),
        (spaces.Box(-1, 1, (2,)), torch.zeros(2), None, ""),
        (spaces.Box(-1, 1, (2,)), torch.zeros(2, requires_grad=True), TypeError, "got Tensor, .*expected .*detach"),
        (spaces.MultiBinary(2), [0.5, 1], TypeError, "obs: expected int8"),
        (spaces.Discrete(3, start=2), 5, ValueError, "obs: expected an integer from 2 to 4, got 5"),
        (spaces.Discrete(3), 1.0, TypeError, "obs: expected one integer, got float 1.0"),
        (
            spaces.MultiDiscrete([2, 2], start=[1, 1]),
            [1, 3],
            ValueError,
            r"from \[1 1\] to below \[3 3\], got \[1, 3\]",
        ),
        (NESTED, [1], TypeError, "obs: expected a mapping with the keys .*zoom.*, got list"),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": 1}, ValueError, r"expected the keys \['a'\], got \['b'\]"),
        (
            spaces.Dict(a=spaces.Discrete(2)),
            {"a": 2},
            ValueError,
            r"obs\['a'\]: expected an integer from 0 to 1, got 2",
        ),
        (spaces.Tuple([spaces.Discrete(2)] * 2), (0,), ValueError, "obs: expected 2 parts, got 1"),
        (spaces.Tuple([spaces.Discrete(2)] * 2), 0, TypeError, "obs: expected a tuple of 2 parts, got int"),
        (spaces.Tuple([spaces.Discrete(2)] * 2), (0, 2), ValueError, r"obs\[1\]: expected an integer"),
    ],
)
def test_a_wrong_observation_is_named(space, value, error, text):
    convert = to_rows(space, "obs")
    if error is None:
        convert(value)
        return
    with pytest.raises(error, match=text):
        convert(value)


def test_box_actions_are_clipped_per_dimension_cast_and_shaped():
    space = spaces.Box(np.array([[-1, -np.inf]], "f4"), np.array([[1, 2]], "f4"))
    action = to_env(space)(np.array([5.0, -1e9]))
    assert action.shape == (1, 2)
    assert action.dtype == np.float32
    assert action.tolist() == [[1.0, -1e9]]
    assert to_env(space)(np.array([-3, 7], "f4")).tolist() == [[-1.0, 2.0]]
    integers = to_env(spaces.Box(0, 10, (3,), np.int32))(np.array([1.7, -4.0, 11.2]))
    assert integers.tolist() == [2, 0, 10]
    assert integers.dtype == np.int32


def test_actions_are_indices_from_zero():
    action = to_env(spaces.Discrete(3, start=-1))(np.int64(0))
    assert action == -1
    assert type(action) is int
    assert to_env(spaces.MultiDiscrete([2, 3], start=[5, 0]))(np.array([1, 2])).tolist() == [6, 2]


@pytest.mark.parametrize(
    ("space", "action", "error", "text"),
    [
        (spaces.Discrete(3), 3, ValueError, "act: expected an index from 0 to 2, got 3"),
        (spaces.Discrete(3), -1, ValueError, "act: expected an index from 0 to 2, got -1"),
        (spaces.Discrete(3), np.float32(1), TypeError, "act: expected one integer, got float32"),
        (
            spaces.MultiDiscrete([2, 2]),
            [0, 2],
            ValueError,
            r"act: expected integers from 0 to below \[2 2\], got \[0, 2\]",
        ),
        (
            spaces.Box(-1, 1, (2,)),
            np.array([0, np.nan], "f4"),
            ValueError,
            "act must be finite.*Has the agent diverged",
        ),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": 9}, ValueError, r"act\['a'\]: expected an index"),
    ],
)
def test_a_wrong_action_is_named(space, action, error, text):
    with pytest.raises(error, match=text):
        to_env(space, "act")(action)


def test_the_null_action_of_a_box_is_its_centre_and_of_others_zero():
    low, high = np.array([-1, 290, -np.inf, -np.inf], np.float32), np.array([3, 300, 5, np.inf], np.float32)
    assert null_action(spaces.Box(low, high)).tolist() == [1, 295, 0, 0]
    assert null_action(spaces.Box(-2.0, 1.0, (), np.float64)).dtype == np.float32
    assert null_action(spaces.Discrete(3, start=2)) == 0
    nested = null_action(spaces.Dict({"a": spaces.Box(0, 10, (2,), np.int32), "b": spaces.MultiDiscrete([2, 3])}))
    assert [leaf.tolist() for leaf in nested] == [[5, 5], [0, 0]]


@pytest.mark.parametrize("make", [to_rows, to_env, null_value])
def test_an_unsupported_space_is_refused_with_what_is_supported(make):
    for space in (spaces.Text(5), spaces.Dict(a=spaces.Sequence(spaces.Discrete(2)))):
        with pytest.raises(TypeError, match="cannot be stored in rows; expected Box, Discrete, MultiDiscrete"):
            make(space)


def test_check_action_space():
    check_action_space(spaces.Box(-np.inf, np.inf, (2,)))
    check_action_space(NESTED)
    for low in (np.nan, 2.0):
        bad = spaces.Box(-1, 1, (2,))
        bad.low[1] = low
        with pytest.raises(ValueError, match=r"action_space\['arm'\]: every bound must be a number with low <= high"):
            check_action_space(spaces.Dict(arm=bad))


def test_bounds_that_are_too_far_apart_to_sample_from_are_named():
    for space in (
        spaces.Box(-1.7e308, 1.7e308, (1,), np.float64),
        spaces.Dict(x=spaces.Box(-1e308, 1.7e308, (1,), float)),
    ):
        with pytest.raises(
            ValueError, match=r"Sampling from the space .*Range exceeds.*expected bounds whose difference"
        ):
            random_value(space, np.random.default_rng(0))


def test_boxes_of_the_predecessor():
    assert IntBox(3, 7) == spaces.Discrete(4, start=3)
    assert IntBox(0, 256, (2, 3), "uint8") == spaces.Box(0, 255, (2, 3), np.uint8)
    assert IntBox(0, 255, (2, 3), "uint8") == spaces.Box(0, 255, (2, 3), np.uint8)  # white is a colour of images
    assert IntBox(0, 255, (2, 3)) == spaces.Box(0, 254, (2, 3), np.int32)
    assert FloatBox(-1, 1, (2,)) == spaces.Box(-1, 1, (2,), np.float32)
    assert FloatBox([-1, -2], 3) == spaces.Box(np.array([-1, -2], "f4"), np.array([3, 3], "f4"))
    assert FloatBox(0, [1, 2], dtype="float64").dtype == np.float64


def test_spaces_of_old_gym_are_known_by_their_names():
    box = old_space("Box", low=np.zeros(2, "f4"), high=np.ones(2, "f4"), shape=(2,), dtype=np.dtype("f4"))
    discrete = old_space("Discrete", n=3)
    old = old_space(
        "Dict", spaces={"box": box, "pair": old_space("Tuple", spaces=(discrete, old_space("MultiBinary", n=2)))}
    )
    assert as_gymnasium(old) == spaces.Dict(
        {"box": spaces.Box(0, 1, (2,)), "pair": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])}
    )
    assert as_gymnasium(old_space("Discrete", n=3, start=2)) == spaces.Discrete(3, start=2)
    assert as_gymnasium(old_space("MultiDiscrete", nvec=np.array([2, 3]))) == spaces.MultiDiscrete([2, 3])
    with pytest.raises(TypeError, match=r"Got Strange .* for a space; expected gymnasium's Box"):
        as_gymnasium(old_space("Strange"))
    assert as_gymnasium(space := spaces.Discrete(2)) is space
    assert isinstance(as_gymnasium(box), gymnasium.Space)


class Simplex(gymnasium.Space[Any]):
    """A space of one's own: n numbers from 0 that sum to 1."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return self.np_random.dirichlet(np.ones(self.shape or ()))


def test_a_space_of_ones_own_has_rows_of_its_shape_and_dtype() -> None:
    space = Simplex((3,), np.float64)
    row = random_value(space, np.random.default_rng(0))
    assert (row.dtype, row.shape) == (np.float32, (3,))
    assert null_action(space).tolist() == [0, 0, 0]
    action = to_env(space)(np.array([2.0, -1.0, 0.0], np.float32))
    assert action.dtype == np.float64
    assert action.tolist() == [2, -1, 0], "it has no bounds to be clipped to"
    with pytest.raises(ValueError, match="action must be finite"):
        to_env(space)(np.array([np.nan, 0, 0], np.float32))
    with pytest.raises(ValueError, match=r"expected shape \(3,\)"):
        to_rows(space)(np.zeros(2))
    parts = spaces.Dict({"a": space, "b": spaces.Discrete(2)})
    assert leaf_spaces(parts) == [space, spaces.Discrete(2)]
    shapeless: list[gymnasium.Space[Any]] = [spaces.Text(2), spaces.Sequence(spaces.Discrete(2))]
    for nameless in shapeless:
        with pytest.raises(TypeError, match="A space of your own needs a shape and a dtype of numbers"):
            to_env(nameless)
