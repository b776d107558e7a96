"""Arrays, numpy scalars and random generators as plain data, with all that a snapshot would change about them."""

from __future__ import annotations

import operator
import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from rlpyt.types import StateDict
from rlpyt.utils.seeds import checked_position

Thing: TypeAlias = Any
"""Anything that an environment may refer to."""

ARRAY_KINDS = "biufcSUmM"
_PYTHON_GLOBAL = random.random.__self__  # type: ignore[attr-defined]  # of which the module's functions are methods
_SEED = np.random.SeedSequence
_LARGEST_POOL = 1024  # words, 4 by default; time grows with their square, for which a file may have any number
_BIT_GENERATORS: StateDict = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
_USERS: StateDict = {"Generator": np.random.Generator, "RandomState": np.random.RandomState}
SEQUENCES: StateDict = {
    "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque
}  # fmt: skip
"""Classes of data without keys, by name."""
MAPPINGS: StateDict = {"dict": dict, "OrderedDict": OrderedDict, "defaultdict": defaultdict}
"""Classes of data with keys, by name."""
GENERATORS = (*_USERS.values(), *_BIT_GENERATORS.values(), random.Random)
"""Classes of random generators whose state can be saved."""


class StateError(ValueError):
    """Error for an environment that has no state; the text has the attribute that cannot be saved."""


def class_name(kind: type) -> str:
    """Return module and name of a class; those of some compiled modules, such as SWIG's, do not know their module."""
    module = getattr(kind, "__module__", None)
    return f"{module}.{kind.__qualname__}" if isinstance(module, str) else kind.__qualname__


def base_array(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def pack_array(array: np.ndarray) -> StateDict:
    """Return an array as its bytes, so that no dtype and no order of memory is lost."""
    order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"
    data = np.frombuffer(array.tobytes(order), np.uint8).copy()
    return {"dtype": array.dtype.str, "shape": array.shape, "order": order, "data": data,
            "writeable": array.flags.writeable}  # fmt: skip


def make_array(node: StateDict) -> np.ndarray:
    """Return the array that `pack_array` was given."""
    data = np.asarray(node["data"], np.uint8).tobytes()
    array: np.ndarray = np.ndarray(_shape(node), _dtype(node), data, order=node["order"]).copy("K")
    array.flags.writeable = node["writeable"]
    return array


def _dtype(node: StateDict) -> Thing:
    """Return the dtype of an array; one of objects is refused, as the bytes of a file would be read as addresses."""
    dtype = np.dtype(node["dtype"])
    if dtype.kind not in ARRAY_KINDS:
        raise ValueError(f"loading the state of an environment: got an array of dtype {dtype}, expected plain data.")
    return dtype


def _shape(node: StateDict) -> tuple[int, ...]:
    """Return the shape of an array; numpy would take one of -1 for any length, and divide by an item size of 0."""
    shape = tuple(map(operator.index, node["shape"]))
    if min(shape, default=0) < 0:
        raise ValueError(f"loading the state of an environment: got an array of shape {shape}, expected no length < 0.")
    return shape


def pack_scalar(value: np.generic, place: str) -> StateDict:
    """Return a numpy scalar with its dtype, on which the precision of arithmetic depends."""
    if value.dtype.kind not in ARRAY_KINDS:
        raise StateError(f"{place} is a scalar of dtype {value.dtype}")
    return pack_array(np.asarray(value))


def make_scalar(node: StateDict) -> Thing:
    """Return the scalar that `pack_scalar` was given."""
    return make_array(node)[()]


def pack_view(view: np.ndarray, base: np.ndarray) -> StateDict:
    """Return where a view lies in the memory of its base, whose order of memory is kept."""
    start = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return {"start": start, "strides": view.strides, "shape": view.shape, "dtype": view.dtype.str,
            "writeable": view.flags.writeable}  # fmt: skip


def make_view(node: StateDict, base: np.ndarray) -> np.ndarray:
    """Return the view of the base that `pack_view` was given.

    Raises:
        ValueError: if it is not inside of the base.
    """
    # numpy does not look where the base is empty, nor when a product of strides and lengths has more than 64 bits.
    shape, strides, start = _shape(node), tuple(map(operator.index, node["strides"])), operator.index(node["start"])
    reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    first, end = start + sum(x for x in reach if x < 0), start + sum(x for x in reach if x > 0) + _dtype(node).itemsize
    if 0 not in shape and (first < 0 or end > base.nbytes):
        raise ValueError(
            f"loading the state of an environment: got a view of the bytes {first} to {end} of an array of "
            f"{base.nbytes}, expected one inside of it."
        )
    writeable = base.flags.writeable
    base.flags.writeable = True  # a view that is older than the lock of its base may be written
    flat = base.reshape(-1, order="A").view(np.uint8)
    view: np.ndarray = np.ndarray(shape, _dtype(node), buffer=flat.data, offset=start, strides=strides)
    view.flags.writeable, base.flags.writeable = node["writeable"], writeable
    return view


def generator_state(value: Thing, place: str, save: Callable[[Thing, str], Thing]) -> StateDict:
    """Return the state of a random generator.

    Args:
        value: of one of the classes in `GENERATORS`.
        place: of it, for messages.
        save: saves the bit generator, which two generators may share.
    """
    name = type(value).__name__
    if type(value) is random.Random:
        if value is _PYTHON_GLOBAL:
            raise StateError(f"{place} is Python's global generator, which other environments draw from, too")
        version, words, gauss = value.getstate()
        return {"name": name, "state": [version, list(words), gauss]}
    if name in _USERS:
        if value is np.random.mtrand._rand:
            raise StateError(f"{place} is numpy's global generator, which other environments draw from, too")
        bits = value.bit_generator if name == "Generator" else value._bit_generator
        rest = value.get_state(legacy=False) if name == "RandomState" else {}
        gauss = (rest.get("has_gauss"), rest.get("gauss"))
        return {"name": name, "bits": save(bits, place), "gauss": gauss}
    seed = value.seed_seq if type(value.seed_seq) is _SEED else None
    sequence = None if seed is None else {key: _plain(item) for key, item in seed.state.items()}
    return {"name": name, "state": value.state, "sequence": sequence}


def make_generator(node: StateDict, load: Callable[[Thing], Thing]) -> Thing:
    """Return a generator in the state that `generator_state` returned."""
    if node["name"] == "Random":
        plain = random.Random()
        version, words, gauss = node["state"]
        plain.setstate((version, tuple(words), gauss))
        return plain
    if node["name"] in _USERS:
        made = _USERS[node["name"]](load(node["bits"]))
        if node["name"] == "RandomState":
            state = made.get_state(legacy=False)
            state["has_gauss"], state["gauss"] = node["gauss"]
            made.set_state(state)
        return made
    sequence = node["sequence"]
    if sequence is not None and not 0 < sequence["pool_size"] <= _LARGEST_POOL:
        raise ValueError(
            f"loading the state of an environment: got a seed with a pool of {sequence['pool_size']} words, expected "
            f"up to {_LARGEST_POOL}."
        )
    if sequence is None and node["name"] == "MT19937":
        bits = np.random.RandomState(0)._bit_generator  # without a seed sequence; others draw one
    else:
        bits = _BIT_GENERATORS[node["name"]](None if sequence is None else _SEED(**sequence))
    state = _arrays(node["state"])
    if node["name"] == "MT19937":
        checked_position(state["state"]["pos"])
    if node["name"] == "Philox":
        checked_position(state["buffer_pos"], 4)
    bits.state = state
    return bits


def _plain(value: Thing) -> Thing:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _arrays(value: Thing) -> Thing:
    """Return the state of a bit generator with arrays where a snapshot has tensors."""
    if isinstance(value, dict):
        return {key: _arrays(item) for key, item in value.items()}
    return value.numpy() if isinstance(value, torch.Tensor) else value
