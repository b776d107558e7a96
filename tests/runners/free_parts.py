"""Algorithms that note when they learn, are slow, or go wrong in the process of the copier."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlpyt.algos import DQN
from rlpyt.replays import UniformIndex


@dataclass(kw_only=True, eq=False)
class WatchedDQN(DQN):
    """Notes before every iteration of learning how many batches are in the replay, and may be slow."""

    update_seconds: float = 0.0
    """Of every update, beside its own."""
    leads: list[tuple[int, int]] = field(default_factory=list)
    """Iteration, and batches in the replay."""

    def learn(self, itr: int) -> Any:
        """Note the lead of the sampler, then learn."""
        if itr >= self.min_itr_learn:
            self.leads.append((itr, self.replay.storage.written // self.batch_spec.T))  # type: ignore[attr-defined]
        return super().learn(itr)

    def update(self, batch: Any, hyper: Any) -> dict[str, Any]:
        """Take one update, slowly."""
        time.sleep(self.update_seconds)
        return super().update(batch, hyper)


def go_wrong(how: str) -> None:
    """Raise, die, stand still, or raise in the process that learns."""
    if how == "raise":
        raise ZeroDivisionError("the toy broke")
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[how])


class FaultyIndex(UniformIndex):
    """Goes wrong at the write of a batch, while the lock is held."""

    def __init__(self, rng: np.random.Generator, how: str, at: int) -> None:
        super().__init__(rng)
        self.how, self.left = how, at

    def move(self, first: int, end: int, priorities: np.ndarray | None) -> None:
        self.left -= 1
        if self.left < 0:
            go_wrong(self.how)
        super().move(first, end, priorities)


@dataclass(kw_only=True, eq=False)
class FaultyDQN(DQN):
    """Goes wrong before a batch is written, while the lock is free; or in an update."""

    how: str = "raise"
    """What happens."""
    at: int = 0
    """Calls before it happens."""
    in_update: bool = False
    """Whether it happens in an update."""

    def samples_to_buffer(self, samples: Any) -> Any:
        """Return the rows, unless it is time."""
        self.at -= not self.in_update
        if self.at < -1:  # the first call is for the example
            go_wrong(self.how)
        return super().samples_to_buffer(samples)

    def update(self, batch: Any, hyper: Any) -> dict[str, Any]:
        """Take an update, unless it is time."""
        self.at -= self.in_update
        if self.at < 0:
            go_wrong(self.how)
        return super().update(batch, hyper)
