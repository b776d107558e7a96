"""Versions of an agent's weights and numbers in shared memory: the learner publishes them, and others take them."""

from __future__ import annotations

import numpy as np
from torch import nn

from rlpyt.agents.shared_weights import SharedNumbers, SharedWeights
from rlpyt.utils.shared_memory import shared_array

_BEING_WRITTEN = -1
_ATTEMPTS = 100


class WeightVersions:
    """The last n versions of what an agent acts by: networks, and numbers such as how far exploration has gone.

    Version v lies in block v % n. Every block has a stamp, the version in it, which is written last and removed first.
    So a reader that finds the stamp before and after its copy has a whole version. One process writes.

    Args:
        acting: the networks that act, on the CPU.
        numbers: those of the agent.
        n: versions that are kept.
    """

    def __init__(self, acting: nn.Module, numbers: SharedNumbers, n: int) -> None:
        self._weights = [SharedWeights(acting) for _ in range(n)]
        self._numbers = shared_array((n, len(numbers.values)), np.float64)
        self._stamps = shared_array(n, np.int64)
        self._stamps[:] = _BEING_WRITTEN
        self._taken = _BEING_WRITTEN  # by this process

    def publish(self, version: int, acting: nn.Module, numbers: SharedNumbers) -> None:
        """Write a version over version - n, which nobody may need any more."""
        block = version % len(self._stamps)
        self._stamps[block] = _BEING_WRITTEN
        self._weights[block].publish(acting)
        self._numbers[block] = numbers.values
        self._stamps[block] = version

    def take(self, version: int, acting: nn.Module, numbers: SharedNumbers) -> None:
        """Copy a version into networks, on any device, and numbers of this process.

        Raises:
            RuntimeError: if the version is not there, or was overwritten meanwhile.
        """
        block = version % len(self._stamps)
        found = int(self._stamps[block])
        if found == version:
            self._weights[block].copy_to(acting)
            numbers.values[:] = self._numbers[block]
            found = int(self._stamps[block])
        if found != version:
            raise RuntimeError(
                f"Taking version {version} of the weights: its block holds version {found} (-1 while one is written); "
                f"expected version {version}. Of {len(self._stamps)} versions the last ones are kept."
            )
        self._taken = version

    def take_newest(self, acting: nn.Module, numbers: SharedNumbers) -> int:
        """Copy the newest version, unless it was taken last, and return it; others may be published meanwhile.

        Raises:
            RuntimeError: if every version was overwritten while it was copied.
        """
        for attempt in range(_ATTEMPTS):
            version = int(self._stamps.max())
            if version == self._taken:
                break
            try:
                self.take(version, acting, numbers)
            except RuntimeError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        return self._taken
