"""Check that an environment which continues from a saved state is the environment that was saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rlpyt.envs.adapter import EnvAdapter
from rlpyt.spaces import random_value
from rlpyt.types import StateDict
from rlpyt.utils.arrays import buffer_leaves


class _Row(NamedTuple):
    """Values of one step, or of one reset, as bytes."""

    observation: list[bytes]
    reward: bytes
    terminated: bool
    truncated: bool


def restores_exactly(
    env: EnvAdapter,
    other: EnvAdapter,
    seed: int,
    n_steps: int,
    n_before: int = 0,
    carry: Callable[[StateDict], StateDict] = lambda state: state,
) -> str | None:
    """Return how a restored environment differs from the one that was saved; None if not in a single bit.

    One environment takes random steps, is saved, and goes on. The other one loads the state and takes the same actions.
    Observations, rewards and ends are compared. After the last step both are reset, and take as many steps again: the
    state has to hold the random stream of later episodes.

    Args:
        env: the environment that is saved.
        other: another one, of the same class and settings.
        seed: of its resets and of the actions.
        n_steps: steps after the state was saved.
        n_before: steps before that.
        carry: what happens to the state on its way, such as `save_snapshot` and `load_snapshot`.
    """
    rng = np.random.default_rng(seed)
    actions = [random_value(env.action_space, rng) for _ in range(n_before + 2 * n_steps)]
    env.reset(seed)
    ended = any([row.terminated or row.truncated for row in _rows(env, actions[:n_before])][-1:])
    other.reset(seed + 1)
    for _ in _rows(other, actions[-3:]):
        pass
    state = env.state_dict()
    if not state:
        return env.why_no_state()
    state = carry(state)
    after = actions[n_before:]
    expected = [*_rows(env, after[:n_steps], ended), *_rows(env, after[n_steps:], True)]
    other.load_state_dict(state)
    got = [*_rows(other, after[:n_steps], ended), *_rows(other, after[n_steps:], True)]
    for t, (one, two) in enumerate(zip(expected, got, strict=False)):
        for name, x, y in zip(_Row._fields, one, two, strict=True):
            if x != y:
                return f"{env.name}: saved after {n_before} steps: {name} differs in row {t} after the restored state."
    return None


def _rows(env: EnvAdapter, actions: list[object], ended: bool = False) -> Iterator[_Row]:
    """Take the actions, and give the values of every step and reset."""
    for action in actions:
        if ended:
            yield _row(env.reset()[0], 0.0, False, False)
        observation, reward, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
        yield _row(observation, reward, terminated, truncated)


def _row(observation: object, reward: float, terminated: bool, truncated: bool) -> _Row:
    leaves = [np.asarray(leaf).tobytes() for leaf in buffer_leaves(observation)]
    return _Row(leaves, np.float64(reward).tobytes(), terminated, truncated)
