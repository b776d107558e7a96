"""Sampling only: Pong, 16 environments, Nature network. How close the samplers come to what the cores allow.

    python benchmarks/sampling_pong.py [--precision bfloat16] [--parts bare cpu halves] [--rounds 8]
    python benchmarks/sampling_pong.py --parts cpu gpu alternating --device cuda:0 --workers 14 --batch-B 64

The ceiling, "bare", is what two independent processes reach, each with half of the environments and one thread, that do
nothing but step and run the network; "bare64" likewise with 64 environments. "native" is a vector environment in this
process, "halves" are two that alternate. Peers with the same network: ale-py's vector environment in a plain loop,
gymnasium's AsyncVectorEnv and Stable-Baselines3's SubprocVecEnv (where it is installed).

All parts are set up first and then run in turn for a second or two each, round after round: the machine's speed changes
from minute to minute, so the ratio to the ceiling is the median of the ratios of the rounds.
"""

from __future__ import annotations

import rlpyt  # noqa: F401  # before torch, as in a script that imports nothing else; see rlpyt/__init__.py

# isort: split
import argparse
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from alternate import interleave, rate

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import AtariEnv, atari_make_vec, make_env
from rlpyt.samplers import (
    AlternatingSampler,
    BaseSampler,
    CpuSampler,
    GpuSampler,
    NoOverlapAlternatingSampler,
    SerialSampler,
)
from rlpyt.types import Run
from rlpyt.utils.compute import ComputeSettings

T, WARM_UP = 32, 100
PONG = dict(game="pong")


def make_agent(spaces: Any, settings: ComputeSettings) -> CategoricalPgAgent:
    """Return an agent as a run would place it."""
    agent = CategoricalPgAgent()
    agent.initialize(spaces)
    agent.to_device(settings)
    return agent


class PlainLoop:
    """Steps a vector environment of any library, and runs the network, and nothing else."""

    def __init__(self, env: Any, settings: ComputeSettings, threads: int) -> None:
        self.env, self.threads = env, threads
        self.agent = make_agent(make_env(AtariEnv, PONG).spaces, settings)
        observation = env.reset()
        self.observation = observation[0] if isinstance(observation, tuple) else observation

    def step(self) -> int:
        """Take one step in every environment."""
        logits, _ = self.agent.model(torch.from_numpy(self.observation), None, None)
        action = torch.distributions.Categorical(logits=logits.float()).sample().numpy()
        self.observation = self.env.step(action)[0]
        return len(action)

    def run(self, seconds: float) -> float:
        """Return rows per second."""
        torch.set_num_threads(self.threads)
        with torch.no_grad(), self.agent.autocast():
            return rate(self.step, seconds)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


class OneAfterTheOther:
    """rlpyt's own environments in a plain loop."""

    def __init__(self, n: int, first: int) -> None:
        self.envs = [make_env(AtariEnv, PONG, first + b) for b in range(n)]
        self.ended = [False] * n

    def reset(self) -> np.ndarray:
        """Reset all with their own seeds."""
        self.rows = np.stack([env.reset(env.rank)[0] for env in self.envs])
        return self.rows

    def step(self, actions: np.ndarray) -> tuple[np.ndarray]:
        """Step all; the next step after an end is a reset."""
        for b, (env, action) in enumerate(zip(self.envs, actions.tolist(), strict=True)):
            if self.ended[b]:
                self.rows[b], self.ended[b] = env.reset()[0], False
            else:
                self.rows[b], _, terminated, truncated, _ = env.step(action)
                self.ended[b] = terminated or truncated
        return (self.rows,)

    def close(self) -> None:
        """Nothing to close."""


def bare_process(rank: int, n: int, settings: ComputeSettings, pipe: Any) -> None:
    """Run for as many seconds as the pipe says, again and again."""
    torch.set_num_threads(1)
    loop = PlainLoop(OneAfterTheOther(n, rank * n), settings, threads=1)
    while seconds := pipe.recv():
        pipe.send(loop.run(seconds))


class Bare:
    """Two independent processes."""

    def __init__(self, settings: ComputeSettings, B: int = 16) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for rank in range(2):
            pipe, theirs = context.Pipe()
            context.Process(target=bare_process, args=(rank, B // 2, settings, theirs), daemon=True).start()
            self.pipes.append(pipe)

    def run(self, seconds: float) -> float:
        """Return rows per second of both together."""
        for pipe in self.pipes:
            pipe.send(seconds)
        return sum(pipe.recv() for pipe in self.pipes)

    def close(self) -> None:
        """End both."""
        for pipe in self.pipes:
            pipe.send(0)


class Sampling:
    """One of rlpyt's samplers."""

    def __init__(
        self,
        settings: ComputeSettings,
        SamplerCls: type[BaseSampler],
        EnvCls: Any = AtariEnv,
        B: int = 16,
        threads: int = 1,
        **kwargs: Any,
    ) -> None:
        torch.set_num_threads(threads)
        self.threads, self.itr = threads, 0
        self.sampler = SamplerCls(EnvCls, PONG, T, B, max_decorrelation_steps=WARM_UP, time_breakdown=True, **kwargs)
        agent = CategoricalPgAgent()
        self.sampler.initialize(agent, Run(batch_spec=self.sampler.batch_spec, bootstrap_value=True))
        agent.to_device(settings)
        self.notes = ""

    def step(self) -> int:
        """Collect a batch."""
        self.sampler.obtain_samples(self.itr)
        self.itr += 1
        return self.sampler.batch_spec.size

    def run(self, seconds: float) -> float:
        """Return rows per second."""
        torch.set_num_threads(self.threads)
        result = rate(self.step, seconds)
        times = self.sampler.diagnostics()
        total = sum(times.values())
        self.notes = " ".join(f"{name.removesuffix('Time')} {t / total:.0%}" for name, t in times.items())
        return result

    def close(self) -> None:
        """Stop the workers."""
        self.sampler.shutdown()


def plain_vector(settings: ComputeSettings) -> PlainLoop:
    """Return ale-py's vector environment in a plain loop."""
    from ale_py.vector_env import AtariVectorEnv

    return PlainLoop(AtariVectorEnv("pong", 16, num_threads=2, use_fire_reset=False), settings, threads=2)


def gymnasium_async(settings: ComputeSettings) -> PlainLoop:
    """Return gymnasium's AsyncVectorEnv over the same environments."""
    env = gymnasium.vector.AsyncVectorEnv([partial(AtariEnv, "pong") for _ in range(16)])
    return PlainLoop(env, settings, threads=2)


def sb3_subproc(settings: ComputeSettings) -> PlainLoop:
    """Return Stable-Baselines3's SubprocVecEnv over the same environments."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return PlainLoop(SubprocVecEnv([partial(AtariEnv, "pong") for _ in range(16)]), settings, threads=2)


PARTS: dict[str, Callable[[ComputeSettings], Any]] = {
    "bare": Bare,
    "bare64": partial(Bare, B=64),
    "serial": partial(Sampling, SamplerCls=SerialSampler, threads=2),
    "native": partial(Sampling, SamplerCls=SerialSampler, EnvCls=atari_make_vec, threads=2),
    "halves": partial(Sampling, SamplerCls=SerialSampler, EnvCls=atari_make_vec, threads=2, n_parts=2),
    "halves64": partial(Sampling, SamplerCls=SerialSampler, EnvCls=atari_make_vec, threads=2, n_parts=2, B=64),
    "plain_vector": plain_vector,
    "async": gymnasium_async,
    "sb3": sb3_subproc,
}
WITH_WORKERS: dict[str, tuple[type[BaseSampler], int, int]] = {
    "cpu": (CpuSampler, 1, 1),
    "gpu": (GpuSampler, 1, 2),
    "alternating": (AlternatingSampler, 1, 1),
    "alternating_2x": (AlternatingSampler, 2, 1),
    "no_overlap": (NoOverlapAlternatingSampler, 1, 1),
}
"""Samplers with workers: the class, how many times `--workers`, and the torch threads of this process."""
DEFAULTS = [
    "bare",
    "bare64",
    "serial",
    *(name for name in WITH_WORKERS if name != "alternating_2x"),
    "native",
    "halves",
]
DEFAULTS += ["halves64", "plain_vector", "async"]


def main() -> None:
    """Set all parts up, run them in turn, print rows per second and the ratio to the ceiling."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, *WITH_WORKERS], default=DEFAULTS)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--device", default="cpu", help="of the parts whose network is in this process")
    parser.add_argument("--workers", type=int, default=2, help="of the parts that have some; alternating_2x has twice")
    parser.add_argument("--batch-B", type=int, default=16, help="environments of the parts with workers")
    args = parser.parse_args()
    settings = ComputeSettings(precision=args.precision, channels_last=True)
    print(f"{args.precision}, channels-last")
    parts: dict[str, Any] = {}
    for name in args.parts:
        if name in WITH_WORKERS:
            SamplerCls, times, threads = WITH_WORKERS[name]
            device = "cpu" if SamplerCls is CpuSampler else args.device
            sizes: dict[str, Any] = dict(B=args.batch_B, n_workers=times * args.workers, threads=threads)
            parts[name] = Sampling(replace(settings, device=device), SamplerCls, **sizes)
        else:
            parts[name] = PARTS[name](settings)
    ceiling = {name: "bare64" if name.endswith("64") else "bare" for name in parts}
    interleave(parts, "rows/s", ceiling.__getitem__, args.rounds, args.seconds)


if __name__ == "__main__":
    main()
