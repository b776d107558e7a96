"""Check of a vector environment before a run, and the part of one environment in its info."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from rlpyt.envs.check import EnvExamples, check_bounds, check_images, check_repeats, copy_of, info_examples
from rlpyt.envs.vector import VectorEnvAdapter, batch_rows_space
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import null_action, null_value, random_value
from rlpyt.types import Info


def check_vector_env(env: VectorEnvAdapter, seed: int, n_steps: int = 20) -> EnvExamples:
    """Reset a vector environment twice and take random steps, as `check_env` does.

    Args:
        env: the vector environment; it is left within episodes.
        seed: of the environments and the random actions.
        n_steps: number of random steps.

    Returns:
        Examples of the values of ONE of its environments.

    Raises:
        EnvError: if the environment raises, or gives values that its spaces do not allow.

    Warns:
        UserWarning: if float observations leave their bounds, the same seeds give another start, or the last dimension
            of an image looks like channels.
    """
    rng = np.random.default_rng(seed)
    seeds = rng.integers(2**31, size=env.n).tolist()
    first = copy_of(env.reset(seeds)[0])
    again, _ = env.reset(seeds)
    check_repeats(env.name, "the same seeds", first, again)
    check_images(env.name, env.observation_space)
    warned: set[str] = set()
    _check_all_bounds(env, again, warned)
    env.try_reset_some()
    infos: list[dict[str, Any]] = []
    objects: set[str] = set()
    actions = batch_rows_space(env.action_space, env.n)
    ended = np.zeros(env.n, bool)
    for _ in range(n_steps):
        env.send(random_value(actions, rng))
        observation, _, terminated, truncated, info = env.recv()
        _check_all_bounds(env, observation, warned)
        infos += [info_at(info, b, env.n) for b in np.flatnonzero(~ended).tolist()]
        ended = terminated | truncated
        objects |= {key for key, value in info.items() if isinstance(value, np.ndarray) and value.dtype == object}
    examples, ignored = info_examples(infos)
    # gymnasium makes arrays of objects of lists: each is an array of numbers, the batch of them is not.
    ignored += tuple(key for key in examples if key in objects)
    examples = {key: value for key, value in examples.items() if key not in objects}
    return EnvExamples(
        env.spaces, null_value(env.observation_space), null_action(env.action_space), np.float32(0), examples, ignored
    )


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


def _check_all_bounds(env: VectorEnvAdapter, observation: Buffer, warned: set[str]) -> None:
    for b, rank in enumerate(env.ranks):
        where = f"{env.name} (rank {rank}), its step {env.n_steps}"
        check_bounds(where, env.observation_space, observation[b], warned)


def _is_mask_in(info: Info, key: str) -> bool:
    mask = info.get(key)
    return key.startswith("_") and key[1:] in info and isinstance(mask, np.ndarray) and mask.dtype == bool
