"""Small functions of rlpyt 0.1 that the scripts of its users call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn


def save__init__args(
    values: Mapping[str, Any], underscore: bool = False, overwrite: bool = False, subclass_only: bool = False
) -> None:
    """Set the arguments of `__init__` as attributes of the object: call it with `locals()`.

    Args:
        values: the local variables, `self` among them.
        underscore: put an underscore before the names of the attributes.
        overwrite: replace attributes that the object has already.
        subclass_only: take the arguments of the object's own class alone, without those of its bases.
    """
    attributes = vars(values["self"])
    classes = type(values["self"]).__mro__[: 1 if subclass_only else None]
    for function in (vars(c)["__init__"] for c in classes if "__init__" in vars(c)):
        names = list(inspect.signature(function).parameters)[1:] if inspect.isfunction(function) else []
        for name in names:
            attribute = f"_{name}" if underscore else name
            if name in values and (overwrite or attribute not in attributes):
                setattr(values["self"], attribute, values[name])


def iterate_mb_idxs(data_length: int, minibatch_size: int, shuffle: bool = False) -> Iterator[np.ndarray | slice]:
    """Yield the index of each whole minibatch of rows, in order or shuffled; the remaining rows are left out."""
    order = np.random.permutation(data_length) if shuffle else None
    for start in range(0, data_length - minibatch_size + 1, minibatch_size):
        rows = slice(start, start + minibatch_size)
        yield rows if order is None else order[rows]


@torch.no_grad()
def update_state_dict(model: nn.Module, state_dict: Mapping[str, torch.Tensor], tau: float = 1.0) -> None:
    """Move the state of a model by the fraction tau to a state_dict; entries that are not floats are copied."""
    if tau == 1.0:
        model.load_state_dict(state_dict)
        return
    for name, own in model.state_dict().items():
        own.copy_(torch.lerp(own, state_dict[name], tau) if own.is_floating_point() else state_dict[name])
