"""Command `rlpyt envs`."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from importlib.util import find_spec
from typing import Annotated, NamedTuple

import gymnasium
import tyro
from gymnasium.envs.registration import find_highest_version

from rlpyt.cli.arguments import named
from rlpyt.cli.environment import INSTALL
from rlpyt.cli.text import columns, did_you_mean
from rlpyt.results import ATARI_SCORES


class Family(NamedTuple):
    """Environments that need the same packages."""

    name: str
    packages: tuple[str, ...]
    """Modules that they import, beside gymnasium."""
    install: str
    """What installs these."""
    names: tuple[str, ...]
    """Environments, as `rlpyt train` takes them."""


_GYMNASIUM: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "gymnasium.envs.classic_control": ("classic control", (), ""),
    "gymnasium.envs.toy_text": ("toy text", (), ""),
    "gymnasium.envs.box2d": ("Box2D", ("Box2D",), INSTALL["box2d"]),
    "gymnasium.envs.mujoco": ("MuJoCo", ("mujoco",), INSTALL["mujoco"]),
}
"""Module of gymnasium -> name, packages, and what installs them."""


def envs(pattern: Annotated[str, tyro.conf.Positional, named("[PATTERN]")] = "") -> int:
    """List the environments that are installed, and what is missing.

    Args:
        pattern: a part of the name, such as cheetah, or with wildcards, such as "Half*-v5".
    """
    found = [family._replace(names=_matching(family.names, pattern)) for family in families()]
    if not any(family.names for family in found):
        known = [name for family in families() for name in family.names]
        hint = did_you_mean(pattern, known, ". rlpyt envs lists all.", n=4)
        raise ValueError(f"there is no environment with {pattern!r} in its name{hint}")
    rows = []
    for family in found:
        missing = [package for package in family.packages if find_spec(package) is None]
        if family.names:
            rows.append((family.name, ", ".join(family.names if pattern else _newest(family.names))))
        if family.names and missing:
            rows.append(("", f"not installed: {', '.join(missing)}. {family.install}"))
    print(columns(rows))
    print("\nYours: module:Class or module:function, such as my_envs:MyEnv.")
    return 0


def families() -> list[Family]:
    """Return all environments that `rlpyt train` knows by name."""
    # Old versions of MuJoCo's and those that only say that they have moved are functions, not modules.
    modules = {i: spec.entry_point for i, spec in gymnasium.registry.items() if isinstance(spec.entry_point, str)}
    others = tuple(i for i, module in modules.items() if not module.startswith("gymnasium."))
    return [
        *(
            Family(*facts, tuple(i for i, module in modules.items() if module.startswith(f"{place}.")))
            for place, facts in _GYMNASIUM.items()
        ),
        Family("Atari", ("ale_py", "cv2"), INSTALL["ale_py"], tuple(ATARI_SCORES)),
        Family("dm_control", ("dm_control", "shimmy", "mujoco"), INSTALL["shimmy"], _dm_control()),
        *([Family("others", (), "", others)] if others else []),
    ]


def _dm_control() -> tuple[str, ...]:
    """Return the tasks of the Control Suite, as Shimmy lists them; without it two of them, as examples."""
    if find_spec("shimmy") is None:
        return ("dm_control/cheetah-run", "dm_control/walker-walk")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glfw warns of the missing display when it is imported
        suite = importlib.import_module("shimmy.utils.envs_configs").DM_CONTROL_SUITE_ENVS
    return tuple(f"dm_control/{domain}-{task}" for domain, task in suite)


def _matching(names: Iterable[str], pattern: str) -> tuple[str, ...]:
    wanted = pattern.lower() if set(pattern) & set("*?[") else f"*{pattern.lower()}*"
    return tuple(name for name in names if fnmatch(name.lower(), wanted))


def _newest(names: Sequence[str]) -> list[str]:
    """Return the names without those that have a newer version."""
    specs = {name: gymnasium.registry[name] for name in names if name in gymnasium.registry}
    highest = {name: find_highest_version(spec.namespace, spec.name) for name, spec in specs.items()}
    return [name for name in names if name not in specs or specs[name].version == highest[name]]
