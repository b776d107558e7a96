"""A game of two players in turns, learned by play against earlier versions of the policy.

    python examples/self_play.py [--smoke]

For the learner this is an environment of one player: its opponent moves inside of `step`. The opponent of each game is
one of the last versions of the policy; a hook adds one at each row of the log. Evaluation is against random moves.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.core import Agent
from rlpyt.logging import logger_context
from rlpyt.runners import Hook, MinibatchRlEval
from rlpyt.samplers import SerialSampler

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])


@dataclass
class Versions:
    """Earlier versions of the policy; where there is none, moves are random."""

    n_kept: int = 5
    agents: list[Any] = field(default_factory=list)

    def add(self, agent: Agent) -> None:
        """Freeze the policy as it is now, and forget the oldest version."""
        frozen: Any = agent.acting_copy()
        frozen.eval_mode(0)
        self.agents = [*self.agents, frozen][-self.n_kept :]

    def one(self, rng: np.random.Generator) -> Any:
        """Return the opponent of a game; None moves at random."""
        return self.agents[rng.integers(len(self.agents))] if self.agents else None


class TicTacToe(gymnasium.Env[dict[str, np.ndarray], np.int64]):
    """Board seen by who moves next: 1 for own fields, -1 for those of the other. The return is 1, 0 or -1."""

    action_space = spaces.Discrete(9)
    observation_space: Any = spaces.Dict(
        board=spaces.Box(-1, 1, (9,), np.float32), action_mask=spaces.Box(0, 1, (9,), np.int8)
    )

    def __init__(self, versions: Versions) -> None:
        self.versions = versions

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin a game against one of the versions, who begins it in half of the games."""
        super().reset(seed=seed)
        self.board, self.opponent = np.zeros(9, np.float32), self.versions.one(self.np_random)
        if self.np_random.integers(2):
            self.put(self.answer(), -1)
        return self.seen_by(1), {}

    def step(self, action: np.int64) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Move, and let the opponent answer."""
        for place, player in ((lambda: action, 1), (self.answer, -1)):
            if self.put(place(), player):
                return self.seen_by(1), float(player), True, False, {}
            if self.board.all():
                return self.seen_by(1), 0.0, True, False, {}
        return self.seen_by(1), 0.0, False, False, {}

    def put(self, place: int | np.int64, player: int) -> bool:
        """Put a stone; return whether it completes a line."""
        self.board[place] = player
        return bool((self.board[LINES].sum(axis=1) == 3 * player).any())

    def answer(self) -> int:
        """Return the move of the opponent, who sees the board from its own side."""
        if self.opponent is None:
            return int(self.np_random.choice(np.flatnonzero(self.board == 0)))
        return int(self.opponent.step(self.seen_by(-1), None, None).action)

    def seen_by(self, player: int) -> dict[str, np.ndarray]:
        """Return the observation of a player."""
        return {"board": self.board * player, "action_mask": (self.board == 0).astype(np.int8)}


@dataclass(eq=False)
class AddVersion(Hook):
    """Hook that adds the policy of now to the opponents at each row of the log."""

    versions: Versions

    def on_row(self, runner: Any, row: Any, step: int) -> None:
        """Add it."""
        self.versions.add(runner.agent)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_000 if args.smoke else 60_000
    versions = Versions()
    sampler = SerialSampler(
        EnvCls=TicTacToe,
        env_kwargs=dict(versions=versions),
        eval_env_overrides=dict(versions=Versions()),  # stays empty: random moves
        batch_T=32,
        batch_B=16,
        eval_n_envs=10,
        eval_max_steps=5_000,
        eval_max_trajectories=20 if args.smoke else 200,
    )
    algo = PPO(learning_rate=1e-3, gae_lambda=0.95, discount=1.0, epochs=4, entropy_loss_coeff=0.02)
    runner = MinibatchRlEval(
        algo,
        CategoricalPgAgent(),
        sampler,
        n_steps=n_steps,
        log_interval_steps=n_steps // 10,
        seed=args.seed,
        hooks=[AddVersion(versions)],
    )
    with logger_context("data/self_play", name="tic_tac_toe", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
