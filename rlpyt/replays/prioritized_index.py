"""Prioritized sampling from a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlpyt.replays.index import Index, checked_priorities
from rlpyt.replays.interface import Allocate
from rlpyt.replays.sum_tree import SumTree
from rlpyt.types import StateDict

_LEAST_PRIORITY = 1e-6  # so that every start index can be drawn again


class PrioritizedIndex(Index):
    """Index that draws in proportion to priority ** alpha, with importance weights.

        P(i) = p_i^alpha / sum_k p_k^alpha,    w_i = (N P(i))^-beta / max_j w_j over the batch

    The priorities are stored as they came, beside the tree of their powers. Setting another alpha computes the whole
    tree again (20 ms for a million), so that all priorities are raised to the same exponent.

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.

    Args:
        rng: random stream of the replay.
        alpha: exponent of the priorities, from 0 (uniform); may be set at any time.
        beta: exponent of the importance weights, in [0, 1]; may be set at any time.
        default_priority: of a start index that is new in reach; None is the largest given so far, 1 at first.
        unique: whether no start index comes twice in a batch: each is drawn from those left.
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
        self.beta, self.unique = beta, unique
        self.writes_to_draw = unique  # those drawn are taken out of the tree for a while
        self._default, self._given_alpha = default_priority, alpha
        self._tree, self._priorities, self._alpha = SumTree(0), np.zeros(0), np.array([float(alpha)])

    def initialize(self, S: int, B: int, may_begin: np.ndarray | None, allocate: Allocate) -> None:
        """Allocate the state for a ring; see `Index.initialize`."""
        super().initialize(S, B, may_begin, allocate)
        self._given_alpha = self.alpha
        self._tree = SumTree(S * B, allocate=allocate)
        # As they came; 0 where nothing may be drawn.
        self._priorities = allocate(np.float64(0), (S * B,))
        self._largest: np.ndarray = allocate(np.float64(0), (1,))
        self._alpha = allocate(np.float64(0), (1,))
        self._largest[0], self._alpha[0] = 1.0, self._given_alpha

    @property
    def alpha(self) -> float:
        """Exponent of the priorities."""
        return float(self._alpha[0])

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        if not 0 <= alpha < np.inf:
            raise ValueError(f"Setting alpha of a prioritised replay: got {alpha}; expected a number from 0.")
        if alpha != self._alpha[0]:
            self._alpha[0] = alpha
            self._tree.set_all(self._raised(self._priorities))

    def _raised(self, priorities: np.ndarray) -> np.ndarray:
        """Return priorities to the power of alpha; 0 stays 0 for any alpha."""
        return priorities**self.alpha * (priorities > 0)

    def move(self, first: int, end: int, priorities: np.ndarray | None) -> None:
        """Drop the priorities of start indexes that went out of reach, and give those new in reach theirs."""
        old_first, old_end = self.first, self.end
        super().move(first, end, None)
        envs = np.arange(self.B)
        self._store(np.arange(old_first, min(first, old_end))[:, None], envs, 0.0)
        new = np.arange(max(old_end, first), self.end)
        if priorities is None:
            fresh = np.full((len(new), self.B), self._default or self._largest[0])
        else:
            fresh = np.maximum(checked_priorities(priorities, (len(new), self.B)), _LEAST_PRIORITY)
        self._store(new[:, None], envs, fresh * self.may_begin(new[:, None], envs))

    def _store(self, places: np.ndarray, B_idxs: np.ndarray, priorities: np.ndarray | float) -> None:
        """Set the priorities of start indexes, which are broadcast against environments."""
        leaves, flat = self._leaves(places, B_idxs).ravel(), np.ravel(priorities)
        if len(leaves):
            self._priorities[leaves] = flat
            self._tree.set(leaves, self._raised(flat))

    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Propose start indexes in proportion to priority ** alpha, which is 0 where nothing may begin."""
        if not self._tree.total > 0:
            raise self.nothing_to_draw("none of them valid; expected at least one")
        S_idxs, B_idxs = np.divmod(self._draw_unique(size) if self.unique else self._tree.draw(size, self.rng), self.B)
        first = self.first
        return first + (S_idxs - first) % self.S, B_idxs

    def weigh(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the importance weights; w_i = (N P(i))^-beta where another divides them by the largest."""
        p = self._tree.values[self._leaves(places, B_idxs)]
        one = p.min() if self.divides_by_largest else self._tree.total / self.n_drawable()
        return ((one / p) ** self.beta).astype(np.float32)

    def set_priorities(self, places: np.ndarray, B_idxs: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of start indexes in reach; zero becomes the least priority, 1e-6."""
        self._largest[0] = max(self._largest[0], priorities.max())
        self._store(places, B_idxs, np.maximum(priorities, _LEAST_PRIORITY))

    def _leaves(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        """Return the numbers of the tree that belong to start indexes."""
        return places % self.S * self.B + B_idxs

    def _draw_unique(self, size: int) -> np.ndarray:
        """Draw one after the other from those left, by drawing again what has come before.

        As a few of them may have nearly all the mass, those drawn are taken out of the tree between two rounds.
        """
        leaves = _distinct(self._tree.draw(size, self.rng))
        values = self._tree.values[leaves]
        try:
            while len(leaves) < size:
                self._tree.set(leaves, 0.0)
                if not self._tree.total > 0:
                    what = f"{len(leaves)} of them to draw; expected at least batch_size={size} as none may come twice"
                    raise self.nothing_to_draw(what)
                more = _distinct(self._tree.draw(size - len(leaves), self.rng))
                leaves, values = np.concatenate([leaves, more]), np.concatenate([values, self._tree.values[more]])
        finally:
            self._tree.set(leaves, values)
        return leaves

    def settings(self) -> dict[str, Any]:
        """Return the kind of index, and alpha as it was at the start of the run."""
        return {**super().settings(), "pri_alpha": self._given_alpha}

    def state_dict(self) -> StateDict:
        """Return priorities as they came, their exponent, counter and random stream."""
        own = {"priorities": torch.from_numpy(self._priorities.copy()), "alpha": self.alpha}
        return {**super().state_dict(), **own, "largest": float(self._largest[0])}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self._priorities[:] = np.asarray(state_dict["priorities"])
        self._alpha[0] = state_dict["alpha"]
        self._tree.set_all(self._raised(self._priorities))
        self._largest[0] = state_dict["largest"]


def _distinct(leaves: np.ndarray) -> np.ndarray:
    """Return every number once, in the order in which they come first."""
    _, firsts = np.unique(leaves, return_index=True)
    return leaves if len(firsts) == len(leaves) else leaves[np.sort(firsts)]
