"""Priorities of prioritized replay."""

from __future__ import annotations

import torch

from rlpyt.functional.checks import check_same_shape
from rlpyt.functional.masks import valid_mean, zero_invalid


@torch.no_grad()
def sequence_priority(td_abs_error: torch.Tensor, valid: torch.Tensor, eta: float) -> torch.Tensor:
    """Return the priorities of sequences, mixed from the largest and the mean of their absolute TD errors.

        p = eta * max_t |delta_t| + (1 - eta) * mean_t |delta_t|    over the valid rows

    Args:
        td_abs_error: [T, ...] float, from 0.
        valid: [T, ...] bool; a sequence without a valid row gets 0.
        eta: weight of the largest error, in [0, 1].

    Returns:
        [...] float.

    Raises:
        ValueError: if the shapes differ, or eta is out of range.

    Source: Kapturowski et al. 2019, Recurrent Experience Replay in Distributed Reinforcement Learning, section 2.3.
    """
    check_same_shape("sequence_priority", td_abs_error=td_abs_error, valid=valid)
    if not 0.0 <= eta <= 1.0:
        raise ValueError(f"sequence_priority: got eta={eta}; expected a number in [0, 1]. Correct pri_eta.")
    largest = zero_invalid(td_abs_error, valid).amax(dim=0)
    return eta * largest + (1 - eta) * valid_mean(td_abs_error, valid, dim=0)
