"""Several players of one game, trained as one policy: each player is a column of a vector environment.

    python examples/several_players.py [--smoke]

Players walk on five cells, see their own cell and that of the other, and are paid for every step in which they stand
together. A return of 2 of 10 is chance.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler

CELLS, STEPS = 5, 10


class Meeting(VectorEnv[Any, Any, Any]):
    """Games of two players that end together; columns 2 i and 2 i + 1 are the players of game i."""

    def __init__(self, num_envs: int) -> None:
        assert num_envs % 2 == 0, f"Meeting: num_envs is {num_envs}; expected pairs of players"
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.single_action_space = spaces.Discrete(3)  # left, stay, right
        self.cells, self.t = np.zeros(num_envs, int), 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin all games; the first of the seeds is the games'."""
        if seed is not None:
            self.np_random = np.random.default_rng(seed[0])
        self.cells, self.t = self.np_random.integers(CELLS, size=self.num_envs), 0
        return self._observation(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Move all players; the step after the last one of a game begins the next, as in all gymnasium's vectors."""
        if self.t == STEPS:
            observation, info = self.reset()
            none = np.zeros(self.num_envs, bool)
            return observation, np.zeros(self.num_envs, np.float32), none, none, info
        self.cells, self.t = np.clip(self.cells + actions - 1, 0, CELLS - 1), self.t + 1
        together = (self.cells == self._others()).astype(np.float32)
        ended = np.full(self.num_envs, self.t == STEPS)
        return self._observation(), together, np.zeros_like(ended), ended, {}

    def _others(self) -> np.ndarray:
        return self.cells.reshape(-1, 2)[:, ::-1].reshape(-1)

    def _observation(self) -> np.ndarray:
        return np.stack([self.cells, self._others()], axis=1).astype(np.float32) / (CELLS - 1)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_000 if args.smoke else 30_000
    sampler = SerialSampler(EnvCls=Meeting, env_kwargs={}, batch_T=32, batch_B=16)  # eight games of two players
    algo = PPO(learning_rate=1e-3, gae_lambda=0.95, discount=0.9, epochs=4, entropy_loss_coeff=0.01)
    runner = MinibatchRl(
        algo, CategoricalPgAgent(), sampler, n_steps=n_steps, log_interval_steps=n_steps // 5, seed=args.seed
    )
    with logger_context("data/several_players", name="meeting", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
