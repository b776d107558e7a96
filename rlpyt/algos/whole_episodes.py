"""Returns of whole episodes by the individual of a population that acted in them, from batches of rows."""

from __future__ import annotations

import numpy as np

from rlpyt.types import Samples, StateDict

_NOT_WHOLE = -2
"""Generation of an open episode of which the rows before are missing, or were acted by several individuals."""


class WholeEpisodes:
    """Returns of the first `n_episodes` whole episodes of every environment in a generation.

    An episode counts if all of its rows were acted by one individual of the generation at hand: not one that was open
    when the generation changed, one that was cut off when a worker was lost, or the first of the run, whose begin may
    have been skipped by random steps. Every environment has as many episodes, so that short ones are not favoured.

    Args:
        B: environments.
        n_episodes: of each environment in a generation.
    """

    def __init__(self, B: int, n_episodes: int) -> None:
        self.returns = np.zeros((B, n_episodes))
        """Sums of rewards, of which the first `counts[b]` are there."""
        self.counts = np.zeros(B, np.int64)
        self.individual = np.full(B, -1)
        """Who acts in the environment in this generation."""
        self._open_return = np.zeros(B)
        self._open_generation = np.full(B, _NOT_WHOLE)
        self._open_restarts = np.zeros(B, np.int64)
        self._at_start = np.zeros(B, bool)  # whether the next valid row begins an episode

    def take(self, samples: Samples, generation: int) -> None:
        """Take in a batch of rows; `generation` is the one at hand."""
        env, info = samples.env, samples.agent.agent_info
        arrays = (env.reward, env.done, env.valid, info.individual, info.generation, info.restarts)
        reward, done, valid, individual, acted, restarts = (np.asarray(x) for x in arrays)
        T = len(reward)
        for t in range(T):
            self._begin(valid[t], acted[t], restarts[t])
            self._open_return += np.where(valid[t], reward[t], 0.0)
            # Rows of a worker that was lost end in a truncation; the row after it is of the next process.
            lost = restarts[t + 1] != restarts[t] if t + 1 < T else False
            self._end(done[t] & valid[t], lost, individual[t], generation)

    def _begin(self, valid: np.ndarray, acted: np.ndarray, restarts: np.ndarray) -> None:
        """Begin episodes, and mark those that go on with another individual or in another process."""
        begins = valid & self._at_start
        self._open_return[begins] = 0.0
        self._open_generation[begins] = acted[begins]
        self._open_restarts[begins] = restarts[begins]
        changed = valid & ((self._open_generation != acted) | (self._open_restarts != restarts))
        self._open_generation[changed] = _NOT_WHOLE
        # After an episode that has ended, and after a lost one whose end nothing else marks, comes a row that is not.
        self._at_start = ~valid

    def _end(self, ends: np.ndarray, lost: np.ndarray | bool, individual: np.ndarray, generation: int) -> None:
        """Keep the returns of episodes that end, and that count."""
        whole = ends & (self._open_generation == generation) & ~np.asarray(lost)
        for b in np.flatnonzero(whole & (self.counts < self.returns.shape[1])):
            self.returns[b, self.counts[b]] = self._open_return[b]
            self.counts[b] += 1
            self.individual[b] = individual[b]
        self._at_start |= ends

    @property
    def complete(self) -> np.ndarray:
        """[B] bool, environments with all of their episodes."""
        return self.counts == self.returns.shape[1]

    def next_generation(self) -> None:
        """Forget the returns; episodes that are open go on."""
        self.counts[:] = 0

    def state_dict(self) -> StateDict:
        """Return all returns, and where open episodes stand."""
        return {name: array.copy() for name, array in vars(self).items()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""
        for name, array in vars(self).items():
            array[...] = np.asarray(state_dict[name])
