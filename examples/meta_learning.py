"""Meta-learning as RL^2 (Duan et al. 2016): an episode is a trial, several games of one task, and the agent remembers.

    python examples/meta_learning.py [--feed_forward] [--smoke]

A task hides a prize at one end of a line of five cells. A trial is four games of the same task: whoever tries one end
in the first game knows the right one in the others, a return of 3.5 at best. Without a memory it is 2.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, RecurrentCategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler


class TwoEnds(gymnasium.Env[np.ndarray, Any]):
    """A line of five cells with a prize at one end; a game ends at either of them. `new_task` False keeps the prize."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    prize = cell = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Stand in the middle."""
        super().reset(seed=seed)
        if (options or {}).get("new_task", True):
            self.prize = int(self.np_random.choice([-2, 2]))
        self.cell = 0
        return np.array([0], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go left or right."""
        self.cell += 2 * int(action) - 1
        return np.array([self.cell / 2], np.float32), float(self.cell == self.prize), abs(self.cell) == 2, False, {}


class Trial(gymnasium.Wrapper[np.ndarray, Any, np.ndarray, Any]):
    """Episodes of one task as one episode, in which a last number of the observation says that a game begins.

    Args:
        env: whose reset takes the option `new_task`.
        n_games: episodes of a trial.
    """

    def __init__(self, env: gymnasium.Env[np.ndarray, Any], n_games: int = 4) -> None:
        super().__init__(env)
        box = env.observation_space
        assert isinstance(box, spaces.Box)
        self.observation_space = spaces.Box(np.append(box.low, np.float32(0)), np.append(box.high, np.float32(1)))
        self.n_games, self.game = n_games, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a trial, with a new task."""
        self.game = 0
        return self._begin(new_task=True, seed=seed), {}

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Step the game; its end is the beginning of the next, or the end of the trial."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated):
            return np.append(observation, np.float32(0)), reward, False, False, info
        self.game += 1
        if self.game == self.n_games:
            return np.append(observation, np.float32(0)), reward, True, False, info
        return self._begin(new_task=False), reward, False, False, info

    def _begin(self, new_task: bool, seed: int | None = None) -> np.ndarray:
        return np.append(self.env.reset(seed=seed, options={"new_task": new_task})[0], np.float32(1))


def make_trial(n_games: int = 4) -> Trial:
    """Return the environment of the run."""
    return Trial(TwoEnds(), n_games)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feed_forward", action="store_true", help="an agent that does not remember")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_000 if args.smoke else 100_000
    sampler = SerialSampler(EnvCls=make_trial, env_kwargs=dict(n_games=4), batch_T=32, batch_B=16)
    # The agent is given its last action and reward beside the observation, as RL^2 asks.
    agent = CategoricalPgAgent() if args.feed_forward else RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=32))
    algo = PPO(learning_rate=3e-3, gae_lambda=0.95, epochs=4, entropy_loss_coeff=0.01, normalize_advantage=True)
    runner = MinibatchRl(algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // 5, seed=args.seed)
    with logger_context("data/meta_learning", name="two_ends", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
