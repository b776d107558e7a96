"""Several players of one game, trained as one policy: each player is a column of the batch.

    python examples/several_players.py [--smoke]
    python examples/several_players.py --game pettingzoo.sisl.pursuit_v5:parallel_env

Without `--game` two players walk on five cells, see their own cell and that of the other, and are paid for every step
in which they stand together. A return of 2 of 10 is chance. `--game` names what makes a game of PettingZoo, in which
all players act at the same time and have discrete actions.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.envs import players_make_vec
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler

CELLS, STEPS = 5, 10


class Meeting:
    """Game of two players, in PettingZoo's form: what it takes and gives is by player."""

    possible_agents = ("left", "right")

    def observation_space(self, agent: str) -> spaces.Box:
        """Return the space of a player's own cell and that of the other."""
        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        """Return the space of a player's moves: left, stay, right."""
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Put the players on random cells."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.cells, self.t = dict(zip(self.possible_agents, self.rng.integers(CELLS, size=2), strict=True)), 0
        return self.seen(), {}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        """Move both players; return observations, rewards, terminations, truncations and infos."""
        for player, action in actions.items():
            self.cells[player] = np.clip(self.cells[player] + action - 1, 0, CELLS - 1)
        self.t += 1
        together, ends = float(self.cells["left"] == self.cells["right"]), self.t == STEPS
        return (
            self.seen(),
            dict.fromkeys(actions, together),
            dict.fromkeys(actions, False),
            dict.fromkeys(actions, ends),
            {},
        )

    def seen(self) -> dict[str, np.ndarray]:
        """Return the observations."""
        both = np.array([self.cells["left"], self.cells["right"]], np.float32) / (CELLS - 1)
        return {"left": both, "right": both[::-1]}

    def close(self) -> None:
        """Nothing is open."""


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="", help="module:function that makes a ParallelEnv of PettingZoo")
    parser.add_argument("--n_games", type=int, default=8)
    parser.add_argument("--n_steps", type=int, default=30_000, help="steps of all players together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_000 if args.smoke else args.n_steps
    make: Any = Meeting
    if args.game:
        module, _, function = args.game.partition(":")
        make = getattr(importlib.import_module(module), function)
    n_players = len(make().possible_agents)
    sampler = SerialSampler(
        EnvCls=players_make_vec, env_kwargs=dict(make=make), batch_T=32, batch_B=n_players * args.n_games
    )
    algo = PPO(learning_rate=1e-3, gae_lambda=0.95, discount=0.9, epochs=4, entropy_loss_coeff=0.01)
    runner = MinibatchRl(
        algo, CategoricalPgAgent(), sampler, n_steps=n_steps, log_interval_steps=n_steps // 5, seed=args.seed
    )
    with logger_context("data/several_players", name=args.game or "meeting", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
