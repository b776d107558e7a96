"""Check that an environment which continues from a saved state is the environment that was saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from rlpyt.envs.adapter import EnvAdapter
from rlpyt.envs.state_data import StateError, class_name
from rlpyt.spaces import random_value
from rlpyt.types import StateDict
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.seeds import global_streams, set_global_streams

# Packages whose environments and wrappers the tests of this library restore; to try them at every start is a waste.
_TESTED = {"gymnasium", "shimmy", "rlpyt"}
# Not equal: a simulation that two environments share by accident would be at the same step of an episode again.
_N_BEFORE, _N_STEPS = 11, 10


class _Row(NamedTuple):
    """Values of one step, or of one reset, as bytes."""

    observation: list[bytes]
    reward: bytes
    terminated: bool
    truncated: bool


class _Comparison(NamedTuple):
    """Result of `restores_exactly`: why there was nothing to compare, or what differed."""

    why_no_state: str | None
    difference: str | None


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
    state has to hold the random stream of later episodes. The global generators of the process are set back in between,
    as the state of a sampler has them.

    Args:
        env: the environment that is saved.
        other: another one, of the same class and settings.
        seed: of its resets and of the actions.
        n_steps: steps after the state was saved.
        n_before: steps before that.
        carry: what happens to the state on its way, such as `save_snapshot` and `load_snapshot`.
    """
    why, difference = _compare(env, other, seed, n_steps, n_before, carry)
    return why or (difference and f"{env.name}: saved after {n_before} steps: {difference} after the restored state.")


def _compare(
    env: EnvAdapter,
    other: EnvAdapter,
    seed: int,
    n_steps: int,
    n_before: int,
    carry: Callable[[StateDict], StateDict] = lambda state: state,
) -> _Comparison:
    rng = np.random.default_rng(seed)
    actions = [random_value(env.action_space, rng) for _ in range(n_before + 2 * n_steps)]
    env.reset(seed)
    ended = any([row.terminated or row.truncated for row in _rows(env, actions[:n_before])][-1:])
    other.reset(seed + 1)
    for _ in _rows(other, actions[-3:]):
        pass
    state = env.state_dict()
    if not state:
        return _Comparison(env.why_no_state(), None)
    streams = global_streams()
    state, own = carry(state), other.state_dict()
    after = actions[n_before:]
    expected = [*_rows(env, after[:n_steps], ended), *_rows(env, after[n_steps:], True)]
    try:
        other.load_state_dict(state)
        set_global_streams(streams)
        got = [*_rows(other, after[:n_steps], ended), *_rows(other, after[n_steps:], True)]
    finally:
        with suppress(Exception):  # its own handles, if the state has any, so that it closes what is its own
            other.load_state_dict(own)
    return _Comparison(None, _first_difference(expected, got))


def why_not_restored(env: EnvAdapter, make_other: Callable[[], EnvAdapter], seed: int) -> str | None:
    """Return why an environment cannot be restored although its state can be read; None if a trial finds no reason.

    An environment may have attributes that can be read, and the rest of its state elsewhere: behind the number of a
    simulator's client, in a module global, in a file. Half of a state, loaded, would go on with other numbers without
    a word. So it is compared by `restores_exactly`, unless all layers are of packages that the tests cover, or give
    their state themselves. Global generators are left as they were.

    Args:
        env: the environment, which is not used after this; it is left open.
        make_other: makes one of the same class and settings, while the first one is open.
        seed: of resets and actions.
    """
    if all(_is_tested(layer) for layer in env.layers):
        return None
    streams = global_streams()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were given when the first one was built
            what = _try(env, make_other, seed)
    finally:
        set_global_streams(streams)
    return what and f"{env.name} (rank {env.rank}) cannot be restored: {what}"


def _is_tested(layer: object) -> bool:
    kind = type(layer)
    return hasattr(kind, "state_dict") or class_name(kind).partition(".")[0] in _TESTED


def _try(env: EnvAdapter, make_other: Callable[[], EnvAdapter], seed: int) -> str | None:
    """Return what went wrong when the state was loaded into another environment."""
    try:
        other = make_other()
    except Exception as error:
        return f"a second one could not be made to try its state out: {error}"
    try:
        difference = _compare(env, other, seed, _N_STEPS, _N_BEFORE).difference
    except StateError:
        return None  # of a moment in which it cannot be restored; that is said where a state is loaded
    except Exception as error:
        return f"its state was loaded into another one, as a trial, which then failed: {error}"
    finally:
        with suppress(Exception):
            other.close()
    return difference and (
        "its state was loaded into another one, as a trial, and the same steps gave other values. It has state outside "
        "of its attributes, such as behind the handle of a simulator, in a module global or in a file, or draws from "
        "the system's random numbers. Give it state_dict and load_state_dict."
    )


def _first_difference(expected: Sequence[_Row], got: Sequence[_Row]) -> str | None:
    for t, (one, two) in enumerate(zip(expected, got, strict=False)):
        for name, x, y in zip(_Row._fields, one, two, strict=True):
            if x != y:
                return f"{name} differs in row {t}"
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
