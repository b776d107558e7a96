"""V-trace actor-critic (IMPALA) on CartPole-v1.

    python examples/vtrace_cartpole.py
    python examples/vtrace_cartpole.py --lag 1

With a lag the sampler works in a process of its own, while this one learns from what it collected with older weights.
Rows of an older policy are weighted by importance ratios. `rhoAverage` of the log is 1 where it is the policy in
training.
"""

from __future__ import annotations

import argparse
from functools import partial

import gymnasium

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import VTrace
from rlpyt.logging import logger_context
from rlpyt.runners import AsyncRl, MinibatchRl
from rlpyt.samplers import SerialSampler


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n_steps", type=float, default=100_000)
    parser.add_argument("--lag", type=int, default=None, help="collect so many iterations ahead, in another process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/vtrace_cartpole")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 1_024 if args.smoke else int(args.n_steps)
    make_runner = MinibatchRl if args.lag is None else partial(AsyncRl, lag=args.lag)
    runner = make_runner(
        algo=VTrace(learning_rate="lin_5e-3", discount=0.98, gae_lambda=0.95, normalize_advantage=True),
        agent=CategoricalPgAgent(),
        sampler=SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=16, batch_B=16),
        n_steps=n_steps,
        log_interval_steps=n_steps // (2 if args.smoke else 10),
        seed=args.seed,
    )
    with logger_context(args.log_dir, name="vtrace_cartpole", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
