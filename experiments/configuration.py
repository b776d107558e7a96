"""Configurations: functions that return a new runner, most of them another one with a few changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from math import ceil
from typing import Any, NamedTuple, TypeVar

from rlpyt.runners import MinibatchRlBase
from rlpyt.settings import Settings, all_settings, arguments_of
from rlpyt.utils.arguments import argument_names

PartT = TypeVar("PartT", bound=Settings)

Config = Callable[[], MinibatchRlBase]
"""Returns a new runner at every call, so that no two configurations share a part."""


class Renamed(NamedTuple):
    """Configuration of rlpyt 0.1 that has another name here."""

    now: str
    """Name of the configuration in the same study."""
    why: str
    """Reason, in one sentence."""
    n_envs: int | None = None
    """Environments that it had on its machine; None is those of the configuration."""
    eval_n_envs: int | None = None
    """Evaluation environments that it had on its machine."""


def changed(make: Config, **changes: object) -> Config:
    """Return a configuration that differs from another one in some settings.

        double = changed(dqn, algo={"double_dqn": True})
        catdqn = changed(dqn, algo={"Cls": CategoricalDQN}, agent={"Cls": AtariCatDqnAgent})

    Args:
        make: the other configuration.
        **changes: settings of the runner by name. A dictionary changes some settings of a part, or some entries of a
            dictionary. Its key "Cls" is another class, which gets what was given to the part and is known to it.
    """
    return lambda: replaced(make(), deepcopy(changes))


def replaced(part: PartT, changes: Mapping[str, Any]) -> PartT:
    """Return a part with some settings replaced, as `changed` describes."""
    Cls = changes.get("Cls", type(part))
    given = all_settings(part)
    new = {name: _replaced(given.get(name), change) for name, change in changes.items() if name != "Cls"}
    # Not `replace`: it would give the seed that a runner has drawn, and a run goes on only with the same settings.
    kept = {name: value for name, value in arguments_of(part).items() if name in argument_names(Cls)}
    return Cls(**{**kept, **new})


def _replaced(value: object, change: object) -> object:
    if isinstance(value, Settings) and isinstance(change, Mapping):
        return replaced(value, change)
    if isinstance(value, Mapping) and isinstance(change, Mapping):
        return {**value, **change}
    return change


def with_environment(runner: MinibatchRlBase, env: str) -> MinibatchRlBase:
    """Return a runner in another game of Atari, or environment of gymnasium, to train and to evaluate in."""
    given = all_settings(runner.sampler)
    name = "game" if "game" in given["env_kwargs"] else "id"
    names = [key for key in ("env_kwargs", "eval_env_kwargs") if given[key] is not None]
    return replaced(runner, {"sampler": {key: {name: env} for key in names}})


def with_n_envs(runner: MinibatchRlBase, n_envs: int | None, eval_n_envs: int | None) -> MinibatchRlBase:
    """Return a runner with other numbers of environments; the limits of an evaluation grow in proportion.

    Raises:
        ValueError: if environments are given for an evaluation, and the configuration has none.
    """
    sampler = all_settings(runner.sampler)
    changes = {} if n_envs is None else {"batch_B": n_envs}
    if eval_n_envs is not None:
        if not sampler["eval_n_envs"]:
            raise ValueError(
                f"eval_n_envs is {eval_n_envs}, and this configuration has no evaluation; expected none. Leave it out."
            )
        changes["eval_n_envs"] = eval_n_envs
        for name in ("eval_max_steps", "eval_max_trajectories"):
            changes[name] = ceil(sampler[name] * eval_n_envs / sampler["eval_n_envs"])
    return replaced(runner, {"sampler": changes})
