"""Double DQN on an Atari game: an update of 32 for every four steps, as in Mnih et al. 2015; the rest learns sooner.

    python examples/dqn_atari.py --game pong --n_steps 5e6 --sample_mode cpu
    python examples/dqn_atari.py --game pong --n_steps 5e6 --sample_mode native --lag 1
    python examples/dqn_atari.py --game pong --n_steps 5e6 --run_ID first

With a run_ID the run saves checkpoints; the same command, started again, goes on from the newest one.

With a lag the sampler works in a process of its own, while this one learns. examples/a2c_atari.py tells what the modes
are. The replay keeps every frame once: 7 KB a row, 1e6 rows are 7 GB.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from rlpyt.agents import AtariDqnAgent
from rlpyt.algos import DQN
from rlpyt.envs import AtariEnv, atari_make_vec
from rlpyt.logging import logger_context
from rlpyt.runners import AsyncRlEval, MinibatchRlEval
from rlpyt.samplers import AlternatingSampler, BaseSampler, CpuSampler, GpuSampler, SerialSampler

SAMPLERS: dict[str, Callable[..., BaseSampler]] = {
    "serial": SerialSampler,
    "cpu": CpuSampler,
    "gpu": GpuSampler,
    "alternating": AlternatingSampler,
    "native": partial(SerialSampler, n_parts=2),
}


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--n_steps", type=float, default=5e6)
    parser.add_argument("--replay_size", type=float, default=1e6, help="rows; 7 KB each")
    parser.add_argument("--sample_mode", choices=list(SAMPLERS), default="serial")
    parser.add_argument("--lag", type=int, default=None, help="collect so many iterations ahead, in another process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/dqn_atari")
    parser.add_argument("--run_ID", default=None, help="name of the run, which goes on when it is started again")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    sampler = SAMPLERS[args.sample_mode](
        EnvCls=atari_make_vec if args.sample_mode == "native" else AtariEnv,
        env_kwargs=dict(game=args.game),
        eval_env_overrides=dict(episodic_lives=False, clip_reward=False),
        batch_T=4,
        batch_B=4 if args.smoke else 8,
        max_decorrelation_steps=20 if args.smoke else 1_000,
        eval_n_envs=1 if args.smoke else 2,
        eval_max_trajectories=1 if args.smoke else 10,
        eval_max_steps=40 if args.smoke else 125_000,
    )
    algo = DQN(
        batch_size=32,
        replay_size=1_000 if args.smoke else int(args.replay_size),
        replay_ratio=2 if args.smoke else 8,
        min_steps_learn=400 if args.smoke else 20_000,
        eps_steps=250_000,
        target_update_interval=1_000,
        learning_rate=1e-4,
        double_dqn=True,
    )
    n_steps = 500 if args.smoke else args.n_steps
    make_runner = MinibatchRlEval if args.lag is None else partial(AsyncRlEval, lag=args.lag)
    runner = make_runner(
        algo=algo,
        agent=AtariDqnAgent(eps_final=0.01),
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=n_steps // (1 if args.smoke else 20),
        seed=args.seed,
    )
    name = f"dqn_{args.game}"
    with logger_context(args.log_dir, args.run_ID, name, vars(args), resume="auto" if args.run_ID else False):
        runner.train()


if __name__ == "__main__":
    main()
