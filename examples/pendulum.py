"""Continuous control in minutes: Pendulum-v1 by SAC, TD3, DDPG or PPO.

    python examples/pendulum.py --algo sac

SAC, TD3 and DDPG take one update a step; PPO collects 15 times as many steps and learns in the same time. Every episode
has 200 steps; a mean of -200 or better is solved.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium

from rlpyt.agents import DdpgAgent, GaussianPgAgent, SacAgent, Td3Agent
from rlpyt.algos import DDPG, PPO, SAC, TD3
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler

N_STEPS = dict(sac=20_000, td3=20_000, ddpg=40_000, ppo=300_000)


def make(name: str) -> tuple[Any, Any]:
    """Return algorithm and agent."""
    if name == "ppo":
        algo = PPO(
            discount=0.9,
            learning_rate=1e-3,
            gae_lambda=0.95,
            epochs=10,
            minibatches=32,
            ratio_clip=0.2,
            value_loss_coeff=0.5,
            entropy_loss_coeff=0.0,
            clip_grad_norm=0.5,
            normalize_advantage=True,
            normalize_reward=True,
        )
        return algo, GaussianPgAgent()
    settings: dict[str, Any] = dict(
        learning_rate=1e-3, q_learning_rate=1e-3, min_steps_learn=500, replay_size=100_000, target_update_tau=0.005
    )
    sizes = dict(hidden_sizes=(256, 256))
    networks: dict[str, Any] = dict(model_kwargs=sizes, q_model_kwargs=sizes)
    if name == "sac":
        return SAC(**settings), SacAgent(**networks)
    if name == "td3":
        return TD3(**settings), Td3Agent(**networks)
    return DDPG(**settings), DdpgAgent(**networks)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=list(N_STEPS), default="sac")
    parser.add_argument("--n_steps", type=float, default=None, help="20,000; DDPG 40,000, PPO 300,000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/pendulum")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 600 if args.smoke else args.n_steps or N_STEPS[args.algo]
    ppo = args.algo == "ppo"
    sampler = SerialSampler(
        EnvCls=gymnasium.make,
        env_kwargs=dict(id="Pendulum-v1"),
        batch_T=512 if ppo else 1,
        batch_B=4 if ppo else 1,
        eval_n_envs=10,
        eval_max_trajectories=10 if args.smoke else 50,
    )
    algo, agent = make(args.algo)
    runner = MinibatchRlEval(
        algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // (1 if args.smoke else 10), seed=args.seed
    )
    with logger_context(args.log_dir, name=f"{args.algo}_pendulum", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
