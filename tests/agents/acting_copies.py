"""Copies of an agent that act in another process, which here is this one."""

from __future__ import annotations

import pickle
from typing import Any

from rlpyt.samplers.weight_store import WeightStore
from rlpyt.utils.shared_memory import dumps


class Elsewhere:
    """Copy of an agent that acts by what a store has, as another process has both."""

    def __init__(self, agent: Any, n_versions: int = 1) -> None:
        self.master = agent
        copy = agent.acting_copy()
        self.store = WeightStore(copy, n_versions)
        self.agent, self.theirs = pickle.loads(dumps((copy, self.store)))
        self.publish()
        self.take()

    def publish(self, version: int | None = None) -> None:
        self.store.publish(self.master, version)

    def take(self, version: int | None = None) -> int:
        return int(self.theirs.take(self.agent, version))
