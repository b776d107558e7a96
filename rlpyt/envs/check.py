"""Check of an environment before a run: its values and its spaces."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from rlpyt.envs.adapter import EnvAdapter
from rlpyt.envs.base import EnvError
from rlpyt.envs.images import image_advice
from rlpyt.envs.info import numeric
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, null_action, null_value, random_value, subspaces


class EnvExamples(NamedTuple):
    """Examples of everything that an environment gives, to allocate buffers from.

    Attributes:
        spaces: its two spaces.
        observation, action: zeros in row form.
        reward: a float32 zero.
        info: zeros of every numeric field of fixed shape that `step` gave in `info`, by name.
        ignored_info: names of the other fields.
    """

    spaces: EnvSpaces
    observation: Buffer
    action: Buffer
    reward: np.float32
    info: dict[str, np.ndarray]
    ignored_info: tuple[str, ...]


def check_env(env: EnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Reset an environment twice and take random steps; return examples of its values.

    The adapter checks shapes, dtypes and finite numbers at every step of a run. Here bounds are checked, too, and
    whether a seed repeats the start of an episode.

    Args:
        env: the environment; it is left within an episode.
        seed: of the environment and the random actions.
        n_steps: number of random steps.

    Raises:
        EnvError: if the environment raises, or gives values that its spaces do not allow.

    Warns:
        UserWarning: if float observations leave their bounds, the same seed gives another start, the last dimension
            of an image looks like channels, or the default models flatten what looks like an image.
    """
    rng = np.random.default_rng(seed)
    first = copy_of(env.reset(seed)[0])
    again, _ = env.reset(seed)
    check_repeats(env.name, f"seed {seed}", first, again)
    check_images(env.name, env.observation_space)
    warned: set[str] = set()
    check_bounds(env.where, env.observation_space, again, warned)
    infos: list[dict[str, Any]] = []
    for _ in range(n_steps):
        observation, _, terminated, truncated, info = env.step(random_value(env.action_space, rng))
        check_bounds(env.where, env.observation_space, observation, warned)
        infos.append(dict(info))
        if terminated or truncated:
            check_bounds(env.where, env.observation_space, env.reset()[0], warned)
    examples, ignored = info_examples(infos)
    return EnvExamples(
        env.spaces, null_value(env.observation_space), null_action(env.action_space), np.float32(0), examples, ignored
    )


def info_examples(infos: list[dict[str, Any]]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return zeros for the fields that are numbers of one shape in all infos, and the names of the others."""
    examples: dict[str, np.ndarray] = {}
    ignored: list[str] = []
    for key in dict.fromkeys(key for info in infos for key in info):
        values = [numeric(info[key]) for info in infos if info.get(key) is not None]
        arrays = [value for value in values if value is not None]
        if arrays and len(arrays) == len(values) and len({a.shape for a in arrays}) == 1:
            dtype = np.result_type(*{a.dtype for a in arrays})
            examples[key] = np.zeros(arrays[0].shape, np.float32 if dtype.kind == "f" else dtype)
        else:
            ignored.append(key)
    return examples, tuple(ignored)


def check_repeats(name: str, seed: str, first: Buffer, again: Buffer) -> None:
    """Warn where two resets with the same seed, named for the message, gave different observations in row form."""
    if not _equal(first, again):
        warnings.warn(
            f"{name}: two resets with {seed} gave different observations; runs with this environment will not repeat. "
            "Draw its random numbers from a generator seeded by reset(seed=...).",
            stacklevel=3,
        )


def check_bounds(where: str, space: Space, observation: Buffer, warned: set[str]) -> None:
    """Raise for integers out of their bounds, and warn of floats, once for each part of the observation.

    Args:
        where: the environment, its rank and step, for messages.
        space: of the observation.
        observation: in row form.
        warned: names of the parts that were warned of; names are added.
    """
    for name, part, value in _leaves(space, observation, "observation"):
        if not isinstance(part, Box):
            continue
        # float32 rows of float64 bounds may miss them by a rounding.
        slack = 1e-6 * np.maximum(1, np.abs(value)) if value.dtype.kind == "f" else 0
        if ((value + slack >= part.low) & (value - slack <= part.high)).all():
            continue
        text = (
            f"{where}: {name} has values from {value.min()} to {value.max()}, expected within {part}. Mend the bounds "
            "of its space."
        )
        if value.dtype.kind != "f":
            raise EnvError(text)
        if name not in warned:
            warned.add(name)
            warnings.warn(text, stacklevel=3)


def check_images(name: str, space: Space) -> None:
    """Warn of parts of an observation that the default models may read otherwise than was meant."""
    for text in image_advice(space):
        warnings.warn(f"{name}: {text}", stacklevel=3)


def _leaves(space: Space, value: Any, name: str) -> Iterator[tuple[str, Space, Any]]:
    parts = subspaces(space)
    if not parts:
        yield name, space, value
    for key, part in parts:
        yield from _leaves(part, value[key], f"{name}[{key!r}]")


def copy_of(value: Any) -> Buffer:
    """Return a copy of an observation in row form."""
    return type(value)(*[copy_of(x) for x in value]) if isinstance(value, tuple) else np.array(value)


def _equal(a: Any, b: Any) -> bool:
    """Return whether two observations in row form are equal."""
    if isinstance(a, tuple):
        return all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))
