"""Runs of a few seconds: the parts of a configuration with small batches, a small replay and a few iterations."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TypeVar

from rlpyt.envs import AtariEnv, atari_make_vec
from rlpyt.launching.variants import update_config
from rlpyt.settings import Settings, all_settings
from rlpyt.types import Kwargs

SAMPLER = dict(batch_T=10, batch_B=2, max_decorrelation_steps=10)
EVALUATION = dict(eval_n_envs=1, eval_max_steps=20, eval_max_trajectories=1)
ALGO = dict(
    **dict(minibatches=2, epochs=2),
    **dict(batch_size=8, min_steps_learn=60, replay_size=1_000, eps_steps=60, target_update_interval=2),
    **dict(batch_T=10, batch_B=2, warmup_T=5, store_rnn_state_interval=5),
)
AGENT = dict(population_size=2)
IMAGES = dict(image_size=36)
"""Of games of Atari: the smallest images that the networks take."""
UPDATES = 2
"""Updates an iteration of an algorithm with a replay."""
RunnerT = TypeVar("RunnerT", bound=Settings)


def smoke(runner: RunnerT) -> RunnerT:
    """Return a runner of the same parts that ends within seconds; it has algo, agent and sampler as settings."""
    parts: Mapping[str, Settings] = all_settings(runner)
    given: Kwargs = all_settings(parts["sampler"])
    sampler, algo = _limited(parts["sampler"], SAMPLER), _limited(parts["algo"], ALGO)
    if given["eval_n_envs"]:
        sampler |= _limited(parts["sampler"], EVALUATION)
    given = {**given, **sampler}
    images: dict[str, object] = {}
    if _makes_atari(given["EnvCls"]):
        images = {"env_kwargs": IMAGES, **({} if given["eval_env_kwargs"] is None else {"eval_env_kwargs": IMAGES})}
    rows = given["batch_T"] * given["batch_B"]
    if "replay_ratio" in all_settings(parts["algo"]):
        sizes = {**all_settings(parts["algo"]), **algo}
        of_update = sizes["batch_size"]
        if sizes["batch_T"] is not None:
            of_update = (sizes["batch_T"] + sizes["warmup_T"]) * sizes["batch_B"]
        algo["replay_ratio"] = UPDATES * of_update / rows
    n_steps = max(100, ALGO["min_steps_learn"] + 2 * rows)
    changes = dict(sampler={**sampler, **images}, algo=algo, agent=_limited(parts["agent"], AGENT))
    return update_config(runner, {**changes, "n_steps": n_steps, "log_interval_steps": n_steps})


def _makes_atari(EnvCls: object) -> bool:
    """Return whether environments are games of Atari as rlpyt makes them: others may have an argument `game`, too."""
    return EnvCls is atari_make_vec or (isinstance(EnvCls, type) and issubclass(EnvCls, AtariEnv))


def _limited(part: Settings, limits: Mapping[str, float]) -> dict[str, float]:
    """Return the settings of a part that are above their limits, or may be, as a schedule may, with these."""
    given = all_settings(part)
    return {
        name: limit
        for name, limit in limits.items()
        if (value := given.get(name)) is not None and not (isinstance(value, Real) and value <= limit)
    }
