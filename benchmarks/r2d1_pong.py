"""R2D1 on Pong: rows per second after learning has started, and how the time is spent.

    python benchmarks/r2d1_pong.py [--sample_mode alternating] [--iterations 20]

16 environments, sequences of 80 rows after 40 to warm up, 8 of them an update, replay ratio 1, the network of R2D2.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from rlpyt.agents import AtariR2d1Agent
from rlpyt.algos import R2D1
from rlpyt.envs import AtariEnv
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import AlternatingSampler, CpuSampler, GpuSampler, SerialSampler

SAMPLERS = {"serial": SerialSampler, "cpu": CpuSampler, "gpu": GpuSampler, "alternating": AlternatingSampler}
T, B = 60, 16


def main() -> None:
    """Train for some iterations after the first update and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample_mode", choices=list(SAMPLERS), default="alternating")
    parser.add_argument("--iterations", type=int, default=20)
    args = parser.parse_args()
    sampler = SAMPLERS[args.sample_mode](
        AtariEnv, dict(game="pong"), T, B, max_decorrelation_steps=0, time_breakdown=True
    )
    algo = R2D1(batch_B=8, replay_size=20_000, min_steps_learn=4 * T * B)
    n_itr = 4 + args.iterations
    runner = MinibatchRl(algo, AtariR2d1Agent(), sampler, n_steps=n_itr * T * B, log_interval_steps=1e9, seed=0)
    spent: dict[str, float] = defaultdict(float)
    times: dict[str, float] = {}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments)
            spent[name] += time.perf_counter() - start
            return result

        return run

    optimize = algo.optimize_agent

    def optimize_agent(itr: int, samples: Any) -> Any:
        if itr == 4:  # the first update lies behind
            spent.clear()
            sampler.diagnostics()
            spent["begin"] = time.perf_counter()
            for name in ("append_samples", "sample_batch", "update_priorities"):
                setattr(algo.replay, name, timed("replay", getattr(algo.replay, name)))
        start = time.perf_counter()
        metrics = optimize(itr, samples)
        spent["optimize"] += time.perf_counter() - start
        if itr == n_itr - 1:
            spent["end"] = time.perf_counter()
            times.update(sampler.diagnostics())  # now, as it is gone with the workers
        return metrics

    algo.optimize_agent = optimize_agent  # type: ignore[method-assign]
    runner.train()
    total = spent["end"] - spent["begin"]
    parts = {name.removesuffix("Time"): seconds for name, seconds in times.items()}
    parts |= {"Replay": spent["replay"], "Learning": spent["optimize"] - spent["replay"]}
    print(f"{(n_itr - 5) * T * B / total:,.0f} rows/s, {args.sample_mode}")
    for name, seconds in parts.items():
        print(f"{name:<14} {seconds / total:>5.0%}")


if __name__ == "__main__":
    main()
