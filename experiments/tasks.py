"""Tasks of packages whose environments have no id that `gymnasium.make` finds, for `experiments.figures`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium

from rlpyt.envs import ChannelsFirst


def minatar_breakout() -> gymnasium.Env[Any, Any]:
    """Return Breakout of MinAtar as images [4, 10, 10], whose planes are a pixel's kinds: Young and Tian 2019."""
    if "MinAtar/Breakout-v1" not in gymnasium.registry:
        import_module("minatar.gym").register_envs()
    return ChannelsFirst(gymnasium.make("MinAtar/Breakout-v1"))
