"""An environment of one's own, and an agent that learns it: all that is needed stands here.

    python examples/custom_environment.py

Any object with these two spaces and two methods will do, subclass of `gymnasium.Env` or not; it may also be built by a
function of yours, or by `gymnasium.make` with `env_kwargs=dict(id=...)`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from gymnasium import spaces

from rlpyt.agents import PgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import CpuSampler


class Corridor:
    """Walk to the far end of a corridor; every step costs a little, and it is dark after a while."""

    def __init__(self, length: int = 10) -> None:
        self.length = length
        self.observation_space = spaces.Dict({"place": spaces.Box(0, 1, (1,)), "lamp": spaces.Discrete(2)})
        self.action_space = spaces.Discrete(2)

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start at the near end."""
        self.place, self.steps = 0, 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take a step back (0) or ahead (1)."""
        self.place, self.steps = max(0, self.place + (1 if action == 1 else -1)), self.steps + 1
        terminated = self.place == self.length  # the end is reached: nothing more to win
        truncated = self.steps == 10 * self.length  # time is up: the value of the last observation still counts
        return self._observe(), 1.0 if terminated else -0.1, terminated, truncated, {"place": self.place}

    def _observe(self) -> dict[str, Any]:
        return {"place": np.array([self.place / self.length], np.float32), "lamp": int(self.steps < 20)}


if __name__ == "__main__":  # workers import this file: what follows must run in the master alone
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    sampler = CpuSampler(EnvCls=Corridor, env_kwargs=dict(length=10), batch_T=64, batch_B=8, n_workers=2)
    n_steps = 1_024 if args.smoke else 40_000
    algo = PPO(learning_rate=1e-3, gae_lambda=0.95)
    runner = MinibatchRl(algo, PgAgent(), sampler, n_steps=n_steps, log_interval_steps=n_steps // 4, seed=0)
    with logger_context("data/corridor", name="corridor"):
        runner.train()
