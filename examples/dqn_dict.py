"""DQN on an environment of one's own whose observation is a dictionary of an image and a vector.

    python examples/dqn_dict.py

A square falls through the image; the vector says where the paddle is. The agent moves it to catch the square. Spaces
are all that model and replay are told: a Dict is encoded field by field.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.agents import QrDqnAgent
from rlpyt.algos import QRDQN
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler

SIZE, N_SQUARES = 24, 5


class CatchEnv(gymnasium.Env[Any, Any]):
    """Catch five falling squares: reward 1 for each caught, -1 for each missed."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (1, SIZE, SIZE), np.uint8), "paddle": spaces.Box(-1.0, 1.0, (1,), np.float32)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._left, self._paddle = N_SQUARES, SIZE // 2
        self._drop()
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the paddle left, not at all, or right; the square falls by two."""
        self._paddle = int(np.clip(self._paddle + 3 * (action - 1), 0, SIZE - 1))
        self._y += 2
        if self._y < SIZE - 2:
            return self._observation(), 0.0, False, False, {}
        reward = 1.0 if abs(self._paddle - self._x) <= 3 else -1.0
        self._left -= 1
        self._drop()
        return self._observation(), reward, self._left == 0, False, {}

    def _drop(self) -> None:
        self._x, self._y = int(self.np_random.integers(2, SIZE - 2)), 2

    def _observation(self) -> dict[str, np.ndarray]:
        image = np.zeros((1, SIZE, SIZE), np.uint8)
        image[0, self._y - 2 : self._y + 2, self._x - 2 : self._x + 2] = 255
        return {"image": image, "paddle": np.array([2 * self._paddle / (SIZE - 1) - 1], np.float32)}


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/dqn_dict")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 600 if args.smoke else 40_000
    sampler = SerialSampler(CatchEnv, {}, batch_T=8, batch_B=4, eval_n_envs=4, eval_max_trajectories=20)
    algo = QRDQN(
        learning_rate=5e-4,
        batch_size=32,
        replay_ratio=8,
        replay_size=20_000,
        min_steps_learn=400,
        eps_steps=n_steps // 4,
        target_update_interval=200,
        double_dqn=True,
        n_step_return=3,
    )
    layers = dict(channels=(16, 32), kernel_sizes=(4, 3), strides=(2, 2), paddings=(0, 0), fc_sizes=64, hidden_sizes=64)
    agent = QrDqnAgent(eps_final=0.02, eps_eval=0.0, n_quantiles=32, model_kwargs=layers)
    runner = MinibatchRlEval(
        algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // (1 if args.smoke else 5), seed=args.seed
    )
    with logger_context(args.log_dir, name="dqn_dict", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
