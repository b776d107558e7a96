"""Check of a vector environment before a run, and the part of one environment in its info."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from rlpyt.envs.check import (
    FIRST,
    SLOW_SECONDS,
    EnvExamples,
    Seen,
    advise_on_repeats,
    check_bounds,
    check_images,
    copy_of,
    info_examples,
    warned_of,
)
from rlpyt.envs.vector import VectorEnvAdapter, batch_rows_space
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import null_action, null_value, random_value
from rlpyt.types import Info


def check_vector_env(env: VectorEnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Play a vector environment twice with the same seeds and random actions, as `check_env` does.

    Args:
        env: the vector environment; it is left within episodes.
        seed: of the environments and the random actions.
        n_steps: number of random steps. A slow environment takes fewer of them the second time.

    Returns:
        Examples of the values of ONE of its environments.

    Raises:
        EnvError: if the environment raises, or gives values that its spaces do not allow.

    Warns:
        UserWarning: if float observations leave their bounds, the same seeds give something else, the last dimension
            of an image looks like channels, or something about its autoreset mode should be known.
    """
    return warned_of(examine_vector_env(env, seed, n_steps))


def examine_vector_env(env: VectorEnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Check a vector environment as `check_vector_env` does; what it would warn of is in `advice`."""
    rng = np.random.default_rng(seed)
    seeds = rng.integers(2**31, size=env.n).tolist()
    batch_space = batch_rows_space(env.action_space, env.n)
    actions = [random_value(batch_space, rng) for _ in range(n_steps)]
    advice = {f"mode {i}": text for i, text in enumerate(env.advice)}
    check_images(env.name, env.observation_space, advice)
    infos: list[tuple[Info, np.ndarray]] = []
    seconds: list[float] = []
    first = list(_play(env, seeds, actions, infos, seconds, advice))
    again = _play(env, seeds, actions, [], [], advice)
    advise_on_repeats(env.name, env.env, "the same seeds", first, again, advice, "reset")
    env.try_reset_some()
    of_one = [info_at(info, b, env.n) for info, steps in infos for b in np.flatnonzero(steps).tolist()]
    examples, ignored = info_examples(of_one)
    # gymnasium makes arrays of objects of lists: each is an array of numbers, the batch of them is not.
    objects = {k for info, _ in infos for k, v in info.items() if isinstance(v, np.ndarray) and v.dtype == object}
    ignored += tuple(key for key in examples if key in objects)
    examples = {key: value for key, value in examples.items() if key not in objects}
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
    env: VectorEnvAdapter,
    seeds: list[int],
    actions: Iterable[Buffer],
    infos: list[tuple[Info, np.ndarray]],
    seconds: list[float],
    advice: dict[str, str],
) -> Iterator[Seen]:
    """Reset a vector environment with seeds, step it, and reset it without; yield copies of all that it gives.

    The info of every step is put into `infos`, with the environments that took one (bool [B], the others were reset),
    and its time into `seconds`.
    """

    def seen(observation: Buffer) -> Buffer:
        _check_all_bounds(env, observation, advice)
        return copy_of(observation)

    start = time.perf_counter()
    yield FIRST, seen(env.reset(seeds)[0])
    is_slow = time.perf_counter() - start > SLOW_SECONDS
    ended = np.zeros(env.n, bool)
    for t, action in enumerate(actions, 1):
        start = time.perf_counter()
        env.send(action)
        observation, reward, terminated, truncated, info = env.recv()
        seconds.append(time.perf_counter() - start)
        infos.append(({key: copy.copy(value) for key, value in info.items()}, ~ended))
        if (reward[ended] != 0).any():
            advice["rewards after ends"] = (
                f"{env.name}: it names AutoresetMode.NEXT_STEP, in which the step after the end of an episode resets, "
                "and that step has a reward, which is not counted. If it resets itself in the step that ends an "
                "episode, name AutoresetMode.SAME_STEP in its metadata."
            )
        ended = terminated | truncated
        yield f"step {t}", (seen(observation), reward.copy(), terminated.copy(), truncated.copy())
    if not is_slow:
        yield "a reset without seeds", seen(env.reset()[0])


def info_at(info: Info, b: int, n: int | None = None) -> dict[str, Any]:
    """Return the part of one environment in the info of a vector environment.

    It leaves out three kinds of fields: those that this environment did not give, by the mask of gymnasium ("_key",
    bool [B]), the masks themselves, and values that are not arrays with a leading dimension B.

    Args:
        info: arrays [B, ...], or dictionaries of them, by name.
        b: place of the environment in the batch.
        n: B; without it every array that is long enough counts as having that dimension.
    """
    one: dict[str, Any] = {}
    for key, value in info.items():
        mask = info.get(f"_{key}")
        if _is_mask_in(info, key) or (_is_mask_in(info, f"_{key}") and not cast(np.ndarray, mask)[b]):
            continue
        if isinstance(value, Mapping):
            one[key] = info_at(value, b, n)
        elif isinstance(value, np.ndarray) and value.ndim > 0 and (len(value) > b if n is None else len(value) == n):
            one[key] = value[b]
    return one


def _check_all_bounds(env: VectorEnvAdapter, observation: Buffer, advice: dict[str, str]) -> None:
    for b, rank in enumerate(env.ranks):
        where = f"{env.name} (rank {rank}), its step {env.n_steps}"
        check_bounds(where, env.observation_space, observation[b], advice)


def _is_mask_in(info: Info, key: str) -> bool:
    mask = info.get(key)
    return key.startswith("_") and key[1:] in info and isinstance(mask, np.ndarray) and mask.dtype == bool
