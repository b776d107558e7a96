"""Asynchronous SAC on HalfCheetah-v5 beside the synchronous runner, one update a step, two cores: steps per second.

    python benchmarks/async_sac_half_cheetah.py        (needs rlpyt[mujoco]; `make bench` first for the peer)

Batches of 256, networks of 256 x 256. "one" has one environment and an update a step, as everybody has it; "eight" has
8 environments and 8 updates an iteration, which is the same replay ratio. The "learners" are two replicas with half the
rows each. The ratio is to the best synchronous part.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
from alternate import main
from performance import peer_speed
from training_speed import training_speed

from rlpyt.agents import SacAgent
from rlpyt.algos import SAC
from rlpyt.runners import AsyncRl, MinibatchRl
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings

STEPS, WARM_UP = 1_600, 1_200
COLUMNS = ("OptimizerWaitTime", "SamplerWaitTime", "HandOverTime", "DataAgeMean", "CumReplayRatio")


def speed(
    lag: int | str | None = None, B: int = 1, torch_threads: int = 1, precision: str = "float32", **replicas: Any
) -> float:
    """Return steps per second after the first updates; a lag of None is the synchronous runner."""
    sizes = dict(hidden_sizes=(256, 256))
    parts: dict[str, Any] = dict(
        algo=SAC(batch_size=256, replay_ratio=256, min_steps_learn=1_000, replay_size=100_000),
        agent=SacAgent(model_kwargs=sizes, q_model_kwargs=sizes),
        sampler=SerialSampler(gymnasium.make, dict(id="HalfCheetah-v5"), 1, B, max_decorrelation_steps=0),
        n_steps=WARM_UP + STEPS,
        log_interval_steps=400,
        seed=0,
        settings=ComputeSettings(torch_threads=torch_threads, precision=precision),
    )
    runner = MinibatchRl(**parts) if lag is None else AsyncRl(**parts, lag=lag, **replicas)
    return training_speed(runner, WARM_UP, COLUMNS)


PARTS = {
    "sync, one, one thread": speed,
    "sync, one, two threads": partial(speed, torch_threads=2),
    "sync, eight, two threads": partial(speed, B=8, torch_threads=2),
    "one, lag 1": partial(speed, lag=1),
    "one, lag 2": partial(speed, lag=2),
    "one, free": partial(speed, lag="free"),
    "eight, lag 1": partial(speed, lag=1, B=8),
    "one, lag 1, two threads": partial(speed, lag=1, torch_threads=2),
    "sync, one, bfloat16, two threads": partial(speed, torch_threads=2, precision="bfloat16"),
    "one, lag 1, bfloat16": partial(speed, lag=1, precision="bfloat16"),
    "eight, lag 1, bfloat16": partial(speed, lag=1, B=8, precision="bfloat16"),
    "eight, lag 1, two learners": partial(speed, lag=1, B=8, n_replicas=2, batch_sizes="global"),
    "sb3, one core": partial(peer_speed, "stable_baselines3", "sac_half_cheetah"),
    "sb3, two cores": partial(peer_speed, "stable_baselines3", "sac_two_cores"),
}

if __name__ == "__main__":
    main(PARTS, "steps/s", baseline=[name for name in PARTS if name.startswith("sync")])
