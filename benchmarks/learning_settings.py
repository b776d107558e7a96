"""What DQN, Rainbow and PPO learn on CartPole in float32, in bfloat16, compiled, and in both.

    python benchmarks/learning_settings.py

One line for each algorithm and setting: the mean of the last evaluation (100 episodes of the best action), by seed. One
thread, one run at a time.
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
from pathlib import Path
from typing import Any

import gymnasium

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context, read_progress
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler
from rlpyt.utils import ComputeSettings

SETTINGS = {
    "float32": ComputeSettings(),
    "bfloat16": ComputeSettings(precision="bfloat16"),
    "compiled": ComputeSettings(compile=True),
    "bfloat16, compiled": ComputeSettings(precision="bfloat16", compile=True),
}
Q_STEPS, PPO_STEPS = 30_000, 100_000


def parts(name: str) -> tuple[Any, Any, int, dict[str, Any]]:
    """Return algorithm, agent, steps and the sizes of a batch."""
    if name == "ppo":
        algo = PPO(learning_rate=3e-4, gae_lambda=0.95, epochs=10, minibatches=16, normalize_advantage=True)
        return algo, CategoricalPgAgent(), PPO_STEPS, dict(batch_T=128, batch_B=8)
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "dqn_cartpole.py"))
    return *example["make"](name, Q_STEPS), Q_STEPS, dict(batch_T=4, batch_B=4)


def trained(name: str, settings: ComputeSettings, seed: int) -> float:
    """Return the last evaluation of a run."""
    algo, agent, n_steps, batch = parts(name)
    sampler = SerialSampler(gymnasium.make, dict(id="CartPole-v1"), **batch, eval_n_envs=10, eval_max_trajectories=100)
    runner = MinibatchRlEval(algo, agent, sampler, n_steps, seed, log_interval_steps=n_steps, settings=settings)
    with tempfile.TemporaryDirectory() as folder, logger_context(folder, snapshot_mode="none"):
        runner.train()
        (run_dir,) = Path(folder).glob("run_*")
        return float(read_progress(run_dir)["ReturnAverage"][-1])


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algos", nargs="*", default=["ppo", "dqn", "rainbow"])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    for name in args.algos:
        for what, settings in SETTINGS.items():
            scores = [trained(name, settings, seed) for seed in range(args.seeds)]
            print(f"RESULT {name}, {what}: {', '.join(f'{score:.1f}' for score in scores)}", flush=True)


if __name__ == "__main__":
    main()
