"""PPO on a MuJoCo environment: observations and rewards normalised by running statistics, actions in their bounds.

    python examples/ppo_mujoco.py --env HalfCheetah-v5
    python examples/ppo_mujoco.py --env HalfCheetah-v5 --replicas 2

The settings follow Huang et al. 2022, "The 37 implementation details of PPO"; here the clip goes to zero as well.
With several replicas each has a sampler of its own, for its share of the rows, and all average their gradients at every
update. So the batch is as large as with one, and a row of the log counts the steps of all.
Needs pip install rlpyt[mujoco].
"""

from __future__ import annotations

import argparse

import gymnasium

from rlpyt.agents import GaussianPgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context
from rlpyt.runners import SyncRl
from rlpyt.samplers import CpuSampler, SerialSampler


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="HalfCheetah-v5", help="gymnasium id")
    parser.add_argument("--n_steps", type=float, default=1e6)
    parser.add_argument("--n_envs", type=int, default=1)
    parser.add_argument("--sample_mode", choices=["serial", "cpu"], default="serial")
    parser.add_argument("--replicas", type=int, default=1, help="processes that train one agent together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/ppo_mujoco")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 512 if args.smoke else args.n_steps
    SamplerCls = {"serial": SerialSampler, "cpu": CpuSampler}[args.sample_mode]
    sampler = SamplerCls(
        EnvCls=gymnasium.make,
        env_kwargs=dict(id=args.env),
        batch_T=(256 if args.smoke else 2048 // args.n_envs) // args.replicas,
        batch_B=args.n_envs,
    )
    algo = PPO(
        learning_rate=3e-4,
        gae_lambda=0.95,
        epochs=10,
        minibatches=32,
        ratio_clip=0.2,
        value_clip=0.2,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.0,
        clip_grad_norm=0.5,
        normalize_advantage=True,
        normalize_reward=True,
        optim_kwargs=dict(eps=1e-5),
    )
    agent = GaussianPgAgent(model_kwargs=dict(normalize_observation=True))
    runner = SyncRl(
        algo,
        agent,
        sampler,
        n_steps=n_steps,
        log_interval_steps=256 if args.smoke else n_steps // 50,
        seed=args.seed,
        n_replicas=args.replicas,
    )
    with logger_context(args.log_dir, name=f"ppo_{args.env}", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
