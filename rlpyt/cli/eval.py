"""Command `rlpyt eval`: statistics of whole episodes of a trained agent."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Annotated

import tyro

from rlpyt.cli.arguments import NO_PAIRS, Count, Modules, Pairs, Run, Text
from rlpyt.cli.trained import read_trained
from rlpyt.samplers import evaluate

_COLUMNS = {"return": "Return", "length": "Length", "score": "GameScore", "success": "Success"}
"""Word for a statistic of an episode -> its name; the last two are those of environments that have them."""


def eval_command(
    run: Run,
    *,
    episodes: Count = 100,
    n_envs: Count = 10,
    sample: bool = False,
    seed: Count = 0,
    snapshot: Text = None,
    json_output: Annotated[bool, tyro.conf.arg(name="json")] = False,
    env_kwargs: Pairs = NO_PAIRS,
    trust: Modules = (),
) -> int:
    """Evaluate a trained agent: returns and lengths of whole episodes, a fixed number in each environment.

    Where the environment has them, scores of games and the success rate are there, too.

    Args:
        run: directory of the run, such as data/ppo_CartPole-v1/run_0.
        episodes: how many, dealt evenly to the environments.
        n_envs: environments, all in this process.
        sample: act as in the evaluations of a run: A2C, PPO and V-trace sample, DQN and its like have `eps_eval`, and
            SAC, TD3 and DDPG take the most probable action all the same.
        seed: of environments and actions.
        snapshot: a file of the run such as itr_99.pkl, or best; the default is the newest.
        json_output: print one line of JSON instead of the table.
        env_kwargs: arguments of the environments, as key=value, in place of those of the run's evaluations.
        trust: modules of yours that the settings of the run may name, such as the one of an environment.
    """
    trained = read_trained(run, snapshot, trust)
    result = evaluate(
        trained.agent,
        trained.EnvCls,
        {**trained.env_kwargs, **env_kwargs},
        n_trajectories=episodes,
        n_envs=n_envs,
        TrajInfoCls=trained.TrajInfoCls,
        seed=seed,
        deterministic=not sample,
    )
    infos = result.traj_infos
    found = {
        name: summary([float(getattr(info, column)) for info in infos])
        for name, column in _COLUMNS.items()
        if all(hasattr(info, column) for info in infos)
    }
    if json_output:
        print(json.dumps({"episodes": len(infos), **found}))
        return 0
    print(f"{len(infos)} episodes of {run}, actions {'as in evaluations' if sample else 'most probable'}\n")
    print(" " * 8 + "".join(name.rjust(12) for name in found["return"]))
    for name, values in found.items():
        print(name.ljust(8) + "".join(f"{value:.6g}".rjust(12) for value in values.values()))
    return 0


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return mean, population standard deviation, median, minimum and maximum."""
    return {
        "mean": statistics.fmean(values),
        "std": statistics.pstdev(values),
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }
