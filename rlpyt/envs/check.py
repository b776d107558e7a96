"""Check of an environment before a run: its values and its spaces."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from gymnasium.spaces import Box

from rlpyt.envs.adapter import EnvAdapter
from rlpyt.envs.base import EnvError
from rlpyt.envs.images import image_advice
from rlpyt.envs.info import info_at, numeric
from rlpyt.envs.making import layers_of
from rlpyt.envs.vector import VectorEnvAdapter, batch_rows_space
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, null_action, null_value, random_value, subspaces
from rlpyt.utils.arrays import buffer_func, buffer_leaves

SLOW_SECONDS = 1.0
"""Time of a reset from which on none is made beyond those with a seed."""
_REPEAT_SECONDS = 3.0  # after which the second play ends
_FIRST = "the first reset"
_RUNNING = {"NormalizeObservation", "NormalizeReward"}
"""Wrappers of gymnasium whose statistics go on over episodes."""


class EnvExamples(NamedTuple):
    """Examples of everything that an environment gives, to allocate buffers from.

    Attributes:
        spaces: its two spaces.
        observation, action: zeros in row form.
        reward: a float32 zero.
        info: zeros of every numeric field of fixed shape that `step` gave in `info`, by name.
        ignored_info: names of the other fields.
        advice: what the user should know of it, texts by what they are about.
    """

    spaces: EnvSpaces
    observation: Buffer
    action: Buffer
    reward: np.float32
    info: dict[str, np.ndarray]
    ignored_info: tuple[str, ...]
    advice: dict[str, str]


Seen: TypeAlias = tuple[str, Buffer]
"""What an environment was asked for, such as "step 3", and a copy of the values that it gave."""
AnyEnv = TypeVar("AnyEnv", bound=EnvAdapter | VectorEnvAdapter)


def check_env(env: EnvAdapter | VectorEnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Take random steps in an environment, the first of them twice with one seed; return examples of its values.

    The adapter checks shapes, dtypes, flags and finite numbers at every step of a run. Here bounds are checked, too,
    and whether a seed repeats all that the environment gives. Samplers call `examine_env`, which does the same and
    leaves what is to be said to their log.

    Args:
        env: the environment; it is left within an episode. Of a vector environment the examples are of ONE.
        seed: of the environment and the random actions.
        n_steps: number of random steps in all. A quarter of them is taken again, of a vector environment all; fewer if
            the environment is slow.

    Raises:
        EnvError: if the environment raises, or gives values that its spaces do not allow.

    Warns:
        UserWarning: if float observations leave their bounds, a flag is None, the same seed gives something else, the
            last dimension of an image looks like channels, the default models flatten what looks like an image, or
            something of a vector environment's autoreset mode should be known.
    """
    if isinstance(env, VectorEnvAdapter):
        examples = examine_vector_env(env, seed, n_steps)
    else:
        examples = examine_env(env, seed, n_steps)
    for text in examples.advice.values():
        warnings.warn(text, stacklevel=2)
    return examples


check_vector_env = check_env
"""Another name of `check_env`."""


def examine_env(env: EnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Check an environment as `check_env` does; what it would warn of is in `advice`."""
    rng = np.random.default_rng(seed)
    actions = [random_value(env.action_space, rng) for _ in range(n_steps)]
    n_twice = n_steps // 4
    plays = _Plays(env, {})
    first = list(plays.play(seed, actions[:n_twice]))
    for _ in plays.steps(actions[n_twice : n_steps - n_twice]):
        pass
    again = _Plays(env, plays.advice).play(seed, actions[:n_twice])
    seeded_by = "reset" if env.takes_seed else "EnvCls" if env.has_env_seed else ""
    _advise_on_repeats(env, f"seed {seed}", first, again, plays.advice, seeded_by)
    if env.gave_none:
        text = f"{env.name}: terminated, truncated or done is None, which is taken for False. Return a bool."
        plays.advice["flags"] = text
    return plays.examples()


def examine_vector_env(env: VectorEnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Check a vector environment as `check_vector_env` does; what it would warn of is in `advice`."""
    rng = np.random.default_rng(seed)
    seeds = rng.integers(2**31, size=env.n).tolist()
    batch_space = batch_rows_space(env.action_space, env.n)
    actions = [random_value(batch_space, rng) for _ in range(n_steps)]
    plays = _VectorPlays(env, {f"mode {i}": text for i, text in enumerate(env.advice)})
    first = list(plays.play(seeds, actions))
    again = _VectorPlays(env, plays.advice).play(seeds, actions)
    _advise_on_repeats(env, "the same seeds", first, again, plays.advice, "reset")
    env.try_reset_some()
    return plays.examples()


class _Plays(Generic[AnyEnv]):
    """Plays of an environment, and what it gave in them; what is to be said of it is added to `advice`."""

    a_seed = "a seed"

    def __init__(self, env: AnyEnv, advice: dict[str, str]) -> None:
        self.env: AnyEnv = env
        self.advice = advice
        self._infos: list[dict[str, Any]] = []
        self._unfit: set[str] = set()  # fields of info that are no numbers, whatever their parts are
        for text in image_advice(env.observation_space):
            advice[text] = f"{env.name}: {text}"

    def play(self, seed: Any, actions: Iterable[Buffer]) -> Iterator[Seen]:
        """Reset with a seed, step, and reset without one; yield copies of all that the environment gives."""
        start = time.perf_counter()
        yield _FIRST, self.seen(self.env.reset(seed)[0])
        is_slow = time.perf_counter() - start > SLOW_SECONDS
        yield from self.steps(actions)
        if not is_slow:
            yield f"a reset without {self.a_seed}", self.seen(self.env.reset()[0])

    def steps(self, actions: Iterable[Buffer]) -> Iterator[Seen]:
        assert isinstance(self.env, EnvAdapter)
        for t, action in enumerate(actions, 1):
            observation, reward, terminated, truncated, info = self.env.step(self.env.masks.legal(action))
            self._infos.append(dict(info))
            yield f"step {t}", (self.seen(observation), reward, terminated, truncated)
            if terminated or truncated:
                yield f"the reset after step {t}", self.seen(self.env.reset()[0])

    def seen(self, observation: Buffer) -> Buffer:
        assert isinstance(self.env, EnvAdapter)
        _check_bounds(self.env.where, self.env.observation_space, observation, self.advice)
        return buffer_func(observation, np.array)

    def examples(self) -> EnvExamples:
        examples, ignored = _info_examples(self._infos)
        return EnvExamples(
            self.env.spaces,
            null_value(self.env.observation_space),
            null_action(self.env.action_space),
            np.float32(0),
            {key: value for key, value in examples.items() if key not in self._unfit},
            (*ignored, *(key for key in examples if key in self._unfit)),
            self.advice,
        )


class _VectorPlays(_Plays[VectorEnvAdapter]):
    """Plays of a vector environment, whose seeds and actions are those of all its environments."""

    a_seed = "seeds"

    def steps(self, actions: Iterable[Buffer]) -> Iterator[Seen]:
        env = self.env
        ended = np.zeros(env.n, bool)
        for t, action in enumerate(actions, 1):
            env.send(env.masks.legal(action))
            observation, reward, terminated, truncated, info = env.recv()
            info = {key: copy.copy(value) for key, value in info.items()}
            self._infos += [info_at(info, b, env.n) for b in np.flatnonzero(~ended).tolist()]
            # gymnasium makes arrays of objects of lists: each is an array of numbers, the batch of them is not.
            self._unfit |= {k for k, v in info.items() if isinstance(v, np.ndarray) and v.dtype == object}
            if (reward[ended] != 0).any():
                self.advice["rewards after ends"] = (
                    f"{env.name}: it names AutoresetMode.NEXT_STEP, in which the step after the end of an episode "
                    "resets, and that step has a reward, which is not counted. If it resets itself in the step that "
                    "ends an episode, name AutoresetMode.SAME_STEP in its metadata."
                )
            ended = terminated | truncated
            yield f"step {t}", (self.seen(observation), reward.copy(), terminated.copy(), truncated.copy())

    def seen(self, observation: Buffer) -> Buffer:
        for b, rank in enumerate(self.env.ranks):
            where = f"{self.env.name} (rank {rank}), its step {self.env.n_steps}"
            _check_bounds(where, self.env.observation_space, observation[b], self.advice)
        return buffer_func(observation, np.array)


def _advise_on_repeats(
    env: EnvAdapter | VectorEnvAdapter,
    seeds: str,
    first: Sequence[Seen],
    again: Iterator[Seen],
    advice: dict[str, str],
    seeded_by: str,
) -> None:
    """Say where two plays with the same seed differ; the second one ends early where an environment is slow."""
    name = env.name
    deadline = time.perf_counter() + _REPEAT_SECONDS
    differs_at = ""
    for (what, one), (_, other) in zip(first, again, strict=False):
        if not all(map(np.array_equal, buffer_leaves(one), buffer_leaves(other))):
            differs_at = what
        if differs_at or time.perf_counter() > deadline:
            break
    if not differs_at or seeded_by == "EnvCls":  # the random stream of such an environment goes on
        return
    statistics = {type(layer).__name__ for layer in layers_of(env.env)} & _RUNNING
    if statistics:
        advice["seed"] = (
            f"{name}: {' and '.join(sorted(statistics))} goes on with its running statistics at a reset, so the same "
            "seed gives other numbers each time; runs do repeat. Each environment has statistics of its own, and those "
            "of an evaluation begin anew: rather give the agent model_kwargs=dict(normalize_observation=True), or the "
            "algorithm normalize_reward=True where it has that, which all environments share."
            + (" Returns in the log are those of the normalised rewards." if "NormalizeReward" in statistics else "")
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
    if differs_at != _FIRST:
        two = f"two plays with {seeds} and the same actions differ at {differs_at}"
    advice["seed"] = (
        f"{name}: {two}. If its random numbers do not all come from a generator that reset(seed=...) seeds, runs with "
        "this environment will not repeat: draw them from such a generator. If it remembers what came before, such as "
        "the running statistics of NormalizeObservation, runs do repeat."
    )


def _info_examples(infos: list[dict[str, Any]]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
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


def _check_bounds(where: str, space: Space, observation: Buffer, advice: dict[str, str]) -> None:
    """Raise for integers out of their bounds, and say so of floats, once for each part of the observation."""
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


def _leaves(space: Space, value: Any, name: str) -> Iterator[tuple[str, Space, Any]]:
    parts = subspaces(space)
    if not parts:
        yield name, space, value
    for key, part in parts:
        yield from _leaves(part, value[key], f"{name}[{key!r}]")
