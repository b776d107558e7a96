"""Runs of a few seconds: the parts of a configuration with small batches, a small replay and a few iterations."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.configuration import replaced
from rlpyt.runners import AsyncRl, AsyncRlEval, MinibatchRl, MinibatchRlBase, MinibatchRlEval, SyncRl, SyncRlEval
from rlpyt.samplers import SerialSampler
from rlpyt.settings import Settings
from rlpyt.utils.compute import ComputeSettings

SAMPLER = dict(batch_T=10, batch_B=2, max_decorrelation_steps=10)
EVALUATION = dict(eval_n_envs=1, eval_max_steps=20, eval_max_trajectories=1)
ALGO = dict(
    **dict(minibatches=2, epochs=2),
    **dict(batch_size=8, min_steps_learn=60, replay_size=1_000),
    **dict(batch_T=10, batch_B=2, warmup_T=5, store_rnn_state_interval=5),
)
IMAGES = dict(image_size=36)
"""Of games of Atari: the smallest images that the networks take."""
UPDATES = 2
"""Updates an iteration of an algorithm with a replay."""
ALONE = {AsyncRl: MinibatchRl, AsyncRlEval: MinibatchRlEval, SyncRl: MinibatchRl, SyncRlEval: MinibatchRlEval}
"""Runner of one process in the stead of one of several."""


def smoke(runner: MinibatchRlBase) -> MinibatchRlBase:
    """Return a runner of the same parts that ends within seconds."""
    sampler, algo = _limited(runner.sampler, SAMPLER), _limited(runner.algo, ALGO)
    if runner.sampler.given()["eval_n_envs"]:  # type: ignore[attr-defined]
        sampler |= _limited(runner.sampler, EVALUATION)
    given = {**runner.sampler.given(), **sampler}  # type: ignore[attr-defined]
    images = {name: IMAGES for name in ("env_kwargs", "eval_env_kwargs") if "game" in (given[name] or {})}
    rows = given["batch_T"] * given["batch_B"]
    if "replay_ratio" in runner.algo.given():  # type: ignore[attr-defined]
        algo["replay_ratio"] = UPDATES * _rows_per_update(runner.algo, algo) / rows
    n_steps = ALGO["min_steps_learn"] + 2 * rows
    return replaced(runner, dict(sampler={**sampler, **images}, algo=algo, n_steps=n_steps, log_interval_steps=n_steps))


def in_process(runner: MinibatchRlBase) -> MinibatchRlBase:
    """Return a runner whose parts are all in this process, in float32 on the CPU, without a measured choice."""
    Cls = ALONE.get(type(runner), type(runner))
    return replaced(runner, dict(Cls=Cls, sampler=dict(Cls=SerialSampler), settings=ComputeSettings()))


def _rows_per_update(algo: object, changes: Mapping[str, float]) -> float:
    assert isinstance(algo, Settings)
    given = {**algo.given(), **changes}
    if given["batch_T"] is None:
        return float(given["batch_size"])
    return float((given["batch_T"] + given["warmup_T"]) * given["batch_B"])


def _limited(part: object, limits: Mapping[str, float]) -> dict[str, float]:
    """Return the settings of a part that are above their limits, with these."""
    assert isinstance(part, Settings)
    given = part.given()
    return {name: limit for name, limit in limits.items() if (value := given.get(name)) is not None and value > limit}
