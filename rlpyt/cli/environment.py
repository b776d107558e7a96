"""Environments by name: what EnvCls and env_kwargs a name of the command line stands for, and its spaces."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import gymnasium
from gymnasium import spaces

from rlpyt.cli.text import did_you_mean
from rlpyt.envs import (
    AtariEnv,
    EnvAdapter,
    EnvError,
    VectorEnvAdapter,
    dm_control_make,
    make_env,
    make_vector_env,
    makes_vector_env,
)
from rlpyt.results import ATARI_SCORES, atari_game
from rlpyt.spaces import EnvSpaces, is_image
from rlpyt.types import Kwargs

Kind: TypeAlias = Literal["atari", "mujoco", "other"]
Actions: TypeAlias = Literal["discrete", "several discrete", "continuous", "composite"]

_DM_CONTROL = re.compile(r"dm_control/(?P<domain>\w+?)-(?P<task>\w+?)(-v0)?")
INSTALL = {
    "box2d": "pip install swig 'gymnasium[box2d]'",
    "mujoco": "pip install rlpyt[mujoco]",
    "ale_py": "pip install rlpyt[atari]",
    "shimmy": "pip install rlpyt[dm_control]",
    "jax": "pip install 'gymnasium[jax]'",
}
"""What the message of a missing package names -> what installs it."""
_REGISTERED_BY = {
    **{prefix: ("minigrid", "minigrid") for prefix in ("MiniGrid-", "BabyAI-")},
    "MiniWorld-": ("miniworld", "miniworld"),
    **{f"{word}-": ("highway_env", "highway-env") for word in ("highway", "parking", "racetrack", "roundabout")},
    **{
        prefix: ("gymnasium_robotics", "gymnasium-robotics")
        for prefix in ("Fetch", "HandReach", "HandManipulate", "AdroitHand", "PointMaze_", "AntMaze_", "FrankaKitchen-")
    },
    "Panda": ("panda_gym", "panda-gym"),
    "FlappyBird-": ("flappy_bird_gymnasium", "flappy-bird-gymnasium"),
    "Meta-World/": ("metaworld", "metaworld"),
}
"""Beginnings of ids as users of a package write them -> its module, which registers them when it is imported, and what
pip installs. Ids of other packages are written as module:id."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Environment that a name of the command line stands for."""

    name: str
    """As it was given."""
    kind: Kind
    """Which published settings fit it."""
    EnvCls: Callable[..., object]
    """What makes it."""
    env_kwargs: Kwargs
    """Arguments of `EnvCls`."""
    eval_env_overrides: Kwargs
    """Arguments that are others in evaluation: in Atari an agent learns from lives and clipped rewards, and is
    evaluated by whole games and scores."""
    spaces: EnvSpaces
    """Its observations and actions."""
    episode_steps: int | None = None
    """Longest episode, where gymnasium knows it."""

    @property
    def has_images(self) -> bool:
        """Whether an observation is an image, as the default models have it."""
        return is_image(self.spaces.observation)

    @property
    def has_small_images(self) -> bool:
        """Whether the image is too small for the convolutions of Atari, such as the planes of MinAtar."""
        return self.has_images and min((self.spaces.observation.shape or ())[-2:]) < 36

    @property
    def actions(self) -> Actions:
        """Kind of its actions."""
        if isinstance(self.spaces.action, spaces.Box):
            return "continuous"
        if isinstance(self.spaces.action, spaces.Dict | spaces.Tuple):
            return "composite"
        return "discrete" if isinstance(self.spaces.action, spaces.Discrete) else "several discrete"


def environment(env: str | Callable[..., object], env_kwargs: Kwargs | None = None) -> Environment:
    """Return the environment of a name, or of a class or function; it is built once, to see its spaces.

    Args:
        env: an id of gymnasium, or of a package such as "minigrid:MiniGrid-Empty-5x5-v0"; a game of Atari such as
            "pong" or "ALE/Pong-v5"; a task such as "dm_control/cheetah-run"; "module:name" of a class or function of
            the user's; or, in a script, the class or function itself.
        env_kwargs: further arguments.
    """
    kind, EnvCls, given, evaluation = _found(env) if isinstance(env, str) else ("other", env, {}, {})
    # An object that is neither a class nor a function has the name of its class.
    name = env if isinstance(env, str) else str(getattr(env, "__name__", type(env).__name__)).strip("<>")
    kwargs = {**given, **(env_kwargs or {})}
    try:
        built = made(EnvCls, kwargs)
    except EnvError as error:
        cause = error.__cause__
        if isinstance(cause, ImportError | gymnasium.error.DependencyNotInstalled):
            text = str(cause)
            how = next((how for key, how in INSTALL.items() if key in text.lower()), "")
            install = f" Install it: {how}." if how and "pip install rlpyt" not in text else ""
            raise ImportError(f"{name} needs a package that is not installed: {text}{install}") from error
        raise ValueError(str(error)) from error
    built.close()
    spec = gymnasium.registry.get(_id_of(name)) if EnvCls is gymnasium.make else None
    return Environment(
        name=name,
        kind=kind,
        EnvCls=EnvCls,
        env_kwargs=kwargs,
        eval_env_overrides={key: value for key, value in evaluation.items() if key not in (env_kwargs or {})},
        spaces=built.spaces,
        episode_steps=None if spec is None else spec.max_episode_steps,
    )


def look_in_working_directory() -> None:
    """Let modules of the working directory be imported, in this process and in the workers that it starts.

    It is called where the user has named a module, and nowhere else: files that lie about must not run. It comes last,
    so that none of them takes the place of an installed module.
    """
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.append(directory)


def made(EnvCls: Callable[..., object], env_kwargs: Kwargs, n_envs: int = 1) -> EnvAdapter | VectorEnvAdapter:
    """Return an environment, or a vector environment of some, in its adapter."""
    if makes_vector_env(EnvCls):
        return make_vector_env(EnvCls, env_kwargs, range(n_envs))
    return make_env(EnvCls, env_kwargs)


def _found(name: str) -> tuple[Kind, Callable[..., object], Kwargs, Kwargs]:
    """Return the kind of an environment, EnvCls, its arguments, and those that are others in evaluation."""
    # gymnasium's own form of an id has the module that registers it, and means the same environment.
    alone = name.removeprefix("ale_py:")
    game = atari_game(alone)
    if game is not None or alone.startswith("ALE/"):
        return "atari", AtariEnv, {"game": game or alone}, {"episodic_lives": False, "clip_reward": False}
    if match := _DM_CONTROL.fullmatch(name.removeprefix("shimmy:")):
        return "mujoco", dm_control_make, {**match.groupdict(), "flatten": True}, {}
    if ":" in name and (own := _own(name)) is not None:
        return "other", own, {}, {}
    if ":" not in name and name not in gymnasium.registry:
        name = _with_module(name)
    spec = gymnasium.registry.get(_id_of(name))
    physics = spec is not None and str(spec.entry_point).startswith("gymnasium.envs.mujoco")
    return ("mujoco" if physics else "other"), gymnasium.make, {"id": name}, {}


def _id_of(name: str) -> str:
    """Return an id without the module that registers it, as in "minigrid:MiniGrid-Empty-5x5-v0"."""
    return name.rpartition(":")[2]


def _with_module(name: str) -> str:
    """Return an id with the module that registers it, as a process of its own needs it: "minigrid:MiniGrid-..."."""
    for prefix, (module, package) in _REGISTERED_BY.items():
        if name.startswith(prefix):
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
                raise ImportError(
                    f"{name} is an environment of {package}, which is not installed. Install it: pip install {package}."
                ) from error
            if name in gymnasium.registry:
                return f"{module}:{name}"
    raise ValueError(_unknown(name))


def _own(name: str) -> Callable[..., object] | None:
    """Return the class or function of the user's; None where the name is an id that a module registers."""
    module, _, attribute = name.partition(":")
    look_in_working_directory()  # workers, which import the module too, get the path of this process
    try:
        found = vars(importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ValueError(
            f"the environment {name!r}: there is no module {module!r}; expected one in {Path.cwd()} or installed, "
            "such as my_envs:MyEnv for the class MyEnv in my_envs.py."
        ) from error
    if attribute in found:
        if not callable(found[attribute]):
            raise ValueError(f"the environment {name!r} is {found[attribute]!r:.100}; expected a class or a function.")
        return found[attribute]
    if attribute in gymnasium.registry or re.search(r"-v\d+$", attribute):
        return None
    close = did_you_mean(attribute, [key for key, value in found.items() if callable(value)])
    # The file, since an installed module comes before one of its name in the working directory.
    raise ValueError(f"the environment {name!r}: {found.get('__file__', module)} has no {attribute!r}{close}")


def _unknown(name: str) -> str:
    close = did_you_mean(name, [*gymnasium.registry, *ATARI_SCORES], n=4)
    return (
        f"there is no environment {name!r}{close} Expected an id of gymnasium, a game of Atari, a task such as "
        "dm_control/cheetah-run, or module:name of your own. rlpyt envs lists them. An id that another package "
        "registers when it is imported is written with the package, such as minigrid:MiniGrid-Empty-5x5-v0."
    )
