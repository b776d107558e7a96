"""Leading dimensions of tensors: [], [B] or [T, B] are merged into [T*B] and restored."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.namedarraytuple import Buffer


def infer_leading_dims(tensor: torch.Tensor, dim: int) -> tuple[int, int, int, torch.Size]:
    """Return the number of leading dimensions of a tensor, and their sizes.

    Args:
        tensor: [*shape], [B, *shape] or [T, B, *shape].
        dim: number of dimensions of `shape`.

    Returns:
        lead_dim (0, 1 or 2), T, B (1 if the dimension is missing), shape.

    Raises:
        ValueError: if there are fewer than 0 or more than 2 leading dimensions.
    """
    lead_dim = tensor.dim() - dim
    if lead_dim not in (0, 1, 2):
        raise ValueError(
            f"infer_leading_dims: got a tensor of shape {tuple(tensor.shape)} of which {dim} dimensions are data; "
            "expected [], [B] or [T, B] before them. Does the space have another number of dimensions?"
        )
    T, B = (1, 1, *tensor.shape[:lead_dim])[-2:]
    return lead_dim, T, B, tensor.shape[lead_dim:]


def restore_leading_dims(tensors: Any, lead_dim: int, T: int = 1, B: int = 1) -> Buffer:
    """Give tensors [T*B, ...] the leading dimensions that `infer_leading_dims` found.

    Args:
        tensors: a tensor, or a (nested, named) tuple of tensors and None.
        lead_dim: 0, 1 or 2.
        T: time steps.
        B: environments.

    Returns:
        The same structure, of tensors [...], [B, ...] or [T, B, ...].
    """
    if tensors is None:
        return None
    if isinstance(tensors, tuple):
        restored = (restore_leading_dims(x, lead_dim, T, B) for x in tensors)
        return tuple(restored) if type(tensors) is tuple else type(tensors)(*restored)
    return tensors.reshape((T, B)[2 - lead_dim :] + tensors.shape[1:])
