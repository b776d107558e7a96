"""Arrays and random generators as plain data, with all that a snapshot would change about them."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from rlpyt.types import StateDict
from rlpyt.utils.seeds import checked_position, checked_stream

Thing: TypeAlias = Any
"""Anything that an environment may refer to."""
Save: TypeAlias = Callable[[Thing, str], Thing]
"""Function that returns what stands for a part of a value, at some place."""
Load: TypeAlias = Callable[[Thing], Thing]
"""Function that returns the part again."""

_KINDS_OF_NUMBERS = "biufcSUmM"
_GLOBAL: StateDict = {
    "Python": random.random.__self__,  # type: ignore[attr-defined]  # of which the module's functions are methods
    "numpy": np.random.mtrand._rand,
    "torch": torch.default_generator,
}
_BITS = (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
GENERATORS = (np.random.Generator, np.random.RandomState, *_BITS, random.Random, torch.Generator)
"""Classes of random generators whose state can be saved."""
_CLASSES: StateDict = {kind.__name__: kind for kind in GENERATORS if kind is not torch.Generator}
_USERS = ("Generator", "RandomState")  # of a bit generator, which two of them may share
_LARGEST_POOL = 1024  # words of a seed, 4 by default; time grows with their square, and a file may have any number


class StateError(ValueError):
    """Error for an environment that has no state; the text has the attribute that cannot be saved."""


def class_name(kind: type) -> str:
    """Return module and name of a class; those of some compiled modules, such as SWIG's, do not know their module."""
    module = getattr(kind, "__module__", None)
    return f"{module}.{kind.__qualname__}" if isinstance(module, str) else kind.__qualname__


def _invalid(got: object, expected: str) -> ValueError:
    return ValueError(f"loading the state of an environment: got {got}, expected {expected}")


# ---- arrays ----


def base_array(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def address(value: np.ndarray | torch.Tensor) -> int:
    """Return where the memory of a tensor, or of an array, begins."""
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().data_ptr()
    return int(value.__array_interface__["data"][0])


def save_array(array: np.ndarray, place: str, save: Save | None = None) -> StateDict:
    """Return an array as its bytes, or as a place in the memory of the array that it is a view of.

    `save` saves the array that owns the memory, which other views may share. Without it a view is an array of its own.
    """
    if array.dtype.kind not in _KINDS_OF_NUMBERS or not array.dtype.itemsize:
        raise StateError(f"{place} is an array of dtype {array.dtype}")
    layout = {"dtype": array.dtype.str, "shape": array.shape, "writeable": array.flags.writeable}
    base = base_array(array)
    owner: object = base.base
    if save is not None and owner is not None and not isinstance(owner, bytes):
        raise StateError(f"{place} is an array whose memory belongs to a {class_name(type(owner))}")
    if save is not None and base is not array:
        start = address(array) - address(base)
        return {"kind": "view", **layout, "base": save(base, place), "start": start, "strides": array.strides}
    axes = _axes(array)
    data = np.frombuffer(array.transpose(axes).tobytes(), np.uint8).copy()
    return {"kind": "array", **layout, "axes": axes, "data": data}


def load_array(node: StateDict, base: np.ndarray | None = None) -> np.ndarray:
    """Return the array of its bytes, or the view at its place in the memory of its base.

    Raises:
        ValueError: if it is of objects, as bytes of a file would be read as addresses, or not inside of its memory.
    """
    shape, dtype = tuple(map(operator.index, node["shape"])), np.dtype(node["dtype"])
    if dtype.kind not in _KINDS_OF_NUMBERS or not dtype.itemsize:
        raise _invalid(f"an array of dtype {dtype}", "plain data")
    if min(shape, default=0) < 0:  # numpy would take one of -1 for any length
        raise _invalid(f"an array of shape {shape}", "no length < 0")
    array: np.ndarray
    if base is None:
        # Earlier versions wrote "C" or "F" for the order of the dimensions in memory.
        axes = node["axes"] if "axes" in node else range(len(shape))[:: 1 if node["order"] == "C" else -1]
        memory = np.asarray(node["data"], np.uint8).tobytes()
        array = np.ndarray([shape[i] for i in axes], dtype, memory).transpose(np.argsort(axes)).copy("K")
        array.flags.writeable = node["writeable"]
    else:
        strides, start = tuple(map(operator.index, node["strides"])), operator.index(node["start"])
        # numpy does not look where the base is empty, nor if a product of strides and lengths has more than 64 bits.
        reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        first, end = start + sum(x for x in reach if x < 0), start + sum(x for x in reach if x > 0) + dtype.itemsize
        if 0 not in shape and (first < 0 or end > base.nbytes):
            raise _invalid(f"a view of the bytes {first} to {end} of an array of {base.nbytes}", "one inside of it")
        writeable, base.flags.writeable = base.flags.writeable, True  # a view may be older than the lock of its base
        array = np.ndarray(shape, dtype, base.transpose(_axes(base)).reshape(-1).view(np.uint8).data, start, strides)
        array.flags.writeable, base.flags.writeable = node["writeable"], writeable
    return array


def _axes(array: np.ndarray) -> list[int]:
    """Return the dimensions in the order that they have in memory, the outermost first."""
    return sorted(range(array.ndim), key=lambda dim: -abs(array.strides[dim]))


# ---- random generators ----


def save_generator(value: Thing, place: str, save: Save) -> StateDict:
    """Return the state of a random generator, one of `GENERATORS`."""
    name = type(value).__name__
    for owner, one in _GLOBAL.items():
        if value is one:
            raise StateError(f"{place} is {owner}'s global generator, which other environments draw from, too")
    if isinstance(value, torch.Generator):
        if value.device.type != "cpu":
            raise StateError(f"{place} is a generator of another device than the CPU")
        return {"name": "torch", "state": value.get_state()}
    if isinstance(value, random.Random):
        version, words, gauss = value.getstate()
        return {"name": name, "state": [version, list(words), gauss]}
    if name in _USERS:
        bits = value.bit_generator if name == "Generator" else value._bit_generator
        rest = value.get_state(legacy=False) if name == "RandomState" else {}
        return {"name": name, "bits": save(bits, place), "gauss": (rest.get("has_gauss"), rest.get("gauss"))}
    seed = value.seed_seq.state if type(value.seed_seq) is np.random.SeedSequence else None
    sequence = seed and {key: x.tolist() if isinstance(x, np.ndarray) else x for key, x in seed.items()}
    return {"name": name, "state": value.state, "sequence": sequence}


def load_generator(node: StateDict, load: Load) -> Thing:
    """Return a generator in the state that `save_generator` returned."""
    name: str = node["name"]
    if name == "torch":
        return torch.Generator().set_state(checked_stream(node["state"]))
    if name == "Random":
        version, words, gauss = node["state"]
        made = random.Random()
        made.setstate((version, tuple(words), gauss))
        return made
    if name in _USERS:
        user = _CLASSES[name](load(node["bits"]))
        if name == "RandomState":
            has_gauss, gauss = node["gauss"]
            user.set_state({**user.get_state(legacy=False), "has_gauss": has_gauss, "gauss": gauss})
        return user
    state, sequence = _arrays(node["state"]), node["sequence"]
    if name == "MT19937":
        checked_position(state["state"]["pos"])
    if name == "Philox":
        checked_position(state["buffer_pos"], 4)
    if sequence and not 0 < sequence["pool_size"] <= _LARGEST_POOL:
        raise _invalid(f"a seed with a pool of {sequence['pool_size']} words", f"up to {_LARGEST_POOL}")
    if sequence:
        bits = _CLASSES[name](np.random.SeedSequence(**sequence))
    else:  # numpy's own, of a RandomState, has none; others draw one
        bits = np.random.RandomState(0)._bit_generator if name == "MT19937" else _CLASSES[name]()
    bits.state = state
    return bits


def _arrays(value: Thing) -> Thing:
    """Return the state of a bit generator with arrays where a snapshot has tensors."""
    if isinstance(value, dict):
        return {key: _arrays(item) for key, item in value.items()}
    return value.numpy() if isinstance(value, torch.Tensor) else value
