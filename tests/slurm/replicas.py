"""Run of two replicas: the tasks of a job, or where none is, processes of its own.

python replicas.py LOG_DIR RUN_ID
"""

from __future__ import annotations

import os
import sys

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context
from rlpyt.runners import SyncRl
from rlpyt.samplers import SerialSampler
from tests.slurm.study import paced_cartpole

if __name__ == "__main__":
    runner = SyncRl(
        PPO(learning_rate=1e-3, epochs=1, minibatches=2),
        CategoricalPgAgent(),
        SerialSampler(paced_cartpole, {}, batch_T=64, batch_B=4),
        n_steps=64 * 256,
        seed=int(sys.argv[2]),
        log_interval_steps=4 * 256,
        n_replicas=None if "RANK" in os.environ else 2,
    )
    with logger_context(sys.argv[1], sys.argv[2], resume="auto"):
        runner.train()
