"""Shape and dtype checks shared by the formulas.

Broadcasting is what makes a wrong loss run: [B] against [B, 1] gives [B, B] and no error. So no
function of this package broadcasts.
"""

from __future__ import annotations

import numpy as np
import torch


def check_same_shape(what: str, **arrays: torch.Tensor | np.ndarray | None) -> None:
    """Refuse arrays whose shapes are not all equal; None stands for an argument not given.

    Args:
        what: the computation, first words of the message.
        **arrays: torch or numpy, each under the name that its caller knows it by.

    Raises:
        ValueError: if two shapes differ; the message gives them all.
    """
    shapes = {name: tuple(array.shape) for name, array in arrays.items() if array is not None}
    if len(set(shapes.values())) > 1:
        came = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"{what}: got shapes {came}; expected all of them equal, as nothing is broadcast here. "
            "Was one taken from another batch, or does it carry a last dimension of 1 to squeeze?"
        )


def check_bool(what: str, **arrays: torch.Tensor | np.ndarray | None) -> None:
    """Refuse flags and masks that are not boolean; None stands for an argument not given.

    Args:
        what: the computation, first words of the message.
        **arrays: torch or numpy, each under the name that its caller knows it by.

    Raises:
        TypeError: if the dtype of one is not bool.
    """
    for name, array in arrays.items():
        if array is not None and array.dtype not in (torch.bool, np.bool_):
            raise TypeError(
                f"{what}: got {name} of dtype {array.dtype}; expected bool. Convert 0/1 flags with "
                f"`{name} != 0`; to weight rows, multiply the other argument by the weights."
            )
