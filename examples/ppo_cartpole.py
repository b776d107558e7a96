"""PPO on CartPole-v1, and on any other environment: the main job, and the example to copy first.

    python examples/ppo_cartpole.py
    python examples/ppo_cartpole.py --env ALE/Pong-v5 --n_steps 10e6 --sample_mode cpu

Trains, evaluates 100 whole episodes, saves the run and prints where. On CartPole-v1 it ends with an error where the
episodes' mean is below 475, which is what counts as solved.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from statistics import fmean
from typing import Any

import gymnasium

from rlpyt.agents import PgAgent
from rlpyt.algos import PPO
from rlpyt.envs import AtariEnv
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import CpuSampler, SerialSampler, evaluate

SOLVED = {"CartPole-v1": 475.0}

CARTPOLE = dict(learning_rate=1e-3, gae_lambda=0.98, discount=0.98, ratio_clip=0.2, epochs=10, minibatches=8)
ATARI = dict(learning_rate=2.5e-4, gae_lambda=0.95, ratio_clip=0.1, epochs=4, minibatches=4, entropy_loss_coeff=0.01)


def environment(env: str) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:
    """Return EnvCls, its arguments, and those for evaluation: whole games with the raw score."""
    if env.startswith("ALE/"):
        return AtariEnv, dict(game=env), dict(game=env, episodic_lives=False, clip_reward=False)
    return gymnasium.make, dict(id=env), dict(id=env)


def train(args: argparse.Namespace) -> float:
    """Train, evaluate, and return the mean return of the evaluation's episodes."""
    atari = args.env.startswith("ALE/")
    EnvCls, env_kwargs, eval_env_kwargs = environment(args.env)
    SamplerCls = {"serial": SerialSampler, "cpu": CpuSampler}[args.sample_mode]
    sampler = SamplerCls(
        EnvCls=EnvCls,
        env_kwargs=env_kwargs,
        batch_T=128 if atari else 32,
        batch_B=4 if args.smoke else 8,
    )
    settings: dict[str, Any] = ATARI if atari else CARTPOLE
    algo = PPO(normalize_advantage=True, value_loss_coeff=0.5, clip_grad_norm=0.5, **settings)
    agent = PgAgent()
    runner = MinibatchRl(
        algo=algo,
        agent=agent,
        sampler=sampler,
        n_steps=512 if args.smoke else args.n_steps,
        seed=args.seed,
        log_interval_steps=256 if args.smoke else args.n_steps // 10,
    )
    with logger_context(args.log_dir, args.run_ID, name=args.env, log_params=vars(args)) as logger:
        runner.train()
        n_trajectories = 1 if args.smoke else 100
        logger.log(f"Evaluating {n_trajectories} episodes of {args.env} ...")
        result = evaluate(agent, EnvCls, eval_env_kwargs, n_trajectories=n_trajectories, seed=args.seed)
        returns = [info.Return for info in result.traj_infos]
        logger.log(
            f"Evaluated {len(returns)} episodes of {args.env}: mean return {fmean(returns):.1f} "
            f"(from {min(returns):g} to {max(returns):g}).\n"
            f"Saved in {logger.directory}: progress.csv, params.json, debug.log, params.pkl.\n"
            "Go on: copy examples/ppo_cartpole.py and edit it; the docs/ folder has a page for each task; "
            'make train ARGS="--help" lists the options.'
        )
    return fmean(returns)


def main() -> None:
    """Read the options, train, and judge the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", help="gymnasium id, or ALE/<Game>-v5 for Atari")
    parser.add_argument("--n_steps", type=lambda x: int(float(x)), default=100_000, help="rows to collect")
    parser.add_argument("--sample_mode", choices=["serial", "cpu"], default="serial", help="where environments step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/ppo", help="the run goes to <log_dir>/run_<run_ID>")
    parser.add_argument("--run_ID", type=int, default=None, help="default: the first free number")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only, to see that everything works")
    args = parser.parse_args()
    mean = train(args)
    if not args.smoke and mean < SOLVED.get(args.env, float("-inf")):
        sys.exit(f"{args.env} is not solved: mean return {mean:.1f}, expected {SOLVED[args.env]:g} or more.")


if __name__ == "__main__":
    main()
