"""Comparisons whose error says what was checked, and the inputs and files that all contracts need."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import Space, random_value
from rlpyt.utils.arrays import buffer_from_example, buffer_leaves


def expect(holds: bool, what: str, came: object, expected: str) -> None:
    """Raise AssertionError unless something holds."""
    if not holds:
        raise AssertionError(f"{what}: got {came!s:.300}; expected {expected}.")


def expect_close(what: str, came: Buffer, reference: Buffer, expected: str, tol: float = 0.0) -> None:
    """Compare two buffers leaf by leaf; integers and flags exactly, floats up to `tol`."""
    a, b = ([torch.as_tensor(leaf).detach() for leaf in buffer_leaves(x)] for x in (came, reference))
    expect(len(a) == len(b), what, f"{len(a)} arrays", f"{len(b)}, {expected}")
    for x, y in zip(a, b, strict=True):
        expect(x.shape == y.shape, what, f"shape {tuple(x.shape)}", f"{tuple(y.shape)}, {expected}")
        expect(x.dtype == y.dtype, what, f"dtype {x.dtype}", f"{y.dtype}, {expected}")
        same = torch.allclose(x, y, rtol=tol, atol=tol) if x.is_floating_point() and tol else torch.equal(x, y)
        expect(same, what, f"{x.flatten()[:4].tolist()} and {y.flatten()[:4].tolist()} first", expected)


def expect_raises(Error: type[Exception], what: str, call: Callable[[], object]) -> None:
    """Raise AssertionError unless a call raises an error of this class."""
    try:
        came = call()
    except Error:
        return
    raise AssertionError(f"{what}: got {came!s:.300}; expected a {Error.__name__}.")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch inside of the block, and give back the state of its generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def reloaded(state: Any) -> Any:
    """Return a state after a round through a file, which holds plain data and tensors alone."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def random_batch(space: Space, lead: tuple[int, ...], rng: np.random.Generator) -> Buffer:
    """Return random values of a space in row form, [*lead, ...] arrays."""
    batch = buffer_from_example(random_value(space, rng), lead)
    for index in np.ndindex(lead):
        batch[index] = random_value(space, rng)
    return batch
