"""Recurrent SAC or TD3 where the velocity is hidden, so that one observation does not tell what to do.

    python examples/hidden_velocity.py --algo sac
    python examples/hidden_velocity.py --algo sac --feed_forward

The environment is Pendulum-v1 without the last number of its observation. A recurrent agent can
remember; a feed-forward one, which `--feed_forward` gives for comparison, cannot tell how fast the pendulum turns.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

from rlpyt.agents import QpgAgent, RecurrentSacAgent, RecurrentTd3Agent, SacAgent, Td3Agent
from rlpyt.algos import SAC, TD3
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler

AGENTS: dict[tuple[str, bool], type[QpgAgent]] = {
    ("sac", False): SacAgent,
    ("sac", True): RecurrentSacAgent,
    ("td3", False): Td3Agent,
    ("td3", True): RecurrentTd3Agent,
}


class HiddenVelocity(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray]):
    """Pendulum-v1 that shows cosine and sine of the angle alone."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the observation without the velocity."""
        return observation[:2]


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=["sac", "td3"], default="sac")
    parser.add_argument("--feed_forward", action="store_true", help="an agent that does not remember")
    parser.add_argument("--n_steps", type=float, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/hidden_velocity")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_600 if args.smoke else args.n_steps
    settings: dict[str, Any] = dict(
        learning_rate=1e-3,
        q_learning_rate=1e-3,
        replay_size=100_000,
        min_steps_learn=800 if args.smoke else 2_000,
        replay_ratio=64 if args.smoke else 256,
    )
    if args.feed_forward:
        settings |= dict(batch_size=256)
    else:
        # An update consumes (10 + 20) x 16 rows, warm-up included: about one for every 2 rows collected.
        settings |= dict(batch_T=20, batch_B=16, warmup_T=10, store_rnn_state_interval=10)
    algo = {"sac": SAC, "td3": TD3}[args.algo](**settings)
    sizes = dict(hidden_sizes=(64, 64))
    more: dict[str, Any] = {} if args.feed_forward else dict(feature_kwargs=dict(rnn_size=64))
    if args.algo == "td3":
        more["action_std"] = 0.3
    agent = AGENTS[args.algo, not args.feed_forward](model_kwargs=sizes, q_model_kwargs=sizes, **more)
    sampler = SerialSampler(
        EnvCls=HiddenVelocity,
        env_kwargs={},
        batch_T=20,
        batch_B=4,
        eval_n_envs=10,
        eval_max_trajectories=10 if args.smoke else 50,
    )
    runner = MinibatchRlEval(
        algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // (1 if args.smoke else 10), seed=args.seed
    )
    with logger_context(args.log_dir, name=f"{args.algo}_hidden_velocity", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
