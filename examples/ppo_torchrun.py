"""PPO on CartPole-v1 with several replicas, on one machine or on several.

    python examples/ppo_torchrun.py --n_replicas 2
    torchrun --nproc-per-node 2 --max-restarts 3 examples/ppo_torchrun.py

The first line starts two replicas on this machine. The second has torchrun start them, on as many machines as
`--nnodes` says (docs/replicas.md), and start all of them again where one is lost. Each start goes on with the weights
and the optimiser of the last snapshot, so the log directory must be one that all machines see.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium

from rlpyt.agents import PgAgent
from rlpyt.algos import PPO
from rlpyt.logging import load_snapshot, logger_context
from rlpyt.runners import SyncRl
from rlpyt.samplers import SerialSampler


def train(args: argparse.Namespace) -> None:
    """Train the steps that are left after the last snapshot."""
    file = Path(args.log_dir) / f"run_{args.run_ID}" / "params.pkl"
    snapshot: dict[str, Any] = load_snapshot(file) if file.exists() else {}
    steps_left = args.n_steps - snapshot.get("cum_steps", 0)
    if steps_left <= 0:
        return
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
            initial_optim_state_dict=snapshot.get("optimizer_state_dict"),
        ),
        agent=PgAgent(initial_model_state_dict=snapshot.get("agent_state_dict")),
        # Each replica has a sampler of its own, with environments of its own.
        sampler=SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=32, batch_B=4),
        n_steps=steps_left,  # of all replicas together
        # Another seed after a restart, so that no episode is played twice.
        seed=args.seed + snapshot.get("cum_steps", 0),
        n_replicas=args.n_replicas,
        log_interval_steps=args.n_steps // 10,
    )
    with logger_context(args.log_dir, args.run_ID, log_params=vars(args), resume=True):
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
