"""The collector's own cost per row: everything between environment and network, both of which do nothing here.

python benchmarks/collector.py
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent
from rlpyt.samplers import SerialSampler
from rlpyt.types import AgentStep

T, EPISODE = 128, 200


class NullEnv:
    """Returns the same observation for ever, in episodes of 200 steps."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._observation = np.zeros(4, np.float32)
        self._info: dict[str, Any] = {}
        self._t = 0

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._t = 0
        return self._observation, self._info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._t += 1
        return self._observation, 1.0, False, self._t == EPISODE, self._info


class NullAgent(CategoricalPgAgent):
    """Chooses once, and gives the same answer ever after."""

    _answer: AgentStep | None = None

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> AgentStep:
        if self._answer is None or len(prev_reward) != len(self._answer.action):
            self._answer = super().step(observation, prev_action, prev_reward)
        return self._answer


def environment_alone(n: int = 100_000) -> float:
    """Return the seconds of one step of the environment."""
    env = NullEnv()
    start = time.perf_counter()
    for _ in range(n):
        env.step(0)
    return (time.perf_counter() - start) / n


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    print("microseconds per row, environment's own step taken off, medians of 9 batches")
    for B in (1, 4, 8, 16, 64):
        sampler = SerialSampler(NullEnv, {}, T, B, max_decorrelation_steps=0)
        sampler.initialize(NullAgent())
        sampler.obtain_samples(0)
        times = []
        for itr in range(1, 10):
            start = time.perf_counter()
            sampler.obtain_samples(itr)
            times.append((time.perf_counter() - start) / (T * B))
        print(f"B {B:>3}: {1e6 * (median(times) - environment_alone()):6.2f}")


if __name__ == "__main__":
    main()
