"""A2C on an Atari game, with the environments stepped in this process or in workers: the same script, another class.

python examples/a2c_atari.py --game pong --sample_mode cpu
"""

from __future__ import annotations

import argparse
from typing import Any

from rlpyt.agents import AtariFfAgent
from rlpyt.algos import A2C
from rlpyt.envs import AtariEnv
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import CpuSampler, SerialSampler


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--n_steps", type=float, default=10e6)
    parser.add_argument("--sample_mode", choices=["serial", "cpu"], default="serial")
    parser.add_argument("--n_workers", type=int, default=None, help="of sample mode cpu; default: the cores there are")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/a2c_atari")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    sampler_kwargs: dict[str, Any] = dict(
        EnvCls=AtariEnv,
        env_kwargs=dict(game=args.game),
        batch_T=5,
        batch_B=16,
        max_decorrelation_steps=10 if args.smoke else 400,
    )
    if args.sample_mode == "cpu":
        sampler: SerialSampler | CpuSampler = CpuSampler(**sampler_kwargs, n_workers=args.n_workers)
    else:
        sampler = SerialSampler(**sampler_kwargs)
    n_steps = 800 if args.smoke else args.n_steps
    runner = MinibatchRl(
        algo=A2C(learning_rate=3e-4, gae_lambda=1.0, value_loss_coeff=0.5),
        agent=AtariFfAgent(),
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=n_steps // 100 if not args.smoke else n_steps,
        seed=args.seed,
    )
    with logger_context(args.log_dir, name=f"a2c_{args.game}", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
