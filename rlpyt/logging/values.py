"""Conversion of recorded values to the numbers and texts of a row of the log."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch


def to_cell(key: str, value: object) -> float | int | str:
    """Return a value of a row as a plain number or text.

    Args:
        key: name of the column, for the message.
        value: a number, a text, or an array or tensor of one element.

    Raises:
        TypeError: if the value is anything else.
    """
    if isinstance(value, torch.Tensor | np.ndarray | np.generic) and np.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str):
        return value
    raise TypeError(
        f"recording {key} for the log: got {type(value).__name__}, expected a number, a text or an "
        "array of one element. Use record_tabular_misc_stat for many values."
    )


def to_numbers(key: str, values: object) -> np.ndarray:
    """Return the values of a statistic as float64 [n].

    Args:
        key: name of the statistic, for the message.
        values: numbers, scalar tensors, an array or a tensor.

    Raises:
        TypeError: if the values are not numbers.
    """
    try:
        if isinstance(values, torch.Tensor):
            # Through float64 on the torch side: numpy has no bfloat16.
            return values.detach().to("cpu", torch.float64).numpy().ravel()
        if isinstance(values, Iterable) and not isinstance(values, np.ndarray):
            values = [float(value) for value in values]
        return np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"statistics of {key} for the log: {error}; expected numbers, scalar tensors, an array "
            "or a tensor. Flatten nested values first."
        ) from error
