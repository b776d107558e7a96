"""Which rows of a replay to train on: the places where a transition or a sequence may begin.

A place is one of S x B, S of each environment. Places are counted from the first one ever written, and lie in a ring of
S: the replay says after every write which are in reach, those whose rows it holds with all that belongs to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from rlpyt.replays.sum_tree import SumTree

_MAX_ROUNDS = 16  # redraws before all places are looked through, which takes milliseconds from a million
_LEAST_PRIORITY = 1e-6  # so that no place is never drawn again


class Drawn(NamedTuple):
    """Places that were drawn, M of them."""

    S_idxs: np.ndarray
    """[M] int64, in the ring."""
    B_idxs: np.ndarray
    """[M] int64."""
    is_weights: np.ndarray | None = None
    """[M] float32, what their losses are multiplied by; None where all weigh the same."""


class Index(ABC):
    """Base of what draws places of a ring; an index of one's own defines `draw_places`.

    Args:
        rng: the stream to draw from, the replay's own.
    """

    takes_priorities: ClassVar[bool] = False
    """Whether `update_priorities` and the priorities given to `move` change what is drawn."""
    beta: float = 0.0
    """Exponent of the importance weights; set before every batch where priorities are taken."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        """The stream to draw from, part of `state_dict`."""
        self.first = self.end = 0
        """In reach are the places from `first` to before `end`, counted from the first one ever written."""

    def initialize(self, S: int, B: int, may_begin: np.ndarray | None) -> None:
        """Take charge of a ring.

        Args:
            S: places of each environment.
            B: environments.
            may_begin: [S, B] bool, which of the places in reach may be drawn, read whenever it is needed; None is all.
        """
        self.S, self.B, self._may_begin = S, B, may_begin

    def move(self, first: int, end: int, priorities: np.ndarray | None = None) -> None:
        """Take over that the places from `first` to before `end` are in reach now.

        Args:
            first: counted from the first place ever written; never below what it was.
            end: likewise.
            priorities: of the places new in reach, [new, B]; None gives them the priority of what is not known yet.
        """
        self.first, self.end = first, max(first, end)

    def may_begin(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return which places in reach may be drawn: none that holds the final observation of an episode.

        Args:
            places: integers, counted from the first place ever written.
            B_idxs: likewise environments; the two are broadcast against each other.

        Returns:
            bool.
        """
        if self._may_begin is None:
            return np.ones(np.broadcast(places, B_idxs).shape, bool)
        return self._may_begin[places % self.S, B_idxs]

    def draw(self, batch_size: int) -> Drawn:
        """Draw places in reach; those where nothing may begin are drawn again.

        Where `draw_places` gives no others in 16 rounds, it is drawn evenly among all that may be drawn.

        Raises:
            ValueError: if batch_size is below 1, or `draw_places` gives places out of reach.
            RuntimeError: if none of them may be drawn.
        """
        if batch_size < 1:
            raise ValueError(f"Drawing from a replay: got batch_size={batch_size}; expected at least 1. Raise it.")
        places, B_idxs = self._draw_in_reach(batch_size)
        S_idxs = places % self.S
        if self._may_begin is not None and not self._may_begin[S_idxs, B_idxs].all():
            places, B_idxs = self._redrawn(places, B_idxs)
            S_idxs = places % self.S
        weights = self.weigh(places, B_idxs)
        if weights is not None and np.shape(weights) != (batch_size,):
            raise ValueError(
                f"Drawing from a replay: {type(self).__name__}.weigh gave weights {list(np.shape(weights))}; expected "
                f"[{batch_size}], one for every place, or None."
            )
        return Drawn(S_idxs, B_idxs, weights)

    @abstractmethod
    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw places in reach, any of them; see `draw`.

        Returns:
            places: [size] int64 from `first` to before `end`, counted from the first place ever written.
            B_idxs: [size] int64 from 0 to before B.
        """

    def weigh(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray | None:
        """Return the importance weights [M] float32 of what was drawn, or None; called once for every `draw`."""
        return None

    def update_priorities(self, priorities: np.ndarray) -> None:
        """Set the priorities [M] of the places that were drawn last."""
        raise TypeError(
            f"Updating priorities: the replay draws with a {type(self).__name__}; expected a PrioritizedIndex, or "
            "another that takes priorities. Set prioritized_replay=True."
        )

    def settings(self) -> dict[str, Any]:
        """Return what a state must agree with to be loaded, as plain numbers and strings."""
        return {"index": type(self).__name__}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the random stream; a subclass adds what else decides what is drawn.

        What is in reach follows from the rows held.
        """
        return {"rng": self.rng.bit_generator.state}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; `first` and `end` are set before."""
        self.rng.bit_generator.state = state_dict["rng"]

    def _draw_in_reach(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        drawn = self.draw_places(size)
        if not isinstance(drawn, tuple) or len(drawn) != 2 or any(np.asarray(x).dtype.kind not in "iu" for x in drawn):
            raise TypeError(
                f"Drawing from a replay: {type(self).__name__}.draw_places({size}) gave {drawn!r:.100}; expected a "
                "pair of arrays of integers: places, and numbers of environments."
            )
        places, B_idxs = drawn
        if len(places) != size or places.min() < self.first or places.max() >= self.end:
            raise ValueError(
                f"Drawing from a replay: {type(self).__name__}.draw_places({size}) gave {len(places)} places from "
                f"{places.min(initial=self.end)} to {places.max(initial=self.first)}; expected {size} of those from "
                f"{self.first} to {self.end - 1}. They are counted from the first one ever written."
            )
        return places, B_idxs

    def _redrawn(self, places: np.ndarray, B_idxs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return places with others in place of those that may not be drawn."""
        places, B_idxs = places.copy(), B_idxs.copy()
        wrong = np.flatnonzero(~self.may_begin(places, B_idxs))
        for _ in range(_MAX_ROUNDS):
            places[wrong], B_idxs[wrong] = self._draw_in_reach(len(wrong))
            wrong = wrong[~self.may_begin(places[wrong], B_idxs[wrong])]
            if not len(wrong):
                return places, B_idxs
        places[wrong], B_idxs[wrong] = self._draw_listed(len(wrong))
        return places, B_idxs

    def _draw_listed(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw evenly among a list of all places that may be drawn."""
        ages, B_idxs = np.nonzero(self.may_begin(np.arange(self.first, self.end)[:, None], np.arange(self.B)))
        if not len(ages):
            raise self._none("none of them valid; expected at least one")
        choices = self.rng.integers(len(ages), size=size)
        return self.first + ages[choices], B_idxs[choices]

    def _none(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"Drawing from a replay: got {(self.end - self.first) * self.B} places in reach, {what}. Append more "
            "samples first (raise min_steps_learn), and see what marks them invalid."
        )


class UniformIndex(Index):
    """Draws with equal probability, with replacement."""

    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw among all places in reach."""
        return np.divmod(self.rng.integers(self.first * self.B, self.end * self.B, size=size), self.B)


class PrioritizedIndex(Index):
    """Draws in proportion to priority ** alpha, and says how much each place must weigh to make up for it.

        P(i) = p_i^alpha / sum_k p_k^alpha,    w_i = (N P(i))^-beta / max_j w_j over the batch

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.

    Args:
        rng: the stream to draw from, the replay's own.
        alpha: exponent of the priorities, from 0 (uniform).
        beta: exponent of the importance weights, in [0, 1]; may be changed at any time.
        default_priority: of a place that is new in reach; None is the largest that any has been given, 1 at first.
        unique: whether no place comes twice in a batch. Places are then drawn one after the other from those left.

    Raises:
        ValueError: if alpha, beta or default_priority is out of range.
    """

    takes_priorities = True

    def __init__(
        self,
        rng: np.random.Generator,
        alpha: float = 0.6,
        beta: float = 0.4,
        default_priority: float | None = None,
        unique: bool = False,
    ) -> None:
        super().__init__(rng)
        if not alpha >= 0 or not 0 <= beta <= 1 or not (default_priority is None or 0 < default_priority < np.inf):
            raise ValueError(
                f"Building a prioritised replay: got alpha={alpha}, beta={beta}, default_priority={default_priority}; "
                "expected alpha from 0, beta in [0, 1], and a priority above 0 or None. Correct the setting."
            )
        self.alpha, self.beta, self.unique = alpha, beta, unique
        self._default, self._largest = default_priority, 1.0
        # Of what was drawn last the places, counted from the first ever, and their leaves in the tree.
        self._drawn: tuple[np.ndarray, np.ndarray] | None = None

    def initialize(self, S: int, B: int, may_begin: np.ndarray | None) -> None:
        """Take charge of a ring; see `Index.initialize`."""
        super().initialize(S, B, may_begin)
        self._tree = SumTree(S * B)

    def move(self, first: int, end: int, priorities: np.ndarray | None = None) -> None:
        """Drop the priorities of places that went out of reach, and give those new in reach theirs."""
        old_first, old_end = self.first, self.end
        super().move(first, end)
        self._set_places(np.arange(old_first, min(first, old_end)), 0.0)
        new = np.arange(max(old_end, first), self.end)
        if not len(new):
            return
        if priorities is None:
            fresh = np.full((len(new), self.B), self._default or self._largest)
        else:
            fresh = np.maximum(self._checked(priorities, (len(new), self.B)), _LEAST_PRIORITY)
        if self._may_begin is not None:
            fresh = fresh * self._may_begin[new % self.S]
        self._set_places(new, fresh**self.alpha * (fresh > 0))

    def _set_places(self, places: np.ndarray, values: Any) -> None:
        if len(places):
            leaves = ((places % self.S)[:, None] * self.B + np.arange(self.B)).ravel()
            self._tree.set(leaves, np.ravel(values) if np.ndim(values) else values)

    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw in proportion to priority ** alpha, which is 0 where nothing may begin."""
        if not self._tree.total > 0:
            raise self._none("none of them valid; expected at least one")
        S_idxs, B_idxs = np.divmod(self._draw_unique(size) if self.unique else self._draw_leaves(size), self.B)
        return self.first + (S_idxs - self.first) % self.S, B_idxs

    def weigh(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the weights, and keep in mind whose priorities `update_priorities` will set."""
        leaves = places % self.S * self.B + B_idxs
        self._drawn = places, leaves
        p = self._tree.values[leaves]
        return ((p.min() / p) ** self.beta).astype(np.float32)

    def _draw_leaves(self, size: int) -> np.ndarray:
        return self._tree.find(self.rng.random(size) * self._tree.total)

    def _draw_unique(self, size: int) -> np.ndarray:
        """Draw one after the other from those left.

        Leaving out what has come before does that, as it does not change the odds between the others. But it could go
        on for ever where a few places have nearly all the mass, so between rounds these are taken out of the tree.
        """
        leaves = _distinct(self._draw_leaves(size))
        values = self._tree.values[leaves]
        try:
            while len(leaves) < size:
                self._tree.set(leaves, 0.0)
                if not self._tree.total > 0:
                    what = f"{len(leaves)} of them to draw; expected at least batch_size={size} as none may come twice"
                    raise self._none(what)
                more = _distinct(self._draw_leaves(size - len(leaves)))
                leaves, values = np.concatenate([leaves, more]), np.concatenate([values, self._tree.values[more]])
        finally:
            self._tree.set(leaves, values)
        return leaves

    def update_priorities(self, priorities: np.ndarray) -> None:
        """Set the priorities of the places that were drawn last.

        Args:
            priorities: [M] float from 0, in the order in which they were drawn.

        Raises:
            ValueError: if there is another number of them, or one is negative or not finite.
            RuntimeError: if nothing was drawn since the last update.
        """
        if self._drawn is None:
            raise RuntimeError(
                "Updating priorities: nothing was drawn since the last update; expected one sample_batch before each."
            )
        places, leaves = self._drawn
        priorities = self._checked(priorities, places.shape)
        self._drawn = None
        self._largest = max(self._largest, float(priorities.max()))
        # What went out of reach meanwhile is left out: another place may have taken its leaf.
        in_reach = places >= self.first
        self._tree.set(leaves[in_reach], np.maximum(priorities[in_reach], _LEAST_PRIORITY) ** self.alpha)

    def _checked(self, priorities: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        priorities = np.asarray(priorities, np.float64)
        # Of two comparisons NaN fails both.
        good = (priorities >= 0) & (priorities < np.inf) if priorities.shape == shape else np.zeros(1, bool)
        if not good.all():
            bad = priorities[~good][:5].tolist() if priorities.shape == shape else f"the shape {priorities.shape}"
            raise ValueError(
                f"Updating priorities: got {bad}; expected {shape} finite numbers from 0. Has the loss diverged?"
            )
        return priorities

    def settings(self) -> dict[str, Any]:
        """Return the kind of index, and the exponent that the saved priorities were raised to."""
        return {**super().settings(), "pri_alpha": self.alpha}

    def state_dict(self) -> dict[str, Any]:
        """Return priorities and the state of the random stream."""
        values = torch.from_numpy(self._tree.values.copy())
        return {**super().state_dict(), "values": values, "largest": self._largest}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self._tree.set(np.arange(self._tree.size), np.asarray(state_dict["values"]))
        self._largest, self._drawn = state_dict["largest"], None


def _distinct(leaves: np.ndarray) -> np.ndarray:
    """Return every number once, in the order in which they come first."""
    _, firsts = np.unique(leaves, return_index=True)
    return leaves if len(firsts) == len(leaves) else leaves[np.sort(firsts)]
