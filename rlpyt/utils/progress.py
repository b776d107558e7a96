"""Progress of a worker: five numbers in shared memory that the worker writes and its master reads."""

from __future__ import annotations

import threading
import time

import numpy as np

_BEAT_SECONDS = 0.5


class _Cell:
    """Number of a note, as an attribute."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __get__(self, note: Progress, cls: type[Progress]) -> int:
        return note._cells[self._place]

    def __set__(self, note: Progress, number: int) -> None:
        note._cells[self._place] = number


class Progress:
    """Note of where a worker is, by name.

    Args:
        array: int64 [5], in shared memory where two processes use it; None allocates one for this process.
    """

    SIZE = 5
    __slots__ = ("_cells", "array")

    env_rank = _Cell(0)
    """Global rank of the environment at hand."""
    step = _Cell(1)
    """Steps so far; each counts once for all environments that are stepped together."""
    episodes = _Cell(3)
    """Episodes that the evaluation at hand has completed; its steps, where only they are limited."""

    def __init__(self, array: np.ndarray | None = None) -> None:
        self.array = np.zeros(self.SIZE, np.int64) if array is None else array
        self._cells = self.array.data  # half the time of an index into the array

    @property
    def row(self) -> int | None:
        """Row at hand of the batch; None before the actions of its first row are taken."""
        return int(self._cells[2]) - 1 if self._cells[2] else None

    @row.setter
    def row(self, row: int | None) -> None:
        self._cells[2] = 0 if row is None else row + 1

    def beat(self) -> None:
        """Give a sign of life, while workers of its own are waited for."""
        self._cells[4] += 1

    def beat_from_now(self) -> None:
        """Give a sign of life twice a second, for ever: this process is not stopped, whatever it is at."""

        def beat() -> None:
            while True:
                self.beat()
                time.sleep(_BEAT_SECONDS)

        threading.Thread(target=beat, daemon=True).start()

    def copy(self) -> Progress:
        """Return the note as it stands now, in memory of its own."""
        return Progress(self.array.copy())

    def numbers(self) -> list[int]:
        """Return all numbers, to see whether any has changed; all are 0 before any progress."""
        return self._cells.tolist()

    def __reduce__(self) -> tuple[object, ...]:
        return Progress, (self.array,)
