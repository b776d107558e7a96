"""Named array tuples: one index reads or writes every field, whatever it is made of."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import types
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils import _pytree

from rlpyt import NamedArrayTuple, namedarraytuple
from rlpyt.namedarraytuple import _type_of

Item = TypeVar("Item")
ByCall: Any = namedarraytuple("ByCall", ["x", "y"])
Odd: Any = namedarraytuple("Odd", ["ale.lives", "count", "class", "_private", "0", "items"])


class ByClass(NamedArrayTuple):
    """A docstring."""

    x: Any
    y: Any
    z: Any = None

    def total(self) -> Any:
        return self.x.sum() + self.y.sum()

    @property
    def twice(self) -> Any:
        return 2 * self.x


def make(kind: Any, lead: tuple[int, ...] = (4, 3)) -> Any:
    size = int(np.prod(lead))
    x, y = np.arange(size, dtype=np.float32).reshape(lead), np.arange(2 * size).reshape((*lead, 2))
    return ByCall(x, y) if kind is np else ByCall(torch.from_numpy(x), torch.from_numpy(y))


# ---- making ----


def test_both_syntaxes_are_tuples_with_names():
    a: Any
    for a in (ByCall(1, 2), ByClass(1, 2, 3)):
        assert issubclass(type(a), tuple)
        assert a.x == a["x"] == a.get(0) == 1
        assert list(a)[:2] == [1, 2]
        assert "x" in a
        assert "w" not in a
        assert 1 not in a
        assert dict(a.items()) == a._asdict()
    x, y = ByCall(1, 2)
    assert (x, y) == (1, 2)
    assert repr(ByCall(1, None)) == "ByCall(x=1, y=None)"
    assert ByCall._fields == ("x", "y")
    assert ByClass.__doc__ == "A docstring."


def test_the_same_names_give_the_same_type_and_others_do_not():
    assert namedarraytuple("T", ["a", "b"]) is namedarraytuple("T", "a b")
    assert namedarraytuple("T", ["b", "a"]) is not namedarraytuple("T", ["a", "b"])


def test_defaults_and_keywords():
    assert ByClass(1, 2) == (1, 2, None)
    assert ByClass(y=2, x=1) == (1, 2, None)
    assert ByClass(1, z=3, y=2) == (1, 2, 3)
    assert ByClass._field_defaults == {"z": None}
    assert ByClass(1, 2)._replace(z=5) == (1, 2, 5)
    assert ByClass._make([1, 2, 3]) == (1, 2, 3)


class Longer(ByClass):
    w: Any = 7


def test_a_subclass_adds_fields_to_those_it_inherits():
    assert Longer._fields == ("x", "y", "z", "w")
    a = Longer(1, 2)
    assert (a.x, a.y, a.z, a.w) == (1, 2, None, 7)
    assert Longer(1, 2, w=3)["w"] == 3
    assert ByClass._fields == ("x", "y", "z")


def test_a_base_beside_it_is_told_of_the_subclass():
    """As Python does of every class: without it a generic one would have no parameters."""

    class Pair(NamedArrayTuple, Generic[Item]):
        x: Item

    assert vars(Pair)["__parameters__"] == (Item,)
    assert Pair[int](3) == Pair(3)


def test_class_variables_are_no_fields():
    class WithConstant(NamedArrayTuple):
        x: Any
        UNIT: ClassVar[str] = "m"

    assert WithConstant._fields == ("x",)
    assert WithConstant(1).UNIT == "m"


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,), {}, r"ByCall takes the fields \['x', 'y'\].*missing \['y'\]"),
        ((1, 2, 3), {}, "got 3 by position"),
        ((1, 2), {"w": 3}, r"unknown or given twice \['w'\]"),
        ((1, 2), {"x": 3}, r"given twice \['x'\]"),
    ],
)
def test_wrong_arguments_say_which(args, kwargs, message):
    with pytest.raises(TypeError, match=message):
        ByCall(*args, **kwargs)


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match="all different"):
        namedarraytuple("T", ["a", "a"])
    with pytest.raises(ValueError, match="at least one"):
        namedarraytuple("T", [])
    with pytest.raises(TypeError, match="must be strings"):
        namedarraytuple("T", ["a", 1])  # type: ignore[list-item]


# ---- names that are no identifiers ----


def test_any_string_is_a_name():
    a = Odd(*[np.arange(i, i + 3) for i in range(6)])
    assert [a[name].tolist() for name in Odd._fields] == [list(range(i, i + 3)) for i in range(6)]
    assert a[1]["ale.lives"] == 1
    assert a[1]["0"] == 5
    assert a[1:3]["class"].tolist() == [3, 4]
    # The methods of a tuple stay what they are.
    assert callable(a.count)
    assert [name for name, _ in a.items()] == list(Odd._fields)
    assert tuple(a._asdict()) == Odd._fields


def test_an_unknown_name_lists_the_names_there_are():
    with pytest.raises(KeyError, match=r"ByCall has no field 'w'; its fields are \['x', 'y'\]"):
        ByCall(1, 2)["w"]
    with pytest.raises(AttributeError):
        ByCall(1, 2).w  # noqa: B018


def test_a_field_cannot_be_rebound():
    with pytest.raises(TypeError, match="cannot be rebound"):
        ByCall(1, 2)["x"] = 3
    for x in (ByCall(1, 2), ByClass(1, 2)):
        for name in ("x", "new"):
            with pytest.raises(AttributeError, match=f"the attribute '{name}' cannot be set"):
                setattr(x, name, 3)


@pytest.mark.parametrize("name", ["count", "index", "get", "items"])
def test_a_class_cannot_hide_a_field_behind_a_method_of_tuples(name):
    # A class attribute of that name would be read instead of the field, without a word.
    with pytest.raises(TypeError, match=name):
        types.new_class(
            "Bad", (NamedArrayTuple,), exec_body=lambda ns: ns.update(__annotations__={name: Any}, **{name: 5})
        )


# ---- reading ----


@pytest.mark.parametrize("kind", [np, torch])
@pytest.mark.parametrize(
    "key", [0, -1, slice(1, 3), (2, 1), (slice(None), 1), ..., None, [0, 2], ([0, 1], [1, 2])], ids=str
)
def test_one_index_reads_every_field(kind, key):
    a = make(kind)
    b = a[key]
    assert type(b) is ByCall
    for name in ("x", "y"):
        assert np.array_equal(b[name], a[name][key])


def test_none_is_an_empty_place_at_any_depth():
    a = ByClass(np.arange(3), ByCall(None, np.arange(3)))
    b = a[1]
    assert (b.x, b.y.x, b.y.y, b.z) == (1, None, 1, None)
    a[0] = ByClass(5, ByCall(None, 6), 7)
    assert (a.x[0], a.y.y[0]) == (5, 6)


def test_a_bad_index_names_the_field_and_its_shape():
    with pytest.raises(IndexError, match=r"ByCall.x shape \(4, 3\) float32 cannot be read at 7"):
        make(np)[7]
    with pytest.raises(IndexError, match=r"ByCall.y ByCall cannot be read at \(0, 3\): ByCall.x shape \(4, 3\)"):
        ByCall(np.zeros((4, 4)), make(np))[0, 3]


class PlainPair(NamedTuple):
    h: Any
    c: Any


@pytest.mark.parametrize("pair", [(np.zeros((4, 3)), np.ones((4, 3))), PlainPair(np.zeros((4, 3)), np.ones((4, 3)))])
def test_a_plain_tuple_as_a_field_is_indexed_like_the_others(pair):
    # Left to itself a plain tuple would answer x[1] with its second element, for every row alike.
    a = ByCall(np.zeros((4, 3)), pair)
    b = a[1]
    assert type(b.y) is type(pair)
    assert [leaf.shape for leaf in b.y] == [(3,), (3,)]
    a[2] = ByCall(5, type(pair)(6, 7) if isinstance(pair, PlainPair) else (6, 7))
    assert (pair[0][2] == 6).all()
    assert (pair[1][2] == 7).all()
    assert (pair[1][1] == 1).all()


# ---- writing ----


@pytest.mark.parametrize("kind", [np, torch])
@pytest.mark.parametrize("key", [0, slice(1, 3), (2, 1), (slice(None), 1), [0, 2]], ids=str)
def test_one_index_writes_every_field(kind, key):
    a = make(kind)
    value = a[key]
    doubled = ByCall(value.x * 2, value.y * 2)
    others = copy.deepcopy(a)
    a[key] = doubled
    assert np.array_equal(a[key].x, doubled.x)
    assert np.array_equal(a[key].y, doubled.y)
    others[key] = 0
    zeroed = copy.deepcopy(a)
    zeroed[key] = 0
    assert np.array_equal(zeroed.x, others.x), "rows outside of the index were written"


def test_sources_may_be_tuples_mappings_and_scalars():
    a = make(np)
    a[0] = (np.full(3, 5.0), np.full((3, 2), 6))
    assert (a.x[0] == 5).all()
    a[0] = {"y": 8, "x": 7}
    assert (a.x[0] == 7).all()
    assert (a.y[0] == 8).all()
    a[:] = 0
    assert not a.x.any()
    assert not a.y.any()


def test_nested_mappings_fill_nested_tuples():
    a = Odd(*[np.zeros(3) for _ in range(5)], make(np, (3,)))
    a[1] = {**{name: i for i, name in enumerate(Odd._fields)}, "items": {"x": 5, "y": [6, 7]}}
    assert a["class"].tolist() == [0, 2, 0]
    assert a["items"].y.tolist()[1] == [6, 7]


def test_numpy_takes_from_torch_and_torch_from_numpy():
    a, b = make(np), make(torch)
    a[0] = b[3]
    assert a.x[0].tolist() == [9, 10, 11]
    b[0] = ByCall(torch.from_numpy(a.x[2]), torch.from_numpy(a.y[2]))
    assert b.x[0].tolist() == [6, 7, 8]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1, 2, 3), r"the value has the fields .*length 3\), expected \['x', 'y'\]"),
        (namedarraytuple("Other", "y x")(1, 2), r"fields \['y', 'x'\] .*expected \['x', 'y'\]"),
        ({"x": 1}, r"keys \['x'\], expected \['x', 'y'\]"),
        ({"x": 1, "y": 2, "z": 3}, r"keys \['x', 'y', 'z'\]"),
        ((np.zeros(2), 0), r"ByCall.x at 1: expects shape \(3,\), got shape \(2,\) float64"),
        ((0, np.zeros((3, 3))), r"ByCall.y at 1: expects shape \(3, 2\), got shape \(3, 3\)"),
    ],
)
def test_a_source_that_does_not_fit_names_field_and_shapes(value, message):
    with pytest.raises(ValueError, match=message):
        make(np)[1] = value
    if type(value) is tuple:
        value = tuple(torch.as_tensor(x, dtype=torch.float64) for x in value)
    with pytest.raises((ValueError, RuntimeError), match=message.replace("float64", "torch.float64")):
        make(torch)[1] = value


def test_a_misfit_in_a_nested_tuple_names_the_path():
    a = ByCall(np.zeros(4), make(np))
    with pytest.raises(ValueError, match=r"ByCall.y at 0: \(ByCall.x at 0: expects shape \(3,\), got shape \(2,\)"):
        a[0] = (0, (np.zeros(2), 0))
    with pytest.raises(IndexError, match=r"ByCall.x at 9: expects an index into shape \(4,\)"):
        a[9] = 0


# ---- pickling, copying, trees ----


@pytest.mark.parametrize("a", [ByCall(1, (2, 3)), ByClass(1, ByCall(2, None)), Longer(1, 2)], ids=repr)
def test_pickled_and_copied_tuples_are_equal_and_of_the_same_type(a):
    for b in (pickle.loads(pickle.dumps(a)), copy.copy(a), copy.deepcopy(a), cloudpickle.loads(cloudpickle.dumps(a))):
        assert b == a
        assert type(b) is type(a)


def test_a_type_made_by_a_call_is_made_again_by_a_process_that_does_not_have_it(monkeypatch):
    data = pickle.dumps(namedarraytuple("NowhereElse", ["ale.lives", "nested"])(np.arange(3), make(np, (3,))))
    monkeypatch.setattr(sys.modules["rlpyt.namedarraytuple"], "_type_of", _type_of.__wrapped__)
    a = pickle.loads(data)
    assert (type(a).__name__, a._fields) == ("NowhereElse", ("ale.lives", "nested"))
    assert a[1]["ale.lives"] == 1
    assert a[0:2]["nested"].x.tolist() == [0, 1]


def test_a_class_of_a_script_or_function_is_sent_by_value():
    class Local(NamedArrayTuple):
        x: Any
        y: Any = None

        def double(self) -> Any:
            return 2 * self.x

    data = cloudpickle.dumps(Local(np.arange(3)))
    b = pickle.loads(data)
    assert b[1].x == 1
    assert type(b)._fields == ("x", "y")
    assert b.double().tolist() == [0, 2, 4]
    assert type(b)(5) == (5, None)


@pytest.mark.parametrize("a", [make(torch), ByClass(torch.ones(2), make(torch)), Longer(torch.ones(2), None)])
def test_torch_walks_the_tree(a):
    doubled = _pytree.tree_map(lambda x: x * 2 if isinstance(x, torch.Tensor) else x, a)
    assert type(doubled) is type(a)
    leaves = [x for x in _pytree.tree_leaves(a) if isinstance(x, torch.Tensor)]
    twice = [x for x in _pytree.tree_leaves(doubled) if isinstance(x, torch.Tensor)]
    assert leaves
    assert len(twice) == len(leaves)
    assert all(torch.equal(y, 2 * x) for x, y in zip(leaves, twice, strict=True))


# ---- any nesting, any index ----


def buffers(lead: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Return nested tuples of arrays with these leading dimensions."""
    trailing = st.lists(st.integers(1, 3), max_size=2).map(tuple)
    leaf = trailing.map(lambda shape: np.random.default_rng(0).random((*lead, *shape)))
    name = st.text(min_size=1, max_size=6)
    return st.recursive(
        leaf | st.none(),
        lambda inner: st.dictionaries(name, inner, min_size=1, max_size=3).map(
            lambda fields: namedarraytuple("B", fields)(*fields.values())
        ),
        max_leaves=5,
    ).map(lambda b: namedarraytuple("Top", ["only"])(b))


def leaves(buffer: Any) -> list[np.ndarray]:
    if buffer is None:
        return []
    return [leaf for b in buffer for leaf in leaves(b)] if isinstance(buffer, tuple) else [buffer]


indices = st.integers(-4, 3) | st.slices(4) | st.tuples(st.integers(0, 3), st.slices(3)) | st.just(Ellipsis)


@settings(max_examples=60)
@given(buffer=buffers((4, 3)), key=indices)
def test_reading_is_the_same_as_reading_every_leaf(buffer, key):
    read = leaves(buffer[key])
    assert all(np.array_equal(x, leaf[key]) for x, leaf in zip(read, leaves(buffer), strict=True))


@settings(max_examples=60)
@given(buffer=buffers((4, 3)), key=indices)
def test_writing_is_the_same_as_writing_every_leaf(buffer, key):
    expected = [leaf.copy() for leaf in leaves(buffer)]
    for leaf in expected:
        leaf[key] = leaf[key] + 1
    source = pickle.loads(pickle.dumps(buffer[key]))
    for leaf in leaves(source):
        if isinstance(leaf, np.ndarray):
            leaf += 1
    if all(isinstance(leaf, np.ndarray) for leaf in leaves(source)):
        buffer[key] = source
        assert all(np.array_equal(x, y) for x, y in zip(leaves(buffer), expected, strict=True))


def test_a_type_is_whole_though_garbage_is_collected_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["rlpyt.namedarraytuple"], "_can_be_attribute", lambda name: gc.collect() >= 0)
    row: Any = namedarraytuple("Collected", ["of_1", "of_2"])(1, 2)
    assert row.of_2 == 2
