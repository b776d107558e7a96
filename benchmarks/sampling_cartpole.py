"""Sampling a cheap environment: CartPole-v1, 16 environments, two workers. What the hand-over between processes costs.

    python benchmarks/sampling_cartpole.py [--parts ...] [--rounds 8]

A step of CartPole takes 6 us, a wake-up of a sleeping process 44 us. All parts run the same policy (PgAgent's two 64 x
64 networks) with one thread. gymnasium's AsyncVectorEnv and Stable-Baselines3's SubprocVecEnv (where it is installed)
have a process for each environment, as they come. Behind the ratio stands how the time of rlpyt's samplers was spent;
"handover" is GpuSampler without a network, so that what is left beside the environments is the hand-over.
"""

from __future__ import annotations

import rlpyt  # noqa: F401  # before torch, as in a script that imports nothing else; see rlpyt/__init__.py

# isort: split
import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import torch
from alternate import interleave, rate

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import make_env
from rlpyt.samplers import AlternatingSampler, BaseSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.types import AgentStep

T, B = 128, 16
CARTPOLE = dict(id="CartPole-v1")


class Idle(CategoricalPgAgent):
    """Takes the same action everywhere, without asking a network."""

    answer: AgentStep | None = None

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> AgentStep:
        """Return the first answer again."""
        if self.answer is None or len(self.answer.action) != len(observation):
            self.answer = super().step(observation, prev_action, prev_reward)
        return self.answer


class Sampling:
    """One of rlpyt's samplers."""

    def __init__(
        self,
        SamplerCls: type[BaseSampler],
        EnvCls: Any = gymnasium.make,
        AgentCls: type[CategoricalPgAgent] = CategoricalPgAgent,
        **kwargs: Any,
    ) -> None:
        self.sampler = SamplerCls(EnvCls, CARTPOLE, T, B, time_breakdown=True, **kwargs)
        self.sampler.initialize(AgentCls())
        self.itr = 0
        self.notes = ""

    def step(self) -> int:
        """Collect a batch."""
        self.sampler.obtain_samples(self.itr)
        self.itr += 1
        return T * B

    def run(self, seconds: float) -> float:
        """Return rows per second."""
        result = rate(self.step, seconds)
        times = self.sampler.diagnostics()
        total = sum(times.values())
        self.notes = " ".join(f"{name.removesuffix('Time')} {t / total:.0%}" for name, t in times.items())
        return result

    def close(self) -> None:
        """Stop the workers."""
        self.sampler.shutdown()


class PlainLoop:
    """Another library's vector environment with the same policy."""

    def __init__(self, env: Any) -> None:
        self.env, self.agent = env, CategoricalPgAgent()
        self.agent.initialize(make_env(gymnasium.make, CARTPOLE).spaces)
        self.actor = self.agent.actor(range(B), B, 0)
        self.actor.begin(0)
        observation = env.reset()
        self.observation = observation[0] if isinstance(observation, tuple) else observation
        self.previous = torch.zeros(B, dtype=torch.int64), torch.zeros(B)

    def step(self) -> int:
        """Take one step in every environment."""
        action = self.actor.step(torch.from_numpy(self.observation), *self.previous).action.numpy()
        self.observation = self.env.step(action)[0]
        return B

    @torch.no_grad()
    def run(self, seconds: float) -> float:
        """Return rows per second."""
        return rate(self.step, seconds)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def sb3_subproc() -> PlainLoop:
    """Return Stable-Baselines3's SubprocVecEnv."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return PlainLoop(SubprocVecEnv([partial(gymnasium.make, "CartPole-v1") for _ in range(B)]))


PARTS: dict[str, Callable[[], Any]] = {
    "async": lambda: PlainLoop(gymnasium.make_vec("CartPole-v1", num_envs=B, vectorization_mode="async")),
    "sb3": sb3_subproc,
    "serial": partial(Sampling, SerialSampler),
    "cpu": partial(Sampling, CpuSampler, n_workers=2),
    "gpu": partial(Sampling, GpuSampler, n_workers=2),
    "alternating": partial(Sampling, AlternatingSampler, n_workers=2),
    "native": partial(Sampling, SerialSampler, EnvCls=gymnasium.make_vec),
    "handover": partial(Sampling, GpuSampler, AgentCls=Idle, n_workers=2),
}


def main() -> None:
    """Set all parts up, run them in turn, print rows per second and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=[p for p in PARTS if p != "sb3"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts = {name: PARTS[name]() for name in args.parts}
    interleave(parts, "rows/s", lambda name: "async", args.rounds, args.seconds)


if __name__ == "__main__":
    main()
