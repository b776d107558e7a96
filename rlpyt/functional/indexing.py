"""Selection of entries by index, and one-hot vectors, under any leading dimensions."""

from __future__ import annotations

import torch


def select_at_indexes(indexes: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return tensor[..., indexes[...], :], one entry for each index.

    Args:
        indexes: [...] integer, in 0..N-1; any number of leading dimensions, none included.
        tensor: [..., N] or [..., N, *trailing], such as Q-values, or atoms of a distribution.

    Returns:
        [...] or [..., *trailing].

    Raises:
        ValueError: if the leading dimensions differ, or on a CPU an index is out of range; negative ones are.
    """
    dim = indexes.dim()
    if tensor.dim() <= dim or tensor.shape[:dim] != indexes.shape:
        raise ValueError(
            f"select_at_indexes: got indexes {tuple(indexes.shape)} and tensor "
            f"{tuple(tensor.shape)}; expected the tensor to have the shape of the indexes, then "
            "the dimension that they index. Squeeze a dimension of 1, or swap the two (indexes come first)."
        )
    trailing = tensor.shape[dim + 1 :]
    index = indexes.long().reshape(*indexes.shape, 1, *[1] * len(trailing))
    index = index.expand(*indexes.shape, 1, *trailing)
    if torch.compiler.is_compiling():
        return tensor.gather(dim, index).squeeze(dim)
    try:
        return tensor.gather(dim, index).squeeze(dim)
    except RuntimeError as error:
        if "out of bounds" not in str(error):
            raise
        raise ValueError(
            f"select_at_indexes: got indexes from {indexes.min().item()} to {indexes.max().item()}; expected 0 to "
            f"{tensor.shape[dim] - 1}. Negative ones do not count from the end; add the number of entries to them."
        ) from error


def to_onehot(indexes: torch.Tensor, num: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return vectors that are 1 at the index and 0 elsewhere.

    Args:
        indexes: [...] integer, in 0..num-1.
        num: length of the vectors.
        dtype: of the result; None is the dtype of the indexes.

    Returns:
        [..., num].
    """
    onehot = torch.zeros(*indexes.shape, num, dtype=dtype or indexes.dtype, device=indexes.device)
    return onehot.scatter_(-1, indexes.long().unsqueeze(-1), 1)


def from_onehot(onehot: torch.Tensor, dim: int = -1, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Return the index of the largest entry along a dimension, the inverse of `to_onehot`.

    Args:
        onehot: [..., num] of any dtype.
        dim: the dimension of the vectors.
        dtype: of the result.

    Returns:
        [...], onehot without dim.
    """
    return onehot.argmax(dim).to(dtype)
