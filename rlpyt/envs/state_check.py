"""Check that an environment which continues from a saved state is the environment that was saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

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


def restores_exactly(env: EnvAdapter, other: EnvAdapter, seed: int, n_steps: int, n_before: int = 0) -> str | None:
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
    """
    try:
        difference = _difference(env, other, seed, n_steps, n_before)
    except StateError as error:
        return str(error)
    return difference and f"{env.name}: saved after {n_before} steps: {difference} after the restored state."


def why_not_restored(env: EnvAdapter, make_other: Callable[[], EnvAdapter], seed: int) -> str | None:
    """Return why an environment cannot be restored although its state can be read; None if a trial finds no reason.

    An environment may have attributes that can be read, and the rest of its state elsewhere: behind the number of a
    simulator's client, in a module global, in a file. Half of a state, loaded, would go on with other numbers without
    a word. So it is compared as in `restores_exactly`, unless all layers are of packages that the tests cover, or give
    their state themselves. Global generators are left as they were.

    Args:
        env: the environment, which is not used after this; it is left open.
        make_other: makes one of the same class and settings, while the first one is open.
        seed: of resets and actions.
    """
    if all(hasattr(type(x), "state_dict") or class_name(type(x)).split(".")[0] in _TESTED for x in env.layers):
        return None
    streams, other = global_streams(), None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were given when the first one was built
            other = make_other()
            what = _difference(env, other, seed, _N_STEPS, _N_BEFORE) and (
                "its state was loaded into another one, as a trial, and the same steps gave other values. It has state "
                "outside of its attributes, such as behind the handle of a simulator, in a module global or in a file, "
                "or draws from the system's random numbers. Give it state_dict and load_state_dict."
            )
    except StateError:
        return None  # of a moment in which it cannot be restored; that is said where a state is loaded
    except Exception as error:
        failed = "its state was loaded into another one, as a trial, which then failed"
        what = f"{failed if other else 'a second one could not be made to try its state out'}: {error}"
    finally:
        with suppress(Exception):
            if other is not None:
                other.close()
        set_global_streams(streams)
    return what and f"{env.name} (rank {env.rank}) cannot be restored: {what}"


def _difference(env: EnvAdapter, other: EnvAdapter, seed: int, n_steps: int, n_before: int) -> str | None:
    """Return the first value that differs; see `restores_exactly`."""
    rng = np.random.default_rng(seed)
    before, after, later = (
        [random_value(env.action_space, rng) for _ in range(n)] for n in (n_before, n_steps, n_steps)
    )
    env.reset(seed)
    rows = list(_rows(env, before))
    ended = bool(rows) and any(rows[-1]["end"])
    other.reset(seed + 1)
    list(_rows(other, later[-3:]))
    state, why = env.saved_state()
    if why is not None:
        raise StateError(why)
    streams, own = global_streams(), other.state_dict()
    expected = [*_rows(env, after, ended), *_rows(env, later, ended=True)]
    try:
        other.load_state_dict(state)
        set_global_streams(streams)
        got = [*_rows(other, after, ended), *_rows(other, later, ended=True)]
    finally:
        with suppress(Exception):  # its own handles, if the state has any, so that it closes what is its own
            other.load_state_dict(own)
    for t, (one, two) in enumerate(zip(expected, got, strict=False)):
        for name in one:
            if one[name] != two.get(name):
                return f"{name} differs in row {t}"
    return None


def _rows(env: EnvAdapter, actions: list[object], ended: bool = False) -> Iterator[StateDict]:
    """Take the actions, and give the values of every step and reset, as bytes."""
    for action in actions:
        if ended:
            yield {"observation": [np.asarray(leaf).tobytes() for leaf in buffer_leaves(env.reset()[0])]}
        observation, reward, *end, _ = env.step(env.masks.legal(action))
        leaves = [np.asarray(leaf).tobytes() for leaf in buffer_leaves(observation)]
        yield {"observation": leaves, "reward": np.float64(reward).tobytes(), "end": end}
        ended = any(end)
