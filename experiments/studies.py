"""All studies by name, and the look-up of a configuration."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType

from experiments import (
    atari_dqn,
    atari_dqn_debug,
    atari_ff_a2c,
    atari_ff_ppo,
    atari_lstm_a2c,
    atari_lstm_ppo,
    atari_r2d1,
    classic_control,
    mujoco_a2c,
    mujoco_ddpg,
    mujoco_ppo,
    mujoco_sac,
    mujoco_sac_v,
    mujoco_td3,
)
from experiments.configuration import Config, Renamed, with_n_envs
from rlpyt.runners import MinibatchRlBase

_MODULES: tuple[ModuleType, ...] = (
    *(atari_dqn, atari_dqn_debug, atari_r2d1),
    *(atari_ff_a2c, atari_ff_ppo, atari_lstm_a2c, atari_lstm_ppo),
    *(mujoco_a2c, mujoco_ppo, mujoco_ddpg, mujoco_td3, mujoco_sac, mujoco_sac_v),
    classic_control,
)

STUDIES: dict[str, dict[str, Config]] = {module.__name__.rpartition(".")[2]: module.CONFIGS for module in _MODULES}
"""Study -> configuration -> the function that returns its runner."""

RENAMED: dict[str, dict[str, Renamed]] = {module.__name__.rpartition(".")[2]: module.RENAMED for module in _MODULES}
"""Study -> name of rlpyt 0.1 -> the configuration of another name that it is now."""


def make(study: str, config: str) -> MinibatchRlBase:
    """Return a new runner of a configuration; a name of rlpyt 0.1 is understood too.

    Raises:
        ValueError: if there is no such study or configuration; the text has close names.
    """
    if study not in STUDIES:
        raise ValueError(_unknown("study", study, STUDIES))
    configs, renamed = STUDIES[study], RENAMED[study]
    if config in renamed:
        old = renamed[config]
        return with_n_envs(configs[old.now](), old.n_envs, old.eval_n_envs)
    if config not in configs:
        raise ValueError(_unknown(f"configuration of {study}", config, [*configs, *renamed]))
    return configs[config]()


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = get_close_matches(name, known, n=3) or known
    return f"There is no {what} {name!r}; expected one such as {', '.join(close)}."
