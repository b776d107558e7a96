"""Sampling only: Pong, 16 environments, Nature network. How close the samplers come to what the cores allow.

    python benchmarks/sampling_pong.py [--parts ...] [--rounds 3]

The ceiling is what two independent processes reach, each with half of the environments and one thread, that do nothing
but step and run the network. Names end in the precision; "native" is a vector environment in this process, "halves" are
two that alternate. Peers with the same network: ale-py's vector environment in a plain loop, gymnasium's AsyncVectorEnv
and Stable-Baselines3's SubprocVecEnv (where it is installed).
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import alternate
import gymnasium
import numpy as np
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import AtariEnv, atari_make_vec, make_env
from rlpyt.samplers import AlternatingSampler, BaseSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.utils.compute import ComputeSettings

T, SECONDS, WARM_UP = 128, 4.0, 100
SETTINGS = {
    "float32": ComputeSettings(channels_last=True),
    "bfloat16": ComputeSettings(precision="bfloat16", channels_last=True),
}


def rate(step: Callable[[], int], warm_up: int = 1) -> float:
    """Return rows per second of a function that returns the rows of a call."""
    for _ in range(warm_up):
        step()
    rows, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < SECONDS:
        rows += step()
    return rows / seconds


def make_agent(spaces: Any, precision: str) -> CategoricalPgAgent:
    """Return an agent as a run would place it."""
    agent = CategoricalPgAgent()
    agent.initialize(spaces)
    agent.to_device(SETTINGS[precision])
    agent.collector_initialize(1, [0], 0)
    agent.sample_mode(0)
    return agent


def bare_process(rank: int, n: int, precision: str, results: Any, barrier: Any) -> None:
    """Step n environments and run the network for them, and nothing else."""
    torch.set_num_threads(1)
    envs = [make_env(AtariEnv, dict(game="pong"), rank * n + b) for b in range(n)]
    agent = make_agent(envs[0].spaces, precision)
    rows = np.stack([env.reset(env.rank)[0] for env in envs])
    inputs = torch.from_numpy(rows)
    ended = [False] * n

    def step() -> int:
        logits, _ = agent.model(inputs, None, None)
        actions = torch.distributions.Categorical(logits=logits.float()).sample().tolist()
        for b, env in enumerate(envs):
            if ended[b]:
                rows[b], ended[b] = env.reset()[0], False
            else:
                rows[b], _, terminated, truncated, _ = env.step(actions[b])
                ended[b] = terminated or truncated
        return n

    with torch.no_grad(), agent.autocast():
        for _ in range(WARM_UP):
            step()
        barrier.wait()
        results.put(rate(step))


def bare(precision: str, B: int = 16, processes: int = 2) -> float:
    """Return what independent processes reach together."""
    context = multiprocessing.get_context("spawn")
    results, barrier = context.Queue(), context.Barrier(processes)
    workers = [
        context.Process(target=bare_process, args=(rank, B // processes, precision, results, barrier))
        for rank in range(processes)
    ]
    for worker in workers:
        worker.start()
    total = sum(results.get() for _ in workers)
    for worker in workers:
        worker.join()
    return total


def sampling(
    SamplerCls: Any, precision: str, EnvCls: Any = AtariEnv, B: int = 16, threads: int = 1, **kwargs: Any
) -> float:
    """Return what a sampler reaches."""
    torch.set_num_threads(threads)
    sampler: BaseSampler = SamplerCls(EnvCls, dict(game="pong"), T, B, max_decorrelation_steps=WARM_UP, **kwargs)
    agent = CategoricalPgAgent()
    try:
        sampler.initialize(agent, seed=0, bootstrap_value=True)
        agent.to_device(SETTINGS[precision])
        numbers = iter(range(10**6))

        def step() -> int:
            sampler.obtain_samples(next(numbers))
            return T * B

        return rate(step)
    finally:
        sampler.shutdown()


def plain_vector(precision: str, B: int = 16) -> float:
    """Return what ale-py's vector environment reaches in a plain loop, two threads in the network."""
    from ale_py.vector_env import AtariVectorEnv

    torch.set_num_threads(2)
    env = AtariVectorEnv("pong", B, num_threads=2, use_fire_reset=False)
    return _plain_loop(env, precision)


def gymnasium_async(precision: str, B: int = 16) -> float:
    """Return what gymnasium's AsyncVectorEnv over the same environments reaches."""
    torch.set_num_threads(2)
    env = gymnasium.vector.AsyncVectorEnv([partial(AtariEnv, "pong") for _ in range(B)])
    return _plain_loop(env, precision)


def _plain_loop(env: Any, precision: str) -> float:
    agent = make_agent(make_env(AtariEnv, dict(game="pong")).spaces, precision)
    observation = [env.reset(seed=0)[0]]

    def step() -> int:
        logits, _ = agent.model(torch.from_numpy(observation[0]), None, None)
        action = torch.distributions.Categorical(logits=logits.float()).sample().numpy()
        observation[0] = env.step(action)[0]
        return len(action)

    with torch.no_grad(), agent.autocast():
        numbers = rate(step, warm_up=WARM_UP)
    env.close()
    return numbers


def sb3_subproc(precision: str, B: int = 16) -> float:
    """Return what Stable-Baselines3's SubprocVecEnv over the same environments reaches."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    torch.set_num_threads(2)
    env = SubprocVecEnv([partial(AtariEnv, "pong") for _ in range(B)])
    agent = make_agent(make_env(AtariEnv, dict(game="pong")).spaces, precision)
    observation = [env.reset()]

    def step() -> int:
        logits, _ = agent.model(torch.from_numpy(observation[0]), None, None)
        action = torch.distributions.Categorical(logits=logits.float()).sample().numpy()
        observation[0] = env.step(action)[0]
        return len(action)

    with torch.no_grad(), agent.autocast():
        numbers = rate(step, warm_up=WARM_UP)
    env.close()
    return numbers


def parts_of(precision: str) -> dict[str, Callable[[], float]]:
    """Return what is measured in one precision."""
    native: Any = dict(precision=precision, EnvCls=atari_make_vec)
    return {
        f"{name} {precision}": run
        for name, run in {
            "bare": partial(bare, precision),
            "serial": partial(sampling, SerialSampler, precision, threads=2),
            "cpu": partial(sampling, CpuSampler, precision, n_workers=2),
            "gpu": partial(sampling, GpuSampler, precision, n_workers=2),
            "alternating": partial(sampling, AlternatingSampler, precision),
            "native": partial(sampling, SerialSampler, **native),
            "halves": partial(sampling, SerialSampler, **native, n_parts=2),
            "halves64": partial(sampling, SerialSampler, **native, n_parts=2, B=64),
            "plain_vector": partial(plain_vector, precision),
            "async": partial(gymnasium_async, precision),
            "sb3": partial(sb3_subproc, precision),
        }.items()
    }


if __name__ == "__main__":
    alternate.main({**parts_of("bfloat16"), **parts_of("float32")}, "rows/s", baseline="bare bfloat16")
