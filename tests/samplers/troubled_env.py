"""Environments that get into trouble at a step of the episodes with given seeds, or need much of their process."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tests.toy_envs import CountingEnv


class TroubledEnv(CountingEnv):
    """Raises, stands still or ends its process at its ninth step.

    Args:
        trouble_of: "raise", "stand" or "die", by the seed of the episode.
    """

    def __init__(self, trouble_of: Mapping[int, str]) -> None:
        super().__init__(lengths=(40,))
        self.trouble_of, self.trouble = trouble_of, ""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.trouble = self.trouble_of.get(-1 if seed is None else seed, "")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.trouble and self.t == 8:
            if self.trouble == "raise":
                raise OSError("no display")
            if self.trouble == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1000)
        return super().step(action)


class NeedyEnv(CountingEnv):
    """Needs the main thread, for a handler of a signal.

    Args:
        draws: whether it draws its rewards from the global generators.
    """

    def __init__(self, draws: bool = True) -> None:
        super().__init__()
        self.draws = draws
        signal.signal(signal.SIGALRM, lambda *_: None)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if self.draws:
            reward = random.random() + np.random.rand() + torch.rand(()).item()
        return observation, reward, *rest
