"""Rows that a replay stores, and what makes its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlpyt.namedarraytuple import Buffer, NamedArrayTuple

Allocate = Callable[[Any, Any], Any]
"""Makes zeroed numpy arrays from an example of one row and leading dimensions. It decides where the arrays lie."""


class SamplesToBuffer(NamedArrayTuple):
    """Rows of a batch that a replay stores, [T, B]; see `rlpyt.types` for the fields."""

    observation: Buffer
    action: Buffer
    reward: Buffer
    terminated: Buffer
    truncated: Buffer
    valid: Buffer
    prev_rnn_state: Buffer = None
    """Recurrent state before the row, [T, B, N, H] leaves; None for a feed-forward agent."""
    prev_action: Buffer = None
    """Action of the row before, null at an episode's start. Not stored: it is compared after a state was loaded."""
    prev_reward: Buffer = None
    """Reward of the row before, float32. Not stored: it is compared after a state was loaded."""
    final_observation: Buffer = None
    """What a truncated row led to, for a `DeviceReplay`; None where final observations are rows."""
