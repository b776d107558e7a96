"""DQN on CartPole-v1: Q-learning from vectors, evaluated apart from training.

python examples/dqn_cartpole.py
"""

from __future__ import annotations

import argparse

import gymnasium

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/dqn_cartpole")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 2_000 if args.smoke else 60_000
    sampler = SerialSampler(
        EnvCls=gymnasium.make,
        env_kwargs=dict(id="CartPole-v1"),
        batch_T=16,
        batch_B=4,
        eval_n_envs=5,
        eval_max_trajectories=5 if args.smoke else 20,
    )
    algo = DQN(
        learning_rate="lin_1e-3",
        batch_size=64,
        replay_ratio=32,
        replay_size=50_000,
        min_steps_learn=1_000,
        eps_steps=10_000,
        target_update_interval=250,
        double_dqn=True,
    )
    agent = DqnAgent(eps_final=0.02, eps_eval=0.0)
    runner = MinibatchRlEval(algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // 6, seed=args.seed)
    with logger_context(args.log_dir, name="dqn_cartpole", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
