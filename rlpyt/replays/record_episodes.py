"""Wrapper of an environment that records the episodes played in it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import gymnasium
import numpy as np

from rlpyt.namedarraytuple import Buffer
from rlpyt.replays.stored_data import Episode, StoredData
from rlpyt.spaces import EnvSpaces, Space


class RecordEpisodes(gymnasium.Wrapper[Buffer, Buffer, Buffer, Buffer]):
    """Wrapper of an environment that records the episodes played in it, by an agent or anybody; `data()` returns them.

    An episode that was reset before its end counts as truncated.
    """

    def __init__(self, env: gymnasium.Env[Buffer, Buffer]) -> None:
        super().__init__(env)
        self._episodes: list[tuple[list[Buffer], ...]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Buffer, dict[str, object]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._episodes.append(([deepcopy(observation)], [], [], [], []))
        return observation, info

    def step(self, action: Buffer) -> tuple[Buffer, Buffer, bool, bool, dict[str, object]]:
        """Take a step, and record it."""
        result = self.env.step(action)
        values = result[0], action, *result[1:4]
        for record, value in zip(self._episodes[-1], values, strict=True):
            record.append(deepcopy(value))  # an environment may write the next one over it
        return result

    def data(self) -> StoredData:
        """Return all episodes so far.

        Raises:
            ValueError: if there was no step, or an observation does not fit its space.
        """
        spaces = EnvSpaces(self.observation_space, self.action_space)
        stacked = (
            Episode(_stacked(spaces.observation, e[0]), _stacked(spaces.action, e[1]), *e[2:])
            for e in self._episodes
            if e[2]
        )
        return StoredData.from_episodes(spaces, stacked)


def _stacked(space: Space, values: Sequence[Buffer]) -> Buffer:
    """Return values of a space as arrays [n, ...], in its structure."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _stacked(part, [value[key] for value in values]) for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_stacked(part, [value[i] for value in values]) for i, part in enumerate(space.spaces))
    return np.stack(values)
