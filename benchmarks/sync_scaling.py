"""Replicas of A2C on Pong, one core each: steps per second beside one replica on one core.

    python benchmarks/sync_scaling.py

Each replica has 16 environments x 5 rows, the Nature network and one thread; `SerialSampler` steps and acts on the same
core. "halves" are two replicas with 8 environments each, so the batch is that of "one". "apart" are two runs of one
replica at the same time, which agree on nothing: what two cores allow.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

from alternate import main
from training_speed import training_speed

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import A2C
from rlpyt.envs import AtariEnv
from rlpyt.runners import MinibatchRl, SyncRl
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.process_group import Reduction
from rlpyt.utils.processes import available_cpus

B, ROWS, N_ITR, WARM_UP = 16, 5, 100, 20


def speed(n_replicas: int = 1, batch_B: int = B, core: int = 0, reduction: Reduction = "flat") -> float:
    """Return steps per second, all replicas counted."""
    cores = available_cpus()
    steps_per_itr = n_replicas * batch_B * ROWS
    parts: dict[str, Any] = dict(
        algo=A2C(learning_rate=3e-4),
        agent=CategoricalPgAgent(),
        sampler=SerialSampler(AtariEnv, dict(game="pong"), ROWS, batch_B, max_decorrelation_steps=0),
        n_steps=N_ITR * steps_per_itr,
        log_interval_steps=WARM_UP * steps_per_itr,
        seed=0,
        settings=ComputeSettings(torch_threads=1, channels_last=True),
    )
    pinned = [dict(master_cpus=[cpu], workers_cpus=[cpu]) for cpu in cores[core : core + n_replicas]]
    if n_replicas == 1:
        runner: Any = MinibatchRl(**parts, affinity=pinned[0])
    else:
        runner = SyncRl(**parts, affinity=pinned, reduction=reduction)
    return training_speed(runner, WARM_UP * steps_per_itr)


def apart() -> float:
    """Return steps per second of two runs that agree on nothing, each on its core."""
    command = [sys.executable, __file__, "--run", "second"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        mine = speed()
        output, _ = other.communicate()
    return mine + next(float(line.split()[1]) for line in output.splitlines() if line.startswith("RESULT "))


PARTS = {
    "one": speed,
    "two": partial(speed, n_replicas=2),
    "two, ddp": partial(speed, n_replicas=2, reduction="ddp"),
    "halves": partial(speed, n_replicas=2, batch_B=B // 2),
    "apart": apart,
    "second": partial(speed, core=1),
}

if __name__ == "__main__":
    main(PARTS, "steps/s", baseline="one")
