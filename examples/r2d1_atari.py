"""R2D1, which is R2D2 on one machine (Kapturowski et al. 2019), on an Atari game, with the alternating sampler.

    python examples/r2d1_atari.py --game pong --n_steps 10e6
    python examples/r2d1_atari.py --game pong --n_steps 10e6 --lag 1

Workers step one half of the environments while the LSTM network selects actions for the other. Every environment has an
epsilon of its own; the replay keeps a recurrent state every 40 rows and learns from 80 rows after 40 to warm up.
With a lag the sampler works in a process of its own, while this one learns.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from rlpyt.agents import AtariR2d1Agent
from rlpyt.algos import R2D1
from rlpyt.envs import AtariEnv
from rlpyt.logging import logger_context
from rlpyt.runners import AsyncRlEval, MinibatchRlEval
from rlpyt.samplers import AlternatingSampler, CpuSampler, GpuSampler, SerialSampler

SAMPLERS = {"serial": SerialSampler, "cpu": CpuSampler, "gpu": GpuSampler, "alternating": AlternatingSampler}


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--n_steps", type=float, default=100e6)
    parser.add_argument("--replay_size", type=float, default=1e6, help="rows; 7 KB each")
    parser.add_argument("--sample_mode", choices=list(SAMPLERS), default="alternating")
    parser.add_argument("--n_workers", type=int, default=None, help="of cpu, gpu, alternating; default: by the cores")
    parser.add_argument("--cuda_idx", type=int, default=None, help="number of the GPU; default: the CPU")
    parser.add_argument("--lag", type=int, default=None, help="collect so many iterations ahead, in another process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/r2d1_atari")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    workers: dict[str, Any] = {} if args.n_workers is None else dict(n_workers=args.n_workers)
    sampler = SAMPLERS[args.sample_mode](
        EnvCls=AtariEnv,
        env_kwargs=dict(game=args.game, clip_reward=False),
        eval_env_overrides=dict(episodic_lives=False),
        batch_T=10 if args.smoke else 40,
        batch_B=4 if args.smoke else 32,
        max_decorrelation_steps=20 if args.smoke else 1_000,
        eval_n_envs=1 if args.smoke else 2,
        eval_max_trajectories=1 if args.smoke else 10,
        eval_max_steps=40 if args.smoke else 125_000,
        **workers,
    )
    length: dict[str, Any] = (
        dict(batch_T=10, batch_B=2, warmup_T=5, store_rnn_state_interval=5) if args.smoke else dict(batch_B=32)
    )
    algo = R2D1(
        replay_size=2_000 if args.smoke else int(args.replay_size),
        replay_ratio=1 if args.smoke else 4,
        min_steps_learn=200 if args.smoke else 100_000,
        pri_alpha=0.9,
        pri_beta_init=0.6,
        pri_beta_final=0.6,
        **length,
    )
    n_steps = 600 if args.smoke else args.n_steps
    make_runner = MinibatchRlEval if args.lag is None else partial(AsyncRlEval, lag=args.lag)
    runner = make_runner(
        algo=algo,
        agent=AtariR2d1Agent(eps_final=0.1, eps_final_min=0.0005, model_kwargs=dict(dueling=True)),
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=n_steps // 100 if not args.smoke else n_steps,
        seed=args.seed,
        affinity={} if args.cuda_idx is None else dict(cuda_idx=args.cuda_idx),
    )
    with logger_context(args.log_dir, name=f"r2d1_{args.game}", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
