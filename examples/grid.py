"""PPO on CartPole-v1 over learning rates and numbers of environments, with two seeds each.

    python examples/grid.py [--ray | --submitit] [--smoke]

The script launches itself once for each run, side by side on the cores of this machine, with --ray on those of all
nodes of a Ray cluster, or with --submitit as jobs of SLURM (of this machine where there is none). With --smoke two
short runs show that the script works; they stay on this machine. Call it again at any time: it goes on with what was
stopped or killed. The runs are in data/ppo_cartpole_grid.
"""

from __future__ import annotations

import sys

import gymnasium

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.launching import (
    ClusterSlots,
    RayNodes,
    VariantLevel,
    launched_run,
    make_variants,
    quick_affinity_code,
    run_experiments,
    update_config,
)
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler

CONFIG = MinibatchRl(
    algo=PPO(learning_rate=1e-3, gae_lambda=0.95),
    agent=CategoricalPgAgent(),
    sampler=SerialSampler(EnvCls=gymnasium.make, env_kwargs=dict(id="CartPole-v1"), batch_T=64, batch_B=8),
    n_steps=50_000,
    log_interval_steps=5_000,
    checkpoint_interval_steps=10_000,
)
RATES = VariantLevel([("algo", "learning_rate")], [(1e-3,), (3e-4,)], ["lr_1e-3", "lr_3e-4"])
ENVIRONMENTS = VariantLevel([("sampler", "batch_B")], [(4,), (8,), (16,)], ["B_4", "B_8", "B_16"])


def place() -> str | RayNodes | ClusterSlots:
    """Return where the runs go."""
    if "--submitit" in sys.argv:
        import submitit

        executor = submitit.AutoExecutor("data/jobs", cluster="local" if "--smoke" in sys.argv else None)
        executor.update_parameters(timeout_min=60, cpus_per_task=1)
        return ClusterSlots(executor, n_slots=2)
    return RayNodes() if "--ray" in sys.argv and "--smoke" not in sys.argv else quick_affinity_code()


def main() -> int:
    """Launch the grid, or train as one of its runs."""
    run, smoke = launched_run(), "--smoke" in sys.argv
    if run is None:
        variants, log_dirs = make_variants(RATES) if smoke else make_variants(RATES, ENVIRONMENTS)
        args = ["--smoke"] if smoke else []
        n_seeds = 1 if smoke else 2
        title = "ppo_cartpole_grid"
        return run_experiments(__file__, place(), title, n_seeds, variants, log_dirs, common_args=args)
    runner = update_config(CONFIG, run.variant).replace(seed=run.run_ID, affinity=run.affinity)
    if smoke:
        runner = runner.replace(n_steps=1_024, log_interval_steps=512)
    with logger_context(run.log_dir, run.run_ID, name="ppo_cartpole_grid", resume="auto"):
        runner.train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
