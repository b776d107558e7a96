"""Runs for cases on a cluster: slow until a case says go, and then as fast as they can.

    python study.py LOG_DIR RUN_ID [replicas]

With `replicas` a run is of two: the tasks of a job, or where none is, processes of its own.
So something can be done to a run at its second row, and nobody waits for its end. Numbers do not depend on the pace.
"""

from __future__ import annotations

import os
import sys
import time

import gymnasium

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.launching import VariantLevel
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl, SyncRl
from rlpyt.samplers import SerialSampler

STEP_SECONDS = float(os.environ.get("STEP_SECONDS", 0.003))


class Paced(gymnasium.Wrapper):
    """Environment that waits at each step until the file that the variable GO names is there."""

    def step(self, action):
        if not os.path.exists(os.environ.get("GO", "/")):
            time.sleep(STEP_SECONDS)
        return self.env.step(action)


def paced_cartpole() -> gymnasium.Env:
    return Paced(gymnasium.make("CartPole-v1"))


CONFIG = MinibatchRl(
    PPO(learning_rate=1e-3, epochs=1, minibatches=2),
    CategoricalPgAgent(),
    SerialSampler(paced_cartpole, {}, batch_T=64, batch_B=4),
    n_steps=-1 if "BAD" in os.environ and "SLURM_JOB_ID" in os.environ else 64 * 256,
    log_interval_steps=4 * 256,
    checkpoint_interval_minutes=1,
)
LEVELS = [VariantLevel([("algo", "learning_rate")], [(1e-3,)], ["lr_1e-3"])]


if os.environ.get("SLURM_JOB_ID"):  # a line for each start of a run in the output of its job
    print(f"start {os.environ['SLURM_JOB_ID']} {sys.argv[1:2]} cores {sorted(os.sched_getaffinity(0))}", flush=True)


def replicas() -> SyncRl:
    steps = dict(n_steps=64 * 256, log_interval_steps=4 * 256)
    n_replicas = None if "RANK" in os.environ else 2
    return SyncRl(CONFIG.algo, CONFIG.agent, CONFIG.sampler, n_replicas=n_replicas, **steps)


if __name__ == "__main__":
    log_dir, run_ID = sys.argv[1], int(sys.argv[2])
    runner = replicas() if "replicas" in sys.argv[3:] else CONFIG
    with logger_context(log_dir, run_ID, resume="auto"):
        runner.replace(seed=run_ID).train()
