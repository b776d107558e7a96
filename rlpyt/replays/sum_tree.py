"""Sum tree: draws among many changing numbers in proportion to them."""

from __future__ import annotations

import numpy as np
import torch

from rlpyt.replays.interface import Allocate
from rlpyt.utils.arrays import buffer_from_example

_MANY = 2000  # indexes from which a sort that finds those in one block costs less than summing a block again


class SumTree:
    """Tree of three levels over `size` non-negative numbers: the numbers, sums of blocks, sums of blocks of sums.

    A sum is computed again from its numbers, never changed by a difference, so no rounding error builds up. All methods
    are vectorised over their arguments. The time goes into numpy calls, of a microsecond or more each. A binary tree of
    a million numbers needs 120 calls: setting 256 numbers takes it 150 us, and 40 to 60 us here.

    Args:
        size: how many numbers; all are 0 at first.
        width: numbers in a block.
        allocate: makes the arrays; `buffer_from_example` keeps them private to the process.
    """

    def __init__(self, size: int, width: int = 32, allocate: Allocate = buffer_from_example) -> None:
        self.size, self._width = size, width
        n_top = max(1, -(-size // width**2))
        self._leaves: np.ndarray = allocate(np.float64(0), (n_top * width, width))
        self._sums: np.ndarray = allocate(np.float64(0), (n_top, width))
        self._top: np.ndarray = allocate(np.float64(0), (n_top,))

    @property
    def total(self) -> float:
        """Sum of all numbers."""
        return float(self._top.sum())

    @property
    def values(self) -> np.ndarray:
        """The numbers, [size] float64, to read."""
        return self._leaves.reshape(-1)[: self.size]

    def set(self, idxs: np.ndarray, values: np.ndarray | float) -> None:
        """Set some of the numbers. Where an index comes twice, the last of its values stays.

        Args:
            idxs: [M] integer, in 0..size-1.
            values: [M] or one, finite and not negative.
        """
        self._leaves.reshape(-1)[idxs] = values
        blocks = idxs // self._width
        if len(blocks) > _MANY:
            blocks = np.unique(blocks)
        self._sums.reshape(-1)[blocks] = self._leaves[blocks].sum(axis=1)
        tops = blocks // self._width
        if len(tops) > _MANY:
            tops = np.unique(tops)
        self._top[tops] = self._sums[tops].sum(axis=1)

    def set_all(self, values: np.ndarray) -> None:
        """Set all numbers, [size] float64, finite and not negative."""
        self._leaves.reshape(-1)[: self.size] = values
        self._leaves.sum(axis=1, out=self._sums.reshape(-1))
        self._sums.sum(axis=1, out=self._top)

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draw indexes [size] in proportion to their numbers, with replacement."""
        return self.find(rng.random(size) * self.total)

    def find(self, mass: np.ndarray) -> np.ndarray:
        """Return the index whose number covers each mass: the numbers before it sum up to at most the mass.

        Args:
            mass: [M] float64 in [0, total]; the total must be above 0.

        Returns:
            [M] int64, none of them of a number 0.
        """
        running = np.cumsum(self._top)
        left = np.minimum(mass, np.nextafter(running[-1], 0.0))
        top = np.searchsorted(running, left, side="right")
        left -= running[top] - self._top[top]
        block = self._descend(self._sums, top, left)
        found = self._descend(self._leaves, block, left)
        rounded = np.flatnonzero(self.values.take(found, mode="clip") == 0)
        if len(rounded):  # to the border of a block, where a 0 stands: once in some 1e12 times
            found[rounded] = self._find_in_all(mass[rounded])
        return found

    def _descend(self, level: np.ndarray, blocks: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """Return the number in each block that covers its mass; subtract from the mass the numbers before it."""
        numbers = level.take(blocks, axis=0)
        # torch takes a quarter of numpy's time for these two.
        sums = torch.from_numpy(numbers).cumsum(1)
        places = torch.searchsorted(sums, torch.from_numpy(mass)[:, None], right=True).numpy()[:, 0]
        places = np.minimum(places, self._width - 1)
        flat = np.arange(0, numbers.size, self._width) + places
        mass -= sums.numpy().take(flat) - numbers.take(flat)
        return blocks * self._width + places

    def _find_in_all(self, mass: np.ndarray) -> np.ndarray:
        running = np.cumsum(self.values)
        return np.searchsorted(running, np.minimum(mass, np.nextafter(running[-1], 0.0)), side="right")
