"""DQN with goals in hindsight on bit flipping, where a reward is never seen without them.

    python examples/bit_flip.py
    python examples/bit_flip.py --strategy none

A row of bits shall become another one, by one flip a step. Every step costs 1 until all bits are right: with 15 bits, a
random policy finds the goal about once in two thousand episodes (Andrychowicz et al. 2017, arXiv:1707.01495, section
3.1). The column SuccessAverage of the log is the share of evaluation episodes that reach their goal.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.logging import logger_context
from rlpyt.replays import Hindsight
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler


class BitFlip(gymnasium.Env[Any, Any]):
    """Flip one of `n_bits` bits a step, until they are those of the goal; the episode has `n_bits` steps at most."""

    def __init__(self, n_bits: int = 15) -> None:
        bits = spaces.Box(0.0, 1.0, (n_bits,), np.float32)
        self.observation_space = spaces.Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
        self.action_space = spaces.Discrete(n_bits)
        self.n_bits = n_bits

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode with other bits and another goal."""
        super().reset(seed=seed)
        self._bits, self._goal = self.np_random.integers(2, size=(2, self.n_bits)).astype(np.float32)
        self._t = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Flip a bit."""
        self._t += 1
        self._bits[action] = 1.0 - self._bits[action]
        reached = bool(self.compute_terminated(self._bits, self._goal, {}))
        reward = float(self.compute_reward(self._bits, self._goal, {}))
        return self._observation(), reward, reached, self._t == self.n_bits, {"is_success": reached}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        """Return 0 where a goal is reached, else -1; for one goal or many."""
        return self.compute_terminated(achieved_goal, desired_goal, info) - 1.0

    def compute_terminated(
        self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: dict[str, Any]
    ) -> np.ndarray:
        """Return whether a goal is reached."""
        reached: np.ndarray = (achieved_goal == desired_goal).all(-1)
        return reached

    def _observation(self) -> dict[str, np.ndarray]:
        return {"observation": self._bits, "achieved_goal": self._bits, "desired_goal": self._goal}


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=["future", "final", "episode", "none"], default="future")
    parser.add_argument("--n_goals", type=float, default=4.0)
    parser.add_argument("--n_bits", type=int, default=15)
    parser.add_argument("--n_steps", type=float, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/bit_flip")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_600 if args.smoke else int(args.n_steps)
    sampler = SerialSampler(
        BitFlip,
        dict(n_bits=args.n_bits),
        batch_T=8,
        batch_B=8,
        eval_n_envs=8,
        eval_max_trajectories=8 if args.smoke else 100,
    )
    algo = DQN(
        hindsight=None if args.strategy == "none" else Hindsight(strategy=args.strategy, n_goals=args.n_goals),
        discount=0.98,
        learning_rate=1e-3,
        batch_size=128,
        replay_ratio=16,
        replay_size=100_000,
        min_steps_learn=1_000,
        eps_steps=n_steps // 10,
        target_update_interval=1,
        target_update_tau=0.02,
        double_dqn=True,
    )
    agent = DqnAgent(eps_init=0.5, eps_final=0.05, eps_eval=0.0, model_kwargs=dict(hidden_sizes=256))
    runner = MinibatchRlEval(algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // 6, seed=args.seed)
    with logger_context(args.log_dir, name=f"bit_flip_{args.strategy}", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
