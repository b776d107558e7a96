"""Index of a replay: it draws the start indexes of what is trained on.

A start index is a row of the ring where a transition or a sequence may begin. Start indexes are counted from the first
one ever written, so that a number belongs to one write of the ring. They are the same for all B environments. Those
from `first` to before `end` are in reach: the replay holds all rows that they read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from rlpyt.replays.interface import Allocate
from rlpyt.types import Places, StateDict

_MAX_ROUNDS = 16  # redraws before all start indexes are listed, which takes milliseconds for a million
_FINAL = {
    "draw": "draw_places(self, size), which proposes start indexes",
    "may_begin": "may_begin(self, storage) of an rlpyt.replays.Reading, which says where something may begin",
    "update_priorities": "set_priorities(self, places, B_idxs, priorities), which is given checked priorities",
}


class Drawn(NamedTuple):
    """Start indexes that were drawn, M of them."""

    places: np.ndarray
    """[M] int64, counted from the first start index ever written."""
    B_idxs: np.ndarray
    """[M] int64, environments."""
    is_weights: np.ndarray | None = None
    """[M] float32, importance weights of the losses; None where all weigh the same."""


class Index(ABC):
    """Base of indexes. An index of one's own defines `draw_places`; one with priorities `set_priorities` too.

    The base checks what they do: start indexes at final rows are drawn again, priorities of overwritten rows dropped.

    Args:
        rng: random stream of the replay.
    """

    takes_priorities: ClassVar[bool] = False
    """Whether priorities change what is drawn; they come to `set_priorities` and `move`."""
    writes_to_draw: bool = False
    """Whether drawing changes arrays of the index, so that no other process may read them meanwhile."""
    alpha: float = 0.0
    """Exponent of the priorities; may be set at any time."""
    beta: float = 0.0
    """Exponent of the importance weights; set before every batch where priorities are taken."""
    divides_by_largest: bool = True
    """Whether `weigh` divides by the largest weight of the batch. Among replicas it does not: the algorithm divides by
    the largest of all of them, so that weights of different replays compare."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        for name in _FINAL.keys() & vars(cls).keys():
            raise TypeError(
                f"{cls.__name__}.{name}: the base checks there what an index draws and is given; expected a subclass "
                f"without it. Define {_FINAL[name]}."
            )
        super().__init_subclass__(**kwargs)

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        """Random stream to draw from, part of `state_dict`."""

    def initialize(self, S: int, B: int, may_begin: np.ndarray | None, allocate: Allocate) -> None:
        """Allocate the state for a ring; nothing is in reach yet.

        Args:
            S: start indexes of each environment.
            B: environments.
            may_begin: [S, B] bool, where something may begin; a view that the replay updates. None is everywhere.
            allocate: makes the arrays that change during the run.
        """
        self.S, self.B = S, B
        self.see(may_begin)
        self._counts: np.ndarray = allocate(np.int64(0), (3,))  # first, end, priorities dropped

    @final
    def see(self, may_begin: np.ndarray | None) -> None:
        """Take the argument `may_begin` of `initialize`; a copy of the replay gives its own view."""
        self._may_begin = may_begin

    @property
    def first(self) -> int:
        """First start index in reach."""
        return int(self._counts[0])

    @property
    def end(self) -> int:
        """Start index after the last one in reach."""
        return int(self._counts[1])

    @property
    def n_priorities_dropped(self) -> int:
        """Priorities that came after their rows had been overwritten."""
        return int(self._counts[2])

    def move(self, first: int, end: int, priorities: np.ndarray | None) -> None:
        """Set the range of start indexes in reach; called at every write.

        Args:
            first: first start index in reach, never below the one before.
            end: start index after the last, never below the one before.
            priorities: [new, B] of the start indexes new in reach; None where they are not known.
        """
        self.set_range(first, end)

    @final
    def set_range(self, first: int, end: int) -> None:
        """Set the range of start indexes in reach and nothing else, as `move` and the loading of a state do."""
        self._counts[:2] = first, max(first, end)

    @final
    def may_begin(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return which of some start indexes in reach may be drawn: none at the final observation of an episode."""
        if self._may_begin is None:
            return np.ones(np.broadcast(places, B_idxs).shape, bool)
        return self._may_begin[places % self.S, B_idxs]

    @final
    def n_drawable(self) -> int:
        """Return how many start indexes in reach may be drawn, over all environments: 20 us for a million."""
        n = self.end - self.first
        if self._may_begin is None:
            return n * self.B
        first = self.first % self.S
        newest = max(0, first + n - self.S)  # those past the end of the ring
        return int(np.count_nonzero(self._may_begin[first : first + n]) + np.count_nonzero(self._may_begin[:newest]))

    @final
    def draw(self, batch_size: int) -> Drawn:
        """Draw start indexes where something may begin.

        Proposals of `draw_places` where nothing may begin are drawn again. After 16 rounds of such proposals, the
        rest is drawn uniformly among all start indexes that may be drawn.
        """
        if batch_size < 1:
            raise ValueError(f"Drawing from a replay: got batch_size={batch_size}; expected at least 1. Raise it.")
        places, B_idxs = self._proposed(batch_size)
        if self._may_begin is not None and not (begins := self._may_begin[places % self.S, B_idxs]).all():
            self._redraw(places, B_idxs, np.flatnonzero(~begins))
        weights = self.weigh(places, B_idxs)
        if weights is not None and np.shape(weights) != (batch_size,):
            raise ValueError(
                f"Drawing from a replay: {type(self).__name__}.weigh gave weights {list(np.shape(weights))}; expected "
                f"[{batch_size}], one for every place, or None."
            )
        return Drawn(places, B_idxs, weights)

    @abstractmethod
    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Propose start indexes in reach; see `draw`.

        Returns:
            places: [size] int64 from `first` to before `end`, counted from the first start index ever written.
            B_idxs: [size] int64 from 0 to before B.
        """

    def weigh(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray | None:
        """Return the importance weights [M] float32 of what was drawn, or None; called once for every `draw`."""
        return None

    @final
    def update_priorities(self, places: Places, priorities: np.ndarray) -> None:
        """Set the priorities of start indexes that were drawn at any time before.

        Priorities of start indexes out of reach are dropped and counted: other rows may lie in their place.

        Args:
            places: of a batch, [M].
            priorities: [M] float from 0.
        """
        if not self.takes_priorities:
            raise TypeError(
                f"Updating priorities: the replay draws with a {type(self).__name__}; expected a PrioritizedIndex, or "
                "another that takes priorities. Set prioritized_replay=True."
            )
        starts, B_idxs = places
        priorities = checked_priorities(priorities, starts.shape)
        in_reach = (starts >= self.first) & (starts < self.end)
        n_dropped = len(starts) - np.count_nonzero(in_reach)
        if n_dropped:
            self._counts[2] += n_dropped
            starts, B_idxs, priorities = starts[in_reach], B_idxs[in_reach], priorities[in_reach]
        if len(starts):
            self.set_priorities(starts, B_idxs, priorities)

    def set_priorities(self, places: np.ndarray, B_idxs: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of start indexes in reach; to be defined where `takes_priorities`.

        Args:
            places: [M] int64, M from 1.
            B_idxs: [M] int64.
            priorities: [M] float64, finite, from 0.
        """
        raise NotImplementedError(
            f"Updating priorities: {type(self).__name__} has takes_priorities=True and no set_priorities; expected "
            "both or neither. Define set_priorities(self, places, B_idxs, priorities)."
        )

    def settings(self) -> dict[str, Any]:
        """Return plain numbers and strings that a state must agree with to be loaded."""
        return {"index": type(self).__name__}

    def state_dict(self) -> StateDict:
        """Return random stream and counter; a subclass adds what else decides what is drawn.

        The range in reach is not part of it, as it follows from the rows held.
        """
        return {"rng": self.rng.bit_generator.state, "n_priorities_dropped": self.n_priorities_dropped}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned; `first` and `end` are set before."""
        self.rng.bit_generator.state = state_dict["rng"]
        self._counts[2] = state_dict["n_priorities_dropped"]

    def _proposed(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of what `draw_places` proposes, and refuse what is out of reach."""
        proposed = self.draw_places(size)
        if not isinstance(proposed, tuple) or [np.asarray(x).dtype.kind in "iu" for x in proposed] != [True, True]:
            raise TypeError(
                f"Drawing from a replay: {type(self).__name__}.draw_places({size}) gave {_described(proposed)}; "
                "expected a pair of arrays of integers: places, and numbers of environments. Convert each with "
                "astype(np.int64)."
            )
        places, B_idxs = np.array(proposed[0], np.int64), np.array(proposed[1], np.int64)
        first, end, _ = self._counts.tolist()
        if places.shape != (size,) or places.min() < first or places.max() >= end:
            raise ValueError(
                f"Drawing from a replay: {type(self).__name__}.draw_places({size}) gave {places.size} places from "
                f"{places.min(initial=end)} to {places.max(initial=first)}; expected {size} of those from "
                f"{first} to {end - 1}. They are counted from the first one ever written."
            )
        # As unsigned numbers, negative ones are the largest.
        if B_idxs.shape != (size,) or B_idxs.view(np.uint64).max() >= self.B:
            raise ValueError(
                f"Drawing from a replay: {type(self).__name__}.draw_places({size}) gave {B_idxs.size} environments "
                f"from {B_idxs.min(initial=self.B)} to {B_idxs.max(initial=0)}; expected {size} from 0 to "
                f"{self.B - 1}."
            )
        return places, B_idxs

    def _redraw(self, places: np.ndarray, B_idxs: np.ndarray, wrong: np.ndarray) -> None:
        """Replace the proposals at positions `wrong`, where nothing may begin, by others."""
        for _ in range(_MAX_ROUNDS):
            places[wrong], B_idxs[wrong] = self._proposed(len(wrong))
            wrong = wrong[~self.may_begin(places[wrong], B_idxs[wrong])]
            if not len(wrong):
                return
        ages, envs = np.nonzero(self.may_begin(np.arange(self.first, self.end)[:, None], np.arange(self.B)))
        if not len(ages):
            raise self.nothing_to_draw("none of them valid; expected at least one")
        choices = self.rng.integers(len(ages), size=len(wrong))
        places[wrong], B_idxs[wrong] = self.first + ages[choices], envs[choices]

    def nothing_to_draw(self, what: str) -> RuntimeError:
        """Return the error of an index that cannot draw, to raise; `what` says what is in reach and expected."""
        return RuntimeError(
            f"Drawing from a replay: got {(self.end - self.first) * self.B} places in reach, {what}. Append more "
            "samples first (raise min_steps_learn), and see what marks them invalid."
        )


class UniformIndex(Index):
    """Index that draws with equal probability, with replacement."""

    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Propose start indexes among all in reach."""
        return np.divmod(self.rng.integers(self.first * self.B, self.end * self.B, size=size), self.B)


def _described(proposed: object) -> str:
    """Return in words what `draw_places` gave, by dtypes and shapes."""
    parts = proposed if isinstance(proposed, tuple) else (proposed,)
    arrays = ", ".join(f"{array.dtype} {list(array.shape)}" for array in map(np.asarray, parts))
    return f"a tuple of {len(parts)}: {arrays}" if isinstance(proposed, tuple) else arrays


def checked_priorities(priorities: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return priorities as float64; refuse another shape, and numbers that are negative or not finite."""
    priorities = np.asarray(priorities, np.float64)
    # Of two comparisons NaN fails both.
    good = (priorities >= 0) & (priorities < np.inf) if priorities.shape == shape else np.zeros(1, bool)
    if not good.all():
        bad = priorities[~good][:5].tolist() if priorities.shape == shape else f"the shape {priorities.shape}"
        raise ValueError(
            f"Updating priorities: got {bad}; expected {shape} finite numbers from 0. Has the loss diverged?"
        )
    return priorities
