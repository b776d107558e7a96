"""What asynchronous SAC learns beside synchronous SAC, with the same steps, settings and seeds.

    python benchmarks/async_learning.py --task pendulum
    python benchmarks/async_learning.py --task half_cheetah

Trains every mode with every seed, one after the other. A run that is finished is not made again, so the script can be
stopped and called again. Prints a table of the returns of each run, and a curve of the means; both go to `curve.md` in
the folder of the task. HalfCheetah needs rlpyt[mujoco], and hours.
"""

from __future__ import annotations

import argparse
import json
import shutil
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import gymnasium
import torch

from rlpyt.agents import SacAgent
from rlpyt.algos import SAC
from rlpyt.logging import logger_context, read_progress
from rlpyt.runners import AsyncRlEval, MinibatchRlEval
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings

WIDTH = 60


class Task(NamedTuple):
    """Environment, length, and settings of SAC."""

    env: str
    n_steps: int
    n_points: int
    seeds: list[int]
    algo: dict[str, Any]
    n_episodes: int


TASKS = {
    "pendulum": Task(
        "Pendulum-v1",
        10_000,
        10,
        [0, 1, 2],
        dict(learning_rate=1e-3, q_learning_rate=1e-3, min_steps_learn=500, replay_size=100_000),
        20,
    ),
    # As in benchmarks/learning_mujoco.py.
    "half_cheetah": Task(
        "HalfCheetah-v5", 60_000, 12, [0, 1], dict(batch_size=256, replay_ratio=256, min_steps_learn=10_000), 5
    ),
}
MODES: dict[str, tuple[Any, dict[str, int]]] = {
    "sync": (MinibatchRlEval, {}),
    "async": (AsyncRlEval, dict(lag=1)),
    "async_lag_16": (AsyncRlEval, dict(lag=16)),
}


def train(task: Task, mode: str, seed: int, folder: Path) -> None:
    """Train in `folder/run_<seed>`, unless that run is finished."""
    run_dir = folder / f"run_{seed}"
    if is_finished(run_dir):
        return
    shutil.rmtree(run_dir, ignore_errors=True)
    RunnerCls, settings = MODES[mode]
    sizes = dict(hidden_sizes=(256, 256))
    sampler = SerialSampler(
        gymnasium.make,
        dict(id=task.env),
        batch_T=1,
        batch_B=1,
        max_decorrelation_steps=0,
        eval_n_envs=1,
        eval_max_trajectories=task.n_episodes,
    )
    runner = RunnerCls(
        SAC(**task.algo),
        SacAgent(model_kwargs=sizes, q_model_kwargs=sizes),
        sampler,
        n_steps=task.n_steps,
        log_interval_steps=task.n_steps // task.n_points,
        seed=seed,
        settings=ComputeSettings(torch_threads=1),
        **settings,
    )
    with logger_context(folder, run_ID=seed, name=f"{mode}_{task.env}", snapshot_mode="none"):
        runner.train()


def is_finished(run_dir: Path) -> bool:
    """Return whether the run is there and came to its end."""
    status = run_dir / "status.json"
    return status.exists() and json.loads(status.read_text())["status"] == "finished"


def report(folder: Path, modes: list[str], seeds: list[int]) -> str:
    """Return the table of the runs that are finished, and the curve of their means."""
    runs = {
        (mode, seed): read_progress(folder / mode / f"run_{seed}")
        for mode in modes
        for seed in seeds
        if is_finished(folder / mode / f"run_{seed}")
    }
    steps = [int(x) for x in next(iter(runs.values()))["Diagnostics/CumSteps"]]
    lines = [
        "| steps | " + " | ".join(f"{mode}, seed {seed}" for mode, seed in runs) + " |",
        "|---|" + "---|" * len(runs),
    ]
    for i, n in enumerate(steps):
        lines.append(f"| {n:,} | " + " | ".join(f"{run['ReturnAverage'][i]:,.0f}" for run in runs.values()) + " |")
    seconds = [run["Diagnostics/CumTime (s)"][-1] for run in runs.values()]
    lines.append("| seconds | " + " | ".join(f"{x:,.0f}" for x in seconds) + " |")
    return "\n".join([*lines, "", *curve(runs, steps)])


def curve(runs: dict[tuple[str, int], dict[str, list[float]]], steps: list[int]) -> list[str]:
    """Return a line for each point, with the first letter or digit of a mode's name at the mean of its seeds."""
    by_mode = {
        mode: [run["ReturnAverage"] for (of, _), run in runs.items() if of == mode] for mode in dict(runs.keys())
    }
    means = {mode: [fmean(column) for column in zip(*rows, strict=True)] for mode, rows in by_mode.items()}
    known = [x for row in means.values() for x in row if not isnan(x)]  # without an update there is no evaluation
    lowest, highest = min(known), max(known)
    lines = [f"    {lowest:,.0f} to {highest:,.0f}: {', '.join(f'{mark_of(mode)} {mode}' for mode in means)}"]
    for i, n in enumerate(steps):
        line = [" "] * (WIDTH + 1)
        for mode, row in means.items():
            if not isnan(row[i]):
                line[round(WIDTH * (row[i] - lowest) / ((highest - lowest) or 1.0))] = mark_of(mode)
        lines.append(f"    {n:>8,} |{''.join(line)}|")
    return lines


def mark_of(mode: str) -> str:
    """Return one letter for a mode."""
    return {"sync": "s", "async": "a"}.get(mode, "k")


def main() -> None:
    """Read the options, train what is not finished, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(TASKS), default="pendulum")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=["sync", "async"])
    parser.add_argument("--seeds", nargs="+", type=int, default=None, help="default: those of the task")
    parser.add_argument("--n_steps", type=float, default=None, help="default: those of the task")
    parser.add_argument("--dir", default="data/async_learning")
    args = parser.parse_args()
    torch.set_num_threads(1)
    task = TASKS[args.task]
    if args.n_steps is not None:
        task = task._replace(n_steps=int(args.n_steps))
    seeds, folder = args.seeds or task.seeds, Path(args.dir) / args.task
    for seed in seeds:
        for mode in args.modes:
            train(task, mode, seed, folder / mode)
    text = report(folder, args.modes, seeds)
    (folder / "curve.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
