"""Memory: a cue is shown at the first step of an episode alone, and asked for at the last.

    python examples/memory.py --algo r2d1
    python examples/memory.py --algo pqn
    python examples/memory.py --algo sac --feed_forward

R2D1 and PQN choose between two actions: 1 for the right one, 0.5 by guessing. SAC and TD3 have one action in
[-0.1, 3] and pay for its distance to 0.4 or to 2.4: 0 at best, -1 without a memory. `--feed_forward` gives the agent
that has none, DQN for R2D1.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.agents import DqnAgent, PqnAgent, R2d1Agent, RecurrentSacAgent, RecurrentTd3Agent, SacAgent, Td3Agent
from rlpyt.algos import DQN, PQN, R2D1, SAC, TD3
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler


class CueEnv(gymnasium.Env[np.ndarray, Any]):
    """Shows 1 or -1 first, then zeros, and says by a second number when the action counts."""

    def __init__(self, continuous: bool, delay: int = 4) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Box(np.float32(-0.1), np.float32(3), (1,)) if continuous else spaces.Discrete(2)
        self.continuous, self.delay = continuous, delay
        self.cue = self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a cue and show it."""
        super().reset(seed=seed)
        self.cue, self.t = int(self.np_random.integers(2)), 0
        return np.array([2 * self.cue - 1, 0], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Reward the action of the last step."""
        over = self.t == self.delay
        self.t += 1
        right = -abs(float(action[0]) - (0.4, 2.4)[self.cue]) if self.continuous else float(action == self.cue)
        return np.array([0, self.t == self.delay], np.float32), right * over, over, False, {}


def make(name: str, recurrent: bool) -> tuple[Any, Any]:
    """Return algorithm and agent."""
    if name == "pqn":
        layers = dict(hidden_sizes=32, rnn_size=32) if recurrent else dict(hidden_sizes=32)
        pqn = PQN(discount=0.97, learning_rate=5e-3, q_lambda=0.9, minibatches=4, epochs=4, eps_steps=8_000)
        return pqn, PqnAgent(recurrent=recurrent, eps_final=0.02, model_kwargs=layers)
    settings: dict[str, Any] = dict(replay_size=8_000, min_steps_learn=1_000, learning_rate=3e-3, replay_ratio=12)
    # An update consumes (5 + 10) x 16 rows, warm-up included.
    sequences: dict[str, Any] = dict(batch_T=10, batch_B=16, warmup_T=5, store_rnn_state_interval=5)
    settings |= sequences if recurrent else dict(batch_size=64)
    if name == "r2d1":
        settings |= dict(target_update_interval=50, eps_steps=3_000, n_step_return=3, discount=0.97)
        network: dict[str, Any] = dict(hidden_sizes=32)
        if recurrent:
            return R2D1(**settings), R2d1Agent(eps_final=0.02, model_kwargs=dict(**network, rnn_size=32))
        return DQN(**settings), DqnAgent(eps_final=0.02, model_kwargs=network)
    settings |= dict(learning_rate=1e-3, q_learning_rate=3e-3, discount=0.97, target_update_tau=0.02)
    sizes: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=32), q_model_kwargs=dict(hidden_sizes=32))
    features: dict[str, Any] = dict(feature_kwargs=dict(rnn_size=32)) if recurrent else {}
    if name == "td3":
        return TD3(**settings), (RecurrentTd3Agent if recurrent else Td3Agent)(**sizes, **features)
    algo = SAC(**settings, alpha_learning_rate=3e-3, alpha_init=0.1, target_entropy=-2.5)
    return algo, (RecurrentSacAgent if recurrent else SacAgent)(**sizes, **features)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=["r2d1", "pqn", "sac", "td3"], default="r2d1")
    parser.add_argument("--feed_forward", action="store_true", help="an agent that does not remember")
    parser.add_argument("--n_steps", type=float, default=24_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/memory")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_200 if args.smoke else args.n_steps
    sampler = SerialSampler(
        EnvCls=CueEnv,
        env_kwargs=dict(continuous=args.algo in ("sac", "td3")),
        batch_T=10,
        batch_B=64 if args.algo == "pqn" else 8,
        eval_n_envs=10,
        eval_max_trajectories=20 if args.smoke else 200,
    )
    algo, agent = make(args.algo, not args.feed_forward)
    runner = MinibatchRlEval(
        algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // (1 if args.smoke else 8), seed=args.seed
    )
    with logger_context(args.log_dir, name=f"{args.algo}_memory", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
