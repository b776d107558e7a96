"""Share of copier, lock and hand-over in the time of asynchronous runs: DQN on images, SAC on vectors, two cores.

    python benchmarks/async_handover.py                (needs rlpyt[atari,mujoco])

The runs are those of `async_dqn_pong.py` and `async_sac_half_cheetah.py`. Printed is the sum of the columns CopierTime,
LockTime and HandOverTime after the first updates, in percent of the time; and each of them. The copier works beside the
learner, so its time is counted although nobody waits for it. With a lag there is neither copier nor lock.
"""

from __future__ import annotations

import csv
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from alternate import main

from rlpyt.agents import AtariDqnAgent, SacAgent
from rlpyt.algos import DQN, SAC
from rlpyt.envs import AtariEnv
from rlpyt.logging import logger_context
from rlpyt.runners import AsyncRl
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings

COLUMNS = ("CopierTime", "LockTime", "HandOverTime")
SIZES = {"hidden_sizes": (256, 256)}


def share(parts: dict[str, Any], warm_up: int, lag: int | str, **settings: Any) -> float:
    """Return the percent of the time that the columns take together, after the steps of the warm-up."""
    runner = AsyncRl(**parts, lag=lag, seed=0, settings=ComputeSettings(torch_threads=1, **settings))
    with tempfile.TemporaryDirectory() as directory:
        with logger_context(directory, run_ID=0, name="benchmark", snapshot_mode="none"):
            runner.train()
        with open(Path(directory) / "run_0" / "progress.csv", newline="") as file:
            table = [{key.removeprefix("Diagnostics/"): x for key, x in row.items()} for row in csv.DictReader(file)]
    first, *rest = [row for row in table if float(row["CumSteps"]) >= warm_up]
    seconds = float(rest[-1]["CumTime (s)"]) - float(first["CumTime (s)"])
    shares = {column: 100 * sum(float(row.get(column, 0)) for row in rest) / seconds for column in COLUMNS}
    for column, percent in shares.items():
        print(f"NOTE {column} {percent:.2f} %")
    return sum(shares.values())


def dqn(lag: int | str) -> float:
    """Return the share of DQN on Pong: images, batches of 4 x 8 rows."""
    parts: dict[str, Any] = dict(
        algo=DQN(batch_size=32, replay_ratio=8, replay_size=20_000, min_steps_learn=440, learning_rate=1e-4),
        agent=AtariDqnAgent(model_kwargs=dict(paddings=(0, 0, 0))),
        sampler=SerialSampler(AtariEnv, dict(game="pong"), 4, 8, max_decorrelation_steps=0),
        n_steps=2_240,
        log_interval_steps=320,
    )
    return share(parts, 640, lag, channels_last=True)


def sac(lag: int | str, B: int = 1) -> float:
    """Return the share of SAC on HalfCheetah: vectors, batches of 1 x B rows."""
    parts: dict[str, Any] = dict(
        algo=SAC(batch_size=256, replay_ratio=256, min_steps_learn=1_000, replay_size=100_000),
        agent=SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES),
        sampler=SerialSampler(gymnasium.make, dict(id="HalfCheetah-v5"), 1, B, max_decorrelation_steps=0),
        n_steps=2_800,
        log_interval_steps=400,
    )
    return share(parts, 1_200, lag)


PARTS = {
    "DQN Pong, free": partial(dqn, "free"),
    "DQN Pong, lag 1": partial(dqn, 1),
    "SAC HalfCheetah, free": partial(sac, "free"),
    "SAC HalfCheetah, lag 1": partial(sac, 1),
    "SAC HalfCheetah, 8 environments, free": partial(sac, "free", 8),
}

if __name__ == "__main__":
    main(PARTS, "percent")
