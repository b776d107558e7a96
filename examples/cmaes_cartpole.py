"""CMA-ES on CartPole-v1: a search without a gradient, whose population is evaluated by workers.

    python examples/cmaes_cartpole.py
    python examples/cmaes_cartpole.py --sample_mode serial
    python examples/cmaes_cartpole.py --evaluated best

Needs `pip install rlpyt[cmaes]`. Every environment of the batch acts with the parameters of another individual. An
environment rests from the end of its episode to the end of the batch, which is as long as the longest episode: so one
batch is one generation. Ends with an error where the mean of 100 evaluation episodes is below 475.
"""

from __future__ import annotations

import argparse
import sys
from statistics import fmean

import gymnasium

from rlpyt.agents import PopulationAgent
from rlpyt.algos import CMAES
from rlpyt.logging import logger_context, plot_progress
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import CpuSampler, SerialSampler, WaitResetCollector, evaluate


def train(args: argparse.Namespace) -> float:
    """Train, evaluate, and return the mean return of the evaluation's episodes."""
    env_kwargs = dict(id="CartPole-v1")
    SamplerCls = {"serial": SerialSampler, "cpu": CpuSampler}[args.sample_mode]
    batch_T = 60 if args.smoke else 500
    sampler = SamplerCls(
        EnvCls=gymnasium.make,
        env_kwargs=env_kwargs,
        batch_T=batch_T,
        batch_B=32,
        CollectorCls=WaitResetCollector,
        max_decorrelation_steps=0,
    )
    # Two environments for each individual; a small network, as every parameter makes the search longer.
    agent = PopulationAgent(model_kwargs=dict(hidden_sizes=8), population_size=16)
    runner = MinibatchRl(
        algo=CMAES(sigma=0.5, evaluated=args.evaluated),
        agent=agent,
        sampler=sampler,
        n_steps=(2 if args.smoke else args.generations) * batch_T * 32,
        seed=args.seed,
        log_interval_steps=2 * batch_T * 32,
    )
    with logger_context(args.log_dir, args.run_ID, name="cmaes", log_params=vars(args)) as logger:
        runner.train()
        result = evaluate(agent, gymnasium.make, env_kwargs, n_trajectories=1 if args.smoke else 100, seed=args.seed)
        returns = [info.Return for info in result.traj_infos]
        plot_progress(logger.directory)
        logger.log(f"Evaluated {len(returns)} episodes: mean return {fmean(returns):.1f}. Saved in {logger.directory}.")
    return fmean(returns)


def main() -> None:
    """Read the options, train, and judge the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=30, help="batches of 500 x 32 rows")
    parser.add_argument("--evaluated", choices=["mean", "best"], default="mean", help="what is judged at the end")
    parser.add_argument("--sample_mode", choices=["serial", "cpu"], default="cpu", help="where environments step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/cmaes", help="the run goes to <log_dir>/run_<run_ID>")
    parser.add_argument("--run_ID", type=int, default=None, help="default: the first free number")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only, to see that everything works")
    args = parser.parse_args()
    mean = train(args)
    if not args.smoke and mean < 475.0:
        sys.exit(f"CartPole-v1 is not solved: mean return {mean:.1f}, expected 475 or more.")


if __name__ == "__main__":
    main()
