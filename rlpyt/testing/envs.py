"""Contract of an environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rlpyt.envs import EnvExamples, check_vector_env, make_env, make_vector_env, makes_vector_env
from rlpyt.envs import check_env as examples_of_env
from rlpyt.spaces import null_value, random_value
from rlpyt.testing.expect import expect


def check_env(
    EnvCls: Callable[..., object],
    env_kwargs: Mapping[str, object] | None = None,
    *,
    seed: int = 0,
    n_steps: int = 100,
    must_end: bool = True,
    repeats: bool = True,
    varies: bool = True,
    ignored_info: Sequence[str] = (),
) -> EnvExamples:
    """Play an environment with random actions, and check what samplers rely on.

    Observations have the shape and dtype of their space, rewards are finite, an episode ends and the next one begins,
    the same seed repeats everything, another seed does not. The adapter checks single values at every step.

    Args:
        EnvCls: any callable that returns an environment, or a vector environment, which is looked at without a replay.
        env_kwargs: its arguments.
        seed: of the environment and the actions.
        n_steps: steps of each of three plays.
        must_end: whether an episode must end in them.
        repeats: whether the same seed must repeat everything; False for an environment that cannot be seeded.
        varies: whether another seed must change something; False for a deterministic environment.
        ignored_info: names in `info` that differ from run to run, such as clocks.

    Returns:
        One example of everything that the environment gives.

    Raises:
        AssertionError: if the contract is broken.
        EnvError: if the environment raises, or gives what its spaces do not allow.
    """
    kwargs = dict(env_kwargs or {})
    if makes_vector_env(EnvCls):
        vector_env = make_vector_env(EnvCls, kwargs, range(2))
        try:
            return check_vector_env(vector_env, seed, n_steps)
        finally:
            vector_env.close()
    env = make_env(EnvCls, kwargs)
    try:
        examples = examples_of_env(env, seed)
    finally:
        env.close()
    play, again, other = (_play(EnvCls, kwargs, s, n_steps, ignored_info) for s in (seed, seed, seed + 1))
    name = env.name
    n_ends = sum(ended for _, ended in play)
    expect(not must_end or n_ends > 0, f"{name}: episodes ended in {n_steps} random steps", 0, "one; raise n_steps")
    if repeats:
        for t, (a, b) in enumerate(zip(play, again, strict=True)):
            expect(a == b, f"{name}: step {t} of two plays with seed {seed}", f"{a[0]} and {b[0]}", "the same twice")
    expect(not varies or play != other, f"{name}: seeds {seed} and {seed + 1}", "the same play", "another play")
    return examples


def _play(
    EnvCls: Callable[..., object], kwargs: dict[str, object], seed: int, n_steps: int, ignored: Sequence[str]
) -> list[tuple[str, bool]]:
    """Return everything that an environment gives as text, and whether the episode ended with it."""
    env, rng = make_env(EnvCls, kwargs, rank=1, seed=seed), np.random.default_rng(seed)
    played: list[tuple[str, bool]] = []

    def note(observation: object, info: dict[str, object], *rest: float, ended: bool = False) -> None:
        what = f"{env.name}, step {env.n_steps}"
        form = _form(null_value(env.observation_space))  # known after the first reset, if info has a mask
        expect(_form(observation) == form, f"{what}: shapes and dtypes", _form(observation), f"{form}, of the space")
        expect(type(info) is dict, f"{what}: info", f"a {type(info).__name__}", "a dict")
        kept = {key: value for key, value in info.items() if key not in ignored}
        played.append((repr((_plain(observation), rest, kept)), ended))

    try:
        note(*env.reset())
        for _ in range(n_steps):
            observation, reward, terminated, truncated, info = env.step(
                env.masks.legal(random_value(env.action_space, rng))
            )
            types = [type(x).__name__ for x in (reward, terminated, truncated)]
            what = f"{env.name}, step {env.n_steps}: reward, terminated and truncated"
            expect(types == ["float", "bool", "bool"], what, types, "float, bool, bool")
            expect(math.isfinite(reward), f"{env.name}: the reward of step {env.n_steps}", reward, "a finite number")
            ended = terminated or truncated
            note(observation, info, reward, terminated, truncated, ended=ended)
            if ended:
                note(*env.reset())
        expect(env.n_steps == n_steps, f"{env.name}: steps counted", env.n_steps, f"{n_steps}")
    finally:
        env.close()
    return played


def _form(row: object) -> object:
    return [_form(x) for x in row] if isinstance(row, tuple) else (np.asarray(row).shape, np.asarray(row).dtype)


def _plain(row: object) -> object:
    return [_plain(x) for x in row] if isinstance(row, tuple) else np.asarray(row).tolist()
