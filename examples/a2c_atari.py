"""A2C on an Atari game, with the work wherever it is wanted: the same script, another sampler.

    python examples/a2c_atari.py --game pong --sample_mode cpu

serial: everything in this process. cpu: workers step environments and run the network. gpu: workers step, this
process selects all actions in one forward pass (on a GPU with --cuda_idx 0). alternating: likewise in two halves, one
steps while the other gets actions. native: the same halves as two vector environments, which step in their own threads.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from rlpyt.agents import AtariFfAgent
from rlpyt.algos import A2C
from rlpyt.envs import AtariEnv, atari_make_vec
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
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
    parser.add_argument("--n_steps", type=float, default=10e6)
    parser.add_argument("--sample_mode", choices=list(SAMPLERS), default="serial")
    parser.add_argument("--n_workers", type=int, default=None, help="of cpu, gpu, alternating; default: by the cores")
    parser.add_argument("--wait_reset", action="store_true", help="reset environments between batches only")
    parser.add_argument("--cuda_idx", type=int, default=None, help="number of the GPU; default: the CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/a2c_atari")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    workers: dict[str, Any] = {} if args.n_workers is None else dict(n_workers=args.n_workers)
    sampler = SAMPLERS[args.sample_mode](
        EnvCls=atari_make_vec if args.sample_mode == "native" else AtariEnv,
        env_kwargs=dict(game=args.game),
        batch_T=5,
        batch_B=4 if args.smoke else 16,
        max_decorrelation_steps=10 if args.smoke else 400,
        mid_batch_reset=not args.wait_reset,
        time_breakdown=True,
        **workers,
    )
    n_steps = 500 if args.smoke else args.n_steps
    runner = MinibatchRl(
        algo=A2C(learning_rate=3e-4, gae_lambda=1.0, value_loss_coeff=0.5),
        agent=AtariFfAgent(),
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=n_steps // 100 if not args.smoke else n_steps,
        seed=args.seed,
        affinity={} if args.cuda_idx is None else dict(cuda_idx=args.cuda_idx),
    )
    with logger_context(args.log_dir, name=f"a2c_{args.game}", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
