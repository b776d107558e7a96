"""Asynchronous DQN on Pong beside the synchronous runner, same replay ratio, two cores each: steps per second.

    python benchmarks/async_dqn_pong.py                (needs rlpyt[atari]; `make bench` first for the peer)

4 x 8 rows and 8 updates of 32 an iteration, Nature network. The synchronous parts
have two torch threads, or let the runner choose; the ratio is to the best of them. The asynchronous parts learn with
one thread, while the sampler's process steps and acts with another. "ratio 1" takes one update an iteration; its parts
are compared with each other: `--parts "ratio 1, sync, two threads" "ratio 1, lag 1" "ratio 1, free"`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from alternate import main
from performance import peer_speed
from training_speed import training_speed

from rlpyt.agents import AtariDqnAgent
from rlpyt.algos import DQN
from rlpyt.envs import AtariEnv
from rlpyt.runners import AsyncRl, MinibatchRl
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.utils.compute import ComputeSettings

T, B, STEPS, WARM_UP = 4, 8, 1_600, 640
COLUMNS = ("OptimizerWaitTime", "SamplerWaitTime", "HandOverTime", "DataAgeMean", "CumReplayRatio")


def speed(lag: int | str | None = None, sample_mode: str = "serial", replay_ratio: float = 8, **settings: Any) -> float:
    """Return steps per second after the first updates; a lag of None is the synchronous runner."""
    workers: dict[str, Any] = {"n_workers": 2} if sample_mode == "cpu" else {}
    SamplerCls = {"cpu": CpuSampler, "serial": SerialSampler}[sample_mode]
    parts: dict[str, Any] = dict(
        algo=DQN(
            batch_size=32,
            replay_ratio=replay_ratio,
            replay_size=20_000,
            min_steps_learn=WARM_UP - 200,
            learning_rate=1e-4,
        ),
        agent=AtariDqnAgent(model_kwargs=dict(paddings=(0, 0, 0))),
        sampler=SamplerCls(AtariEnv, dict(game="pong"), T, B, max_decorrelation_steps=0, **workers),
        n_steps=WARM_UP + STEPS,
        log_interval_steps=WARM_UP // 2,
        seed=0,
        settings=ComputeSettings(**settings) if settings else None,
    )
    runner = MinibatchRl(**parts) if lag is None else AsyncRl(**parts, lag=lag)
    return training_speed(runner, WARM_UP, COLUMNS)


ONE: dict[str, Any] = dict(torch_threads=1, channels_last=True)
TWO: dict[str, Any] = {**ONE, "torch_threads": 2}
PARTS = {
    "sync, serial, two threads": partial(speed, **TWO),
    "sync, cpu, two threads": partial(speed, sample_mode="cpu", **TWO),
    "sync, serial, chosen": speed,
    "lag 1": partial(speed, lag=1, **ONE),
    "lag 1, two threads": partial(speed, lag=1, **TWO),
    "lag 2": partial(speed, lag=2, **ONE),
    "free": partial(speed, lag="free", **ONE),
    "lag 1, chosen": partial(speed, lag=1),
    "ratio 1, sync, two threads": partial(speed, replay_ratio=1, **TWO),
    "ratio 1, lag 1": partial(speed, lag=1, replay_ratio=1, **ONE),
    "ratio 1, free": partial(speed, lag="free", replay_ratio=1, **ONE),
    "sb3": partial(peer_speed, "stable_baselines3", "dqn_pong"),
}

if __name__ == "__main__":
    main(PARTS, "steps/s", baseline=[name for name in PARTS if name.startswith("sync")])
