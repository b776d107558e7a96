"""The deep Q family on CartPole-v1: the same script, another algorithm.

    python examples/dqn_cartpole.py --algo rainbow

dqn: double DQN with prioritised replay and 3-step returns. qr, iqn: the same over quantiles of the return. rainbow: the
same over a categorical distribution, with a dueling network whose noisy layers explore.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium

from rlpyt.agents import CatDqnAgent, DqnAgent, IqnAgent, QrDqnAgent
from rlpyt.algos import DQN, IQN, QRDQN, CategoricalDQN
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler


def make(name: str, n_steps: int) -> tuple[DQN, DqnAgent]:
    """Return algorithm and agent."""
    settings: dict[str, Any] = dict(
        learning_rate="lin_1e-3",
        batch_size=64,
        replay_ratio=32,
        replay_size=50_000,
        min_steps_learn=1_000,
        eps_steps=n_steps // 6,
        target_update_interval=50,
        n_step_return=3,
        double_dqn=True,
        prioritized_replay=True,
        pri_beta_steps=n_steps,
    )
    greedy: dict[str, Any] = dict(eps_final=0.01, eps_eval=0.0)
    # The position counts least of four numbers of different size; without normalisation IQN lets it drift.
    network: dict[str, Any] = dict(hidden_sizes=(256, 256), normalize_observation=True)
    if name == "qr":
        return QRDQN(**settings), QrDqnAgent(**greedy, n_quantiles=50, model_kwargs=network)
    if name == "iqn":
        return IQN(**settings), IqnAgent(**greedy, model_kwargs=dict(**network, n_tau=16, stratified=True))
    if name == "rainbow":
        noisy = dict(**network, dueling=True, noisy=True)
        agent = CatDqnAgent(eps_init=0.0, eps_final=0.0, eps_eval=0.0, model_kwargs=noisy)
        return CategoricalDQN(**settings, V_min=0.0, V_max=100.0), agent
    return DQN(**settings), DqnAgent(**greedy, model_kwargs=network)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=["dqn", "rainbow", "qr", "iqn"], default="dqn")
    parser.add_argument("--n_steps", type=float, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/dqn_cartpole")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_200 if args.smoke else int(args.n_steps)
    sampler = SerialSampler(
        EnvCls=gymnasium.make,
        env_kwargs=dict(id="CartPole-v1"),
        batch_T=4,
        batch_B=4,
        eval_n_envs=10,
        eval_max_trajectories=10 if args.smoke else 100,
    )
    algo, agent = make(args.algo, n_steps)
    runner = MinibatchRlEval(algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // 4, seed=args.seed)
    with logger_context(args.log_dir, name=f"{args.algo}_cartpole", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
