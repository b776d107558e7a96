"""Directories of runs as a logger leaves them, with curves of one's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_run(
    directory: Path,
    rows: Sequence[tuple[float, float]] = ((100, 1.0), (200, 3.0)),
    *,
    settings: Mapping[str, object] | None = None,
    algo: str = "PPO",
    env: str = "CartPole-v1",
    seed: int = 0,
    status: str = "finished",
    column: str = "ReturnAverage",
    **more_status: object,
) -> Path:
    """Write progress.csv, params.json and status.json of a run."""
    directory.mkdir(parents=True)
    lines = [f"Diagnostics/CumSteps,{column}", *(f"{x},{y}" for x, y in rows)]
    if rows:
        (directory / "progress.csv").write_text("\n".join(lines) + "\n")
    sampler = {"EnvCls": {"name": "gymnasium:make"}, "env_kwargs": {"id": env}, "env_info_keys": {"tuple": []}}
    runner = {
        "algo": {"class": f"rlpyt.algos:{algo}", "settings": {"learning_rate": 0.001, **(settings or {})}},
        "sampler": {"class": "rlpyt.samplers:SerialSampler", "settings": sampler},
        "seed": seed,
        "affinity": {"cuda_idx": seed},
        "max_time": {"float": "inf"},
    }
    params = {
        "git_commit": "a",
        "argv": [str(directory)],
        "run_ID": directory.name,
        "logger": {"log_dir": str(directory.parent)},
        "runner": {"class": "rlpyt.runners:MinibatchRl", "settings": runner},
        "plan": {"seed": seed},
        "algo": {"class": algo},
    }
    (directory / "params.json").write_text(json.dumps(params))
    (directory / "status.json").write_text(json.dumps({"status": status, "host": "elsewhere", **more_status}))
    return directory
