"""Shape and dtype checks of the formulas.

With broadcasting, a wrong loss would run: [B] minus [B, 1] gives [B, B] and no error. Therefore the functions of this
package refuse arguments of different shapes.
"""

from __future__ import annotations

import numpy as np
import torch


def check_same_shape(what: str, **arrays: torch.Tensor | np.ndarray | None) -> None:
    """Refuse arrays of different shapes. None stands for an argument that was not given.

    Args:
        what: the computation; the message begins with it.
        **arrays: torch or numpy, each under its name in the caller.

    Raises:
        ValueError: if two shapes differ; the message gives them all.
    """
    shapes = {name: tuple(array.shape) for name, array in arrays.items() if array is not None}
    first = next(iter(shapes.values()), None)
    if any(shape != first for shape in shapes.values()):  # a set would make constants of sizes that are compiled
        came = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"{what}: got shapes {came}; expected all of them equal, as nothing is broadcast here. "
            "Was one taken from another batch, or does it carry a last dimension of 1 to squeeze?"
        )


def check_bool(what: str, **arrays: torch.Tensor | np.ndarray | None) -> None:
    """Refuse flags and masks that are not boolean. None stands for an argument that was not given.

    Args:
        what: the computation; the message begins with it.
        **arrays: torch or numpy, each under its name in the caller.

    Raises:
        TypeError: if the dtype of one is not bool.
    """
    for name, array in arrays.items():
        if array is not None and array.dtype not in (torch.bool, np.bool_):
            raise TypeError(
                f"{what}: got {name} of dtype {array.dtype}; expected bool. Convert 0/1 flags with "
                f"`{name} != 0`; to weight rows, multiply the other argument by the weights."
            )
