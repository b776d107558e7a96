"""Search of PPO's settings on CartPole-v1 by Optuna, with pruned trials.

    python examples/search.py [--smoke]

The script launches itself once for each trial, side by side on the cores of this machine. Call it again at any time: it
goes on with what was stopped or killed. The trials are in data/ppo_cartpole_search.
"""

from __future__ import annotations

import sys

import gymnasium
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.launching import launched_run, quick_affinity_code, search_experiments, update_config
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler

CONFIG = MinibatchRl(
    algo=PPO(),
    agent=CategoricalPgAgent(),
    sampler=SerialSampler(EnvCls=gymnasium.make, env_kwargs=dict(id="CartPole-v1"), batch_T=64, batch_B=8),
    n_steps=20_000,
    log_interval_steps=2_000,
    checkpoint_interval_steps=10_000,
)
SPACE: dict[tuple[str, ...], BaseDistribution] = {
    ("algo", "learning_rate"): FloatDistribution(1e-4, 1e-2, log=True),
    ("algo", "gae_lambda"): FloatDistribution(0.8, 1.0),
    ("algo", "epochs"): IntDistribution(2, 10),
    ("sampler", "batch_T"): CategoricalDistribution([16, 32, 64]),
}


def main() -> int:
    """Launch the search, or train as one of its runs."""
    run, smoke = launched_run(), sys.argv[-1] == "--smoke"
    if run is None:
        n_trials, args = (2, ["--smoke"]) if smoke else (20, [])
        title, code = "ppo_cartpole_search", quick_affinity_code()
        return search_experiments(__file__, code, title, SPACE, n_trials, config=CONFIG, common_args=args).exit_code
    runner = update_config(CONFIG, run.variant).replace(seed=run.run_ID, affinity=run.affinity)
    if smoke:
        runner = runner.replace(n_steps=1_024, log_interval_steps=512)
    with logger_context(run.log_dir, run.run_ID, name="ppo_cartpole_search", resume="auto"):
        runner.train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
