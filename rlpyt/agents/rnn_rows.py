"""Recurrent states as samples keep them: rows first, [B, N, H], where torch has [N, B, H]."""

from __future__ import annotations

import torch

from rlpyt.namedarraytuple import Buffer, NamedArrayTuple, namedarraytuple
from rlpyt.utils.arrays import buffer_func


def rnn_to_rows(state: Buffer) -> Buffer:
    """Turn a model's state, [N, B, H] leaves, into what samples keep.

    A plain tuple, such as torch's (h, c), gets the names "0", "1", so that an index means rows and not its parts.
    """
    rows = buffer_func(state, _swap)
    return namedarraytuple("RnnState", map(str, range(len(rows))))(*rows) if type(rows) is tuple else rows


def rnn_from_rows(rows: Buffer) -> Buffer:
    """Turn the state that samples keep, [B, N, H] leaves, into the model's own."""
    state = buffer_func(rows, _swap)
    return tuple(state) if isinstance(state, NamedArrayTuple) and "0" in state else state


def _swap(state: torch.Tensor) -> torch.Tensor:
    """Turn [N, B, H] (torch's layout) into [B, N, H] (rows first, as in samples), or back."""
    return state.transpose(0, 1).contiguous()
