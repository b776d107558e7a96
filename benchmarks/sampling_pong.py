"""Sampling only: Pong, 16 environments, Nature network. How close the samplers come to what their parts allow.

    python benchmarks/sampling_pong.py [--precision bfloat16]

In every round the parts are timed apart (16 environments alone, within their games; the forward pass alone), then
SerialSampler, then CpuSampler with two workers.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import AtariEnv, make_env
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.utils.compute import ComputeSettings

T, B, WARM_UP = 128, 16, 200


def environments_alone(n_steps: int = 100) -> float:
    """Return the seconds of one row: an environment with random actions, through the adapter, within a game."""
    envs = [make_env(AtariEnv, dict(game="pong"), rank) for rank in range(B)]
    actions = np.random.default_rng(0).integers(0, 6, (WARM_UP + n_steps, B))
    ended = [True] * B
    start = time.perf_counter()
    for t in range(WARM_UP + n_steps):
        for b, env in enumerate(envs):
            if ended[b]:
                env.reset(b if t == 0 else None)
                ended[b] = False
            else:
                _, _, terminated, truncated, _ = env.step(actions[t, b])
                ended[b] = terminated or truncated
        if t == WARM_UP - 1:
            start = time.perf_counter()
    return (time.perf_counter() - start) / (n_steps * B)


def forward_alone(agent: CategoricalPgAgent, n_steps: int = 100) -> float:
    """Return the seconds of one row: the network's forward pass on a batch of 16."""
    observation = torch.randint(0, 255, (B, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad(), agent.autocast():
        for i in range(n_steps + 10):
            if i == 10:
                start = time.perf_counter()
            agent.model(observation, None, None)
    return (time.perf_counter() - start) / (n_steps * B)


def sampler_seconds(sampler: SerialSampler | CpuSampler, first_itr: int, n_itr: int = 2) -> float:
    """Return the seconds of one row of some batches."""
    start = time.perf_counter()
    for itr in range(first_itr, first_itr + n_itr):
        sampler.obtain_samples(itr)
    return (time.perf_counter() - start) / (n_itr * T * B)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serial_threads", type=int, default=2, help="of the network in the master's process")
    args = parser.parse_args()
    torch.set_num_threads(args.serial_threads)
    settings = ComputeSettings(precision=args.precision, channels_last=True, torch_threads=args.serial_threads)
    samplers: dict[str, SerialSampler | CpuSampler] = {
        "SerialSampler": SerialSampler(AtariEnv, dict(game="pong"), T, B, max_decorrelation_steps=WARM_UP),
        "CpuSampler": CpuSampler(AtariEnv, dict(game="pong"), T, B, max_decorrelation_steps=WARM_UP, n_workers=2),
    }
    agents = {}
    try:
        for name, sampler in samplers.items():
            agents[name] = agent = CategoricalPgAgent()
            sampler.initialize(agent, seed=0, bootstrap_value=True)
            agent.to_device(settings)
            sampler.obtain_samples(0)
        seconds: dict[str, list[float]] = {n: [] for n in ("environments", "forward", "SerialSampler", "CpuSampler")}
        for round_ in range(args.rounds):
            seconds["environments"].append(environments_alone())
            seconds["forward"].append(forward_alone(agents["SerialSampler"]))
            for name, sampler in samplers.items():
                seconds[name].append(sampler_seconds(sampler, 1 + 2 * round_))
    finally:
        for sampler in samplers.values():
            sampler.shutdown()
    allowed = [e + f for e, f in zip(seconds["environments"], seconds["forward"], strict=True)]
    print(f"{args.precision}, channels-last, {args.serial_threads} threads; rows per second, medians of {args.rounds}")
    for name, numbers in {**seconds, "environments and forward": allowed}.items():
        print(f"{name:<26} {1 / median(numbers):>8,.0f}")
    serial, cpu = seconds["SerialSampler"], seconds["CpuSampler"]
    print(f"SerialSampler of what its parts allow: {median(a / s for a, s in zip(allowed, serial, strict=True)):.2f}")
    print(f"CpuSampler to SerialSampler:           {median(s / c for s, c in zip(serial, cpu, strict=True)):.2f}")


if __name__ == "__main__":
    main()
