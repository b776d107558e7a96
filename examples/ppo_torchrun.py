"""PPO on CartPole-v1 with several replicas, on one machine or on several.

    python examples/ppo_torchrun.py --n_replicas 2
    torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/ppo_torchrun.py

The first line starts two replicas on this machine. The second has torchrun start them, and start all of them again
where one is lost; docs/howto/replicas.md has the lines for several machines and for SLURM. Each start goes on from the
newest checkpoint, so the log directory must be one that all machines see.
"""

from __future__ import annotations

import argparse

import gymnasium

from rlpyt.agents import PgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context
from rlpyt.runners import SyncRl
from rlpyt.samplers import SerialSampler


def train(args: argparse.Namespace) -> None:
    """Train to the end, from the start or from the newest checkpoint."""
    runner = SyncRl(
        algo=PPO(
            learning_rate=1e-3,
            gae_lambda=0.98,
            discount=0.98,
            ratio_clip=0.2,
            epochs=10,
            minibatches=4,
            normalize_advantage=True,
            linear_lr_schedule=False,
        ),
        agent=PgAgent(),
        # Each replica has a sampler of its own, with environments of its own.
        sampler=SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=32, batch_B=4),
        n_steps=args.n_steps,  # of all replicas together
        seed=args.seed,
        n_replicas=args.n_replicas,
        log_interval_steps=args.n_steps // 10,
        checkpoint_interval_steps=args.n_steps // 10,
    )
    with logger_context(args.log_dir, args.run_ID, log_params=vars(args), resume="auto"):
        runner.train()


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n_replicas", type=int, help="replicas; under torchrun leave it out")
    parser.add_argument("--n_steps", type=float, default=100_000, help="steps of all replicas together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/ppo_torchrun")
    parser.add_argument("--run_ID", default="0")
    parser.add_argument("--smoke", action="store_true", help="run a few seconds only, to see that everything works")
    args = parser.parse_args()
    if args.smoke:
        args.n_steps = 1024
    train(args)


if __name__ == "__main__":
    main()
