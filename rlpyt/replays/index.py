"""Which rows of a replay to train on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_MAX_ROUNDS = 16  # redraws before all rows are looked through, which takes milliseconds from a million


class UniformIndex:
    """Draws valid rows with equal probability, with replacement.

    Args:
        rng: the stream to draw from, the replay's own.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def draw(self, batch_size: int, valid: np.ndarray, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return random rows among the valid ones of `count` time steps of a ring.

        Args:
            batch_size: rows to draw, M.
            valid: [T, B] bool, in ring order.
            first: time index of the first step to draw from.
            count: steps to draw from; they go round the end of the ring.

        Returns:
            T_idxs, B_idxs: [M] int64 each.

        Raises:
            ValueError: if batch_size is below 1.
            RuntimeError: if no row among them is valid.
        """
        if batch_size < 1:
            raise ValueError(f"Drawing from a replay: got batch_size={batch_size}; expected at least 1 row. Raise it.")
        T_idxs, B_idxs = self._draw_any(batch_size, valid, first, count)
        for _ in range(_MAX_ROUNDS):
            invalid = np.flatnonzero(~valid[T_idxs, B_idxs])
            if not len(invalid):
                return T_idxs, B_idxs
            T_idxs[invalid], B_idxs[invalid] = self._draw_any(len(invalid), valid, first, count)
        T_idxs[invalid], B_idxs[invalid] = self._draw_valid(len(invalid), valid, first, count)
        return T_idxs, B_idxs

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the random stream."""
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._rng.bit_generator.state = state_dict["rng"]

    def _draw_any(self, size: int, valid: np.ndarray, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw among all rows in reach."""
        T, B = valid.shape
        return (first + self._rng.integers(count, size=size)) % T, self._rng.integers(B, size=size)

    def _draw_valid(self, size: int, valid: np.ndarray, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw among the list of all valid rows in reach."""
        ring = (first + np.arange(count)) % len(valid)
        ages, B_idxs = np.nonzero(valid[ring])
        if not len(ages):
            raise RuntimeError(
                f"Drawing from a replay: got {count * valid.shape[1]} rows in reach, none of them valid; expected at "
                "least one. Append more samples first (raise min_steps_learn), and see what marks them invalid."
            )
        choices = self._rng.integers(len(ages), size=size)
        return ring[ages[choices]], B_idxs[choices]
