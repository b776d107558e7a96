"""Check of an environment before a run: its values and its spaces."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium.spaces import Box

from rlpyt.envs.adapter import EnvAdapter
from rlpyt.envs.base import EnvError
from rlpyt.envs.images import image_advice
from rlpyt.envs.info import numeric
from rlpyt.envs.making import layers_of
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, null_action, null_value, random_value, subspaces

FIRST = "the first reset"
"""What the first values of a play come from."""
SLOW_SECONDS = 1.0
"""Time of a reset from which on none is made beyond those with a seed."""
_REPEAT_SECONDS = 3.0  # after which the second play ends


class EnvExamples(NamedTuple):
    """Examples of everything that an environment gives, to allocate buffers from.

    Attributes:
        spaces: its two spaces.
        observation, action: zeros in row form.
        reward: a float32 zero.
        info: zeros of every numeric field of fixed shape that `step` gave in `info`, by name.
        ignored_info: names of the other fields.
        advice: what the user should know of it, texts by what they are about.
        step_seconds: mean time of a step.
    """

    spaces: EnvSpaces
    observation: Buffer
    action: Buffer
    reward: np.float32
    info: dict[str, np.ndarray]
    ignored_info: tuple[str, ...]
    advice: dict[str, str]
    step_seconds: float


Seen: TypeAlias = tuple[str, Buffer]
"""What an environment was asked for, such as "step 3", and a copy of the values that it gave."""


def check_env(env: EnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Take random steps in an environment, the first of them twice with one seed; return examples of its values.

    The adapter checks shapes, dtypes, flags and finite numbers at every step of a run. Here bounds are checked, too,
    and whether a seed repeats all that the environment gives. Samplers call `examine_env`, which does the same and
    leaves what is to be said to their log.

    Args:
        env: the environment; it is left within an episode.
        seed: of the environment and the random actions.
        n_steps: number of random steps in all. A quarter of them is taken again; fewer if the environment is slow.

    Raises:
        EnvError: if the environment raises, or gives values that its spaces do not allow.

    Warns:
        UserWarning: if float observations leave their bounds, a flag is None, the same seed gives something else, the
            last dimension of an image looks like channels, or the default models flatten what looks like an image.
    """
    return warned_of(examine_env(env, seed, n_steps))


def warned_of(examples: EnvExamples) -> EnvExamples:
    """Warn of the advice of a check that was made by hand, and return its result."""
    for text in examples.advice.values():
        warnings.warn(text, stacklevel=3)
    return examples


def examine_env(env: EnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Check an environment as `check_env` does; what it would warn of is in `advice`."""
    rng = np.random.default_rng(seed)
    actions = [random_value(env.action_space, rng) for _ in range(n_steps)]
    advice: dict[str, str] = {}
    check_images(env.name, env.observation_space, advice)
    infos: list[dict[str, Any]] = []
    seconds: list[float] = []
    n_twice = n_steps // 4
    first = list(_play(env, seed, actions[:n_twice], infos, seconds, advice))
    for _ in _steps(env, actions[n_twice : n_steps - n_twice], infos, seconds, advice):
        pass
    again = _play(env, seed, actions[:n_twice], [], [], advice)
    advise_on_repeats(env.name, env.env, f"seed {seed}", first, again, advice, _seed_of(env))
    if env.gave_none:
        advice["flags"] = f"{env.name}: terminated, truncated or done is None, which is taken for False. Return a bool."
    examples, ignored = info_examples(infos)
    return EnvExamples(
        env.spaces,
        null_value(env.observation_space),
        null_action(env.action_space),
        np.float32(0),
        examples,
        ignored,
        advice,
        sum(seconds) / max(1, len(seconds)),
    )


def _play(
    env: EnvAdapter,
    seed: int,
    actions: Iterable[Buffer],
    infos: list[dict[str, Buffer]],
    seconds: list[float],
    advice: dict[str, str],
) -> Iterator[Seen]:
    """Reset an environment with a seed, step it, and reset it without one; yield copies of all that it gives."""
    start = time.perf_counter()
    yield FIRST, _seen(env, env.reset(seed)[0], advice)
    is_slow = time.perf_counter() - start > SLOW_SECONDS
    yield from _steps(env, actions, infos, seconds, advice)
    if not is_slow:
        yield "a reset without a seed", _seen(env, env.reset()[0], advice)


def _steps(
    env: EnvAdapter,
    actions: Iterable[Buffer],
    infos: list[dict[str, Buffer]],
    seconds: list[float],
    advice: dict[str, str],
) -> Iterator[Seen]:
    """Step an environment; the info of every step is put into `infos`, and the time that it took into `seconds`."""
    for t, action in enumerate(actions, 1):
        start = time.perf_counter()
        observation, reward, terminated, truncated, info = env.step(action)
        seconds.append(time.perf_counter() - start)
        infos.append(dict(info))
        yield f"step {t}", (_seen(env, observation, advice), reward, terminated, truncated)
        if terminated or truncated:
            yield f"the reset after step {t}", _seen(env, env.reset()[0], advice)


def _seen(env: EnvAdapter, observation: Buffer, advice: dict[str, str]) -> Buffer:
    check_bounds(env.where, env.observation_space, observation, advice)
    return copy_of(observation)


_RUNNING = {"NormalizeObservation", "NormalizeReward"}
"""Wrappers of gymnasium whose statistics go on over episodes."""


def advise_on_repeats(
    name: str,
    env: object,
    seeds: str,
    first: Sequence[Seen],
    again: Iterator[Seen],
    advice: dict[str, str],
    seeded_by: str,
) -> None:
    """Say where two plays with the same seed differ.

    Args:
        name: of the environment.
        env: itself, with its wrappers.
        seeds: the seed or seeds, for messages.
        first: what the first play gave.
        again: what the second one gives. It ends early where an environment is slow.
        advice: texts by what they are about; one may be added.
        seeded_by: how it is seeded: "reset", "EnvCls" (`env_seed`), or "" for not at all.
    """
    deadline = time.perf_counter() + _REPEAT_SECONDS
    differs_at = ""
    for (what, one), (_, other) in zip(first, again, strict=False):
        if not _equal(one, other):
            differs_at = what
        if differs_at or time.perf_counter() > deadline:
            break
    if not differs_at or seeded_by == "EnvCls":  # the random stream of such an environment goes on
        return
    statistics = {type(layer).__name__ for layer in layers_of(env)} & _RUNNING
    if statistics:
        advice["seed"] = (
            f"{name}: {' and '.join(sorted(statistics))} goes on with its running statistics at a reset, so the same "
            "seed gives other numbers each time; runs do repeat. Each environment has statistics of its own, and those "
            "of an evaluation begin anew: rather give the agent model_kwargs=dict(normalize_observation=True), or the "
            "algorithm normalize_reward=True where it has that, which all environments share."
        )
        return
    if not seeded_by:
        advice["seed"] = (
            f"{name}: it is random, and neither reset(seed=...) nor a method seed(number) seeds it. If its seed is an "
            "argument of EnvCls, all environments of a run get the same one and are alike: let EnvCls take a parameter "
            "env_seed, for which the sampler gives each environment a number of its own "
            "(docs/howto/own_environment.md)."
        )
        return
    two = f"two resets with {seeds} gave different observations"
    if differs_at != FIRST:
        two = f"two plays with {seeds} and the same actions differ at {differs_at}"
    advice["seed"] = (
        f"{name}: {two}. If its random numbers do not all come from a generator that reset(seed=...) seeds, runs with "
        "this environment will not repeat: draw them from such a generator. If it remembers what came before, such as "
        "the running statistics of NormalizeObservation, runs do repeat."
    )


def _seed_of(env: EnvAdapter) -> str:
    return "reset" if env.takes_seed else "EnvCls" if env.has_env_seed else ""


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


def check_bounds(where: str, space: Space, observation: Buffer, advice: dict[str, str]) -> None:
    """Raise for integers out of their bounds, and say so of floats, once for each part of the observation.

    Args:
        where: the environment, its rank and step, for messages.
        space: of the observation.
        observation: in row form.
        advice: texts by what they are about; some may be added.
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
        advice.setdefault(f"bounds of {name}", text)


def check_images(name: str, space: Space, advice: dict[str, str]) -> None:
    """Say which parts of an observation the default models may read otherwise than was meant."""
    for text in image_advice(space):
        advice[text] = f"{name}: {text}"


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
    """Return whether two observations in row form, or tuples of values, are equal."""
    if isinstance(a, tuple):
        return all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))
