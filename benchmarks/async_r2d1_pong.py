"""Asynchronous R2D1 on Pong beside the synchronous runner, two cores each: rows per second after the first updates.

    python benchmarks/async_r2d1_pong.py

Settings are those of `r2d1_pong.py`: 16 environments, sequences of 80 rows after 40 to warm up, 8 of them an update,
replay ratio 1. The ratio is to the best synchronous part.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from alternate import main
from training_speed import training_speed

from rlpyt.agents import AtariR2d1Agent
from rlpyt.algos import R2D1
from rlpyt.envs import AtariEnv
from rlpyt.runners import AsyncRl, MinibatchRl
from rlpyt.samplers import AlternatingSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.utils.compute import ComputeSettings

T, B, N_ITR, WARM_UP = 60, 16, 12, 5
SAMPLERS: dict[str, Any] = {
    "serial": SerialSampler,
    "cpu": CpuSampler,
    "gpu": GpuSampler,
    "alternating": AlternatingSampler,
}
COLUMNS = ("OptimizerWaitTime", "SamplerWaitTime", "HandOverTime", "DataAgeMean", "CumReplayRatio")


def speed(lag: int | str | None = None, sample_mode: str = "serial", **settings: Any) -> float:
    """Return rows per second after the first updates; a lag of None is the synchronous runner."""
    parts: dict[str, Any] = dict(
        algo=R2D1(batch_B=8, replay_size=20_000, min_steps_learn=4 * T * B),
        agent=AtariR2d1Agent(),
        sampler=SAMPLERS[sample_mode](AtariEnv, dict(game="pong"), T, B, max_decorrelation_steps=0),
        n_steps=N_ITR * T * B,
        log_interval_steps=T * B,
        seed=0,
        settings=ComputeSettings(**settings) if settings else None,
    )
    runner = MinibatchRl(**parts) if lag is None else AsyncRl(**parts, lag=lag)
    return training_speed(runner, WARM_UP * T * B, COLUMNS)


ONE: dict[str, Any] = dict(torch_threads=1, channels_last=True)
TWO: dict[str, Any] = {**ONE, "torch_threads": 2}
PARTS = {
    **{f"sync, {mode}": partial(speed, sample_mode=mode, **TWO) for mode in ("cpu", "alternating", "serial")},
    "lag 1": partial(speed, lag=1, **ONE),
    "lag 2": partial(speed, lag=2, **ONE),
    "free": partial(speed, lag="free", **ONE),
}

if __name__ == "__main__":
    main(PARTS, "rows/s", baseline=[name for name in PARTS if name.startswith("sync")])
