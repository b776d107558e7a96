"""Sampling a cheap environment: CartPole-v1, 16 environments, two workers. What the hand-over between processes costs.

    python benchmarks/sampling_cartpole.py [--parts ...] [--rounds 3]

A step of CartPole takes 6 us, a wake-up of a sleeping process 44 us. All parts run the same policy (PgAgent's two 64 x
64 networks) with one thread. gymnasium's AsyncVectorEnv and Stable-Baselines3's SubprocVecEnv (where it is installed)
have a process for each environment, as they come. `--run gpu` prints how the time was spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import alternate
import gymnasium
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import make_env
from rlpyt.samplers import AlternatingSampler, BaseSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.utils.compute import ComputeSettings

T, B, SECONDS = 128, 16, 4.0
CARTPOLE = dict(id="CartPole-v1")


def rate(step: Callable[[], int], warm_up: int) -> float:
    """Return rows per second of a function that returns the rows of a call."""
    for _ in range(warm_up):
        step()
    rows, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < SECONDS:
        rows += step()
    return rows / seconds


def sampling(SamplerCls: Any, EnvCls: Any = gymnasium.make, **kwargs: Any) -> float:
    """Return what a sampler reaches."""
    torch.set_num_threads(1)
    sampler: BaseSampler = SamplerCls(EnvCls, CARTPOLE, T, B, time_breakdown=True, **kwargs)
    agent = CategoricalPgAgent()
    try:
        sampler.initialize(agent, seed=0)
        agent.to_device(ComputeSettings())
        sampler.obtain_samples(0)
        sampler.diagnostics()
        itr = iter(range(1, 10**6))

        def step() -> int:
            sampler.obtain_samples(next(itr))
            return T * B

        result = rate(step, warm_up=0)
        times = sampler.diagnostics()
        total = sum(times.values())
        print({name: f"{seconds / total:.0%}" for name, seconds in times.items()})
        return result
    finally:
        sampler.shutdown()


def plain_loop(env: Any, reset: Callable[[], Any]) -> float:
    """Return what another library's vector environment reaches with the same policy."""
    torch.set_num_threads(1)
    agent = CategoricalPgAgent()
    agent.initialize(make_env(gymnasium.make, CARTPOLE).spaces)
    agent.collector_initialize(B, range(B), 0)
    agent.sample_mode(0)
    observation = [reset()]
    prev_action, prev_reward = torch.zeros(B, dtype=torch.int64), torch.zeros(B)

    def step() -> int:
        action = agent.step(torch.from_numpy(observation[0]), prev_action, prev_reward).action.numpy()
        observation[0] = env.step(action)[0]
        return B

    with torch.no_grad():
        result = rate(step, warm_up=200)
    env.close()
    return result


def gymnasium_async() -> float:
    """Return what gymnasium's AsyncVectorEnv reaches."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=B, vectorization_mode="async")
    return plain_loop(env, lambda: env.reset(seed=0)[0])


def sb3_subproc() -> float:
    """Return what Stable-Baselines3's SubprocVecEnv reaches."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    env = SubprocVecEnv([partial(gymnasium.make, "CartPole-v1") for _ in range(B)])
    return plain_loop(env, env.reset)


PARTS: dict[str, Callable[[], float]] = {
    "sb3": sb3_subproc,
    "async": gymnasium_async,
    "serial": partial(sampling, SerialSampler),
    "cpu": partial(sampling, CpuSampler, n_workers=2),
    "gpu": partial(sampling, GpuSampler, n_workers=2),
    "alternating": partial(sampling, AlternatingSampler, n_workers=2),
    "native": partial(sampling, SerialSampler, EnvCls=gymnasium.make_vec, max_decorrelation_steps=0),
}

if __name__ == "__main__":
    alternate.main(PARTS, "rows/s", baseline="sb3")
