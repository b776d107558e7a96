"""PPO with an LSTM on CartPole whose velocities are hidden: the agent has to remember where the pole was.

python examples/ppo_lstm.py
python examples/ppo_lstm.py --feed_forward     the same without a memory, to see what it is good for
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

from rlpyt.agents import PgAgent, RecurrentCategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler


class PositionsOnly(gymnasium.ObservationWrapper[np.ndarray, int, np.ndarray]):
    """Shows the cart's position and the pole's angle, not their velocities."""

    def __init__(self, env: gymnasium.Env[np.ndarray, int]) -> None:
        super().__init__(env)
        box = env.observation_space
        assert isinstance(box, gymnasium.spaces.Box)
        self.observation_space = gymnasium.spaces.Box(box.low[[0, 2]], box.high[[0, 2]], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Leave the velocities out."""
        return observation[[0, 2]]


def make_env(**kwargs: Any) -> gymnasium.Env[np.ndarray, int]:
    """Return CartPole without velocities."""
    return PositionsOnly(gymnasium.make("CartPole-v1", **kwargs))


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feed_forward", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/ppo_lstm")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_024 if args.smoke else 200_000
    agent: PgAgent = PgAgent()
    if not args.feed_forward:
        agent = RecurrentCategoricalPgAgent(model_kwargs=dict(hidden_sizes=64, rnn_size=64))
    runner = MinibatchRl(
        algo=PPO(
            learning_rate=1e-3, gae_lambda=0.95, ratio_clip=0.2, epochs=6, minibatches=4, normalize_advantage=True
        ),
        agent=agent,
        sampler=SerialSampler(EnvCls=make_env, env_kwargs={}, batch_T=64, batch_B=16),
        n_steps=n_steps,
        log_interval_steps=n_steps // 10,
        seed=args.seed,
    )
    with logger_context(args.log_dir, name="ppo_lstm", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
