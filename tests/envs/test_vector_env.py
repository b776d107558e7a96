from __future__ import annotations

import copy
import functools
import os
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.envs import (
    EnvAdapter,
    EnvError,
    VectorEnvAdapter,
    check_env,
    check_vector_env,
    info_at,
    make_env,
    make_vector_env,
    makes_vector_env,
)
from rlpyt.envs.autoreset import _with_info, with_final
from rlpyt.envs.vector import batch_rows_space
from rlpyt.spaces import null_action, to_env, to_rows
from rlpyt.utils.arrays import buffer_leaves
from tests.envs.env_kinds import NESTED, Sampled, random_spaces
from tests.toy_envs import CountingEnv, DictCountingEnv, LifeEnv
from tests.vector_toy_envs import CountingVectorEnv, DictCountingVectorEnv, FaultyVectorEnv, LifeVectorEnv

TOYS: list[tuple[type, type]] = [
    (CountingVectorEnv, CountingEnv),
    (DictCountingVectorEnv, DictCountingEnv),
    (LifeVectorEnv, LifeEnv),
]


def assert_same(value: Any, expected: Any) -> None:
    assert getattr(value, "_fields", None) == getattr(expected, "_fields", None)
    for x, y in zip(buffer_leaves(value), buffer_leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def step_like_a_vector_env(envs: list[EnvAdapter], ended: np.ndarray, actions: Any) -> list[Any]:
    """One row of every environment, by single adapters; those that ended are reset instead."""
    rows: list[Any] = []
    for b, env in enumerate(envs):
        if ended[b]:
            rows.append((env.reset()[0], 0.0, False, False, {}))
        else:
            rows.append(env.step(actions[b]))
    return rows


# ---- numbers


@pytest.mark.parametrize(("VectorCls", "EnvCls"), TOYS)
def test_a_vector_of_toys_gives_the_rows_of_single_toys(VectorCls, EnvCls):
    seeds, n = [4, 5, 9], 3
    vector = make_vector_env(VectorCls, {}, ranks=[7, 8, 9])
    envs = [make_env(EnvCls, {}) for _ in range(n)]
    observation, _ = vector.reset(seeds)
    first = [env.reset(seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    rng, ended, n_ends, n_lives = np.random.default_rng(0), np.zeros(n, bool), 0, 0
    for _ in range(80):
        actions = rng.integers(3, size=n)
        for b in range(n):
            assert_same(observation[b], first[b])
        vector.send(actions)
        observation, reward, terminated, truncated, info = vector.recv()
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float32, bool, bool)
        rows = step_like_a_vector_env(envs, ended, actions)
        for b, (_, *expected, expected_info) in enumerate(rows):
            assert [reward[b], terminated[b], truncated[b]] == expected
            one = info_at(info, b)
            for key, value in expected_info.items():
                if key in one:
                    np.testing.assert_array_equal(one[key], value)
            assert set(expected_info) - {"name"} <= set(one)
            n_lives += expected_info.get("traj_done", True) is False and expected[0]
        first = [row[0] for row in rows]
        ended = terminated | truncated
        n_ends += ended.sum()
    assert n_ends > 30
    assert n_lives > 10 or EnvCls is not LifeEnv


@settings(max_examples=80)
@given(space=random_spaces, n=st.integers(1, 4), seed=st.integers(0, 99))
def test_a_batch_has_the_row_form_of_its_environments_under_each_other(space, n, seed):
    space.seed(seed)
    values = [space.sample() for _ in range(n)]
    out: Any = create_empty_array(space, n)
    batch = concatenate(space, values, out)
    rows = to_rows(batch_rows_space(space, n))(batch)
    ones = [to_rows(space)(value) for value in values]
    for b, one in enumerate(ones):
        assert_same(rows[b], one)
    # And back: what gymnasium's vector environments make of the batch of actions is what single ones get.
    back = to_env(batch_rows_space(space, n))(rows)
    singles = gymnasium.vector.utils.iterate(batch_space(space, n), back)
    for value, one in zip(singles, ones, strict=True):
        assert_same_nested(value, to_env(space)(one))


def assert_same_nested(value: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert set(value) == set(expected)  # gymnasium's batch_space sorts the keys
        for key in expected:
            assert_same_nested(value[key], expected[key])
    elif isinstance(expected, tuple):
        assert len(value) == len(expected)
        for x, y in zip(value, expected, strict=True):
            assert_same_nested(x, y)
    else:
        np.testing.assert_array_equal(value, expected)
        assert isinstance(expected, int) or value.dtype == expected.dtype


# ---- seeds


def first_observations(env: VectorEnvAdapter, seeds: list[int]) -> np.ndarray:
    """Observations [T, B, ...] over several episodes."""
    rng, seen, space = np.random.default_rng(0), [env.reset(seeds)[0]], env.action_space
    assert isinstance(space, spaces.Discrete)
    for _ in range(60):
        # The same action in all environments, so that it does not matter how many there are.
        env.send(np.full(env.n, rng.integers(space.n)))
        seen.append(env.recv()[0])
    return np.stack(seen)


@pytest.mark.parametrize(
    ("EnvCls", "env_kwargs", "apart"),
    [
        (gymnasium.make_vec, {"id": "CartPole-v1"}, False),  # one generator for all
        (gymnasium.make_vec, {"id": "CartPole-v1", "vectorization_mode": "sync"}, True),
        (gymnasium.make_vec, {"id": "CartPole-v1", "vectorization_mode": "async"}, True),
    ],
)
def test_the_same_seeds_repeat_and_a_stream_does_not_depend_on_how_many_there_are(EnvCls, env_kwargs, apart):
    make = functools.partial(make_vector_env, EnvCls, env_kwargs)
    three, one = make([0, 1, 2]), make([1])
    many = first_observations(three, [5, 6, 2**31 - 1])
    np.testing.assert_array_equal(many, first_observations(three, [5, 6, 2**31 - 1]))
    assert (many != first_observations(three, [7, 8, 9])).any()
    if apart:
        np.testing.assert_array_equal(many[:, 1:2], first_observations(one, [6]))
    three.close()
    one.close()


class SeedRecorder(CountingVectorEnv):
    """Refuses seeds unless they are of one type; raises what gymnasium's environments raise."""

    def __init__(self, num_envs: int, takes: type = list) -> None:
        super().__init__(num_envs)
        self.takes = takes
        self.seen: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.seen.append(seed)
        if seed is not None and not isinstance(seed, self.takes):
            raise gymnasium.error.Error(f"a {type(seed).__name__} is no seed")
        return super().reset(options=options)


@pytest.mark.parametrize("takes", [list, np.ndarray, int])
def test_seeds_come_in_the_form_that_the_environment_takes(takes):
    env = make_vector_env(SeedRecorder, {"takes": takes}, [0, 1])
    env.reset(np.array([3, 4]).tolist())
    env.env.seen.clear()
    env.reset((8, 9))
    (seed,) = env.env.seen
    assert isinstance(seed, takes)
    assert np.array(seed).tolist() == (8 if takes is int else [8, 9])
    assert takes is not list or [type(s) for s in seed] == [int, int]
    env.reset()
    assert env.env.seen[-1] is None


def test_no_form_of_seed_is_taken():
    env = make_vector_env(SeedRecorder, {"takes": str}, [0, 1])
    with pytest.raises(EnvError, match="a list is no seed"):
        env.reset([3, 4])
    with pytest.raises(EnvError, match="expected 2 seeds, got 3"):
        env.reset([3, 4, 5])


# ---- resets of a part


class Copies(CountingVectorEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options={**(options or {})} or None)


class Ignores(CountingVectorEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if options is not None:
            assert options.get("low", 0) == 0
        return super().reset(seed=seed)


def test_who_ignores_the_mask_is_found():
    mask = np.array([False, True])
    env = make_vector_env(Copies, {}, [0, 1])
    env.reset([0, 1])
    env.send(np.zeros(2, int))
    env.recv()
    assert env.reset_some(mask)[0].tolist() == [[0, 1, 0], [1, 0, 1]]
    for EnvCls, kwargs in ((Ignores, {}), (gymnasium.make_vec, {"id": "CartPole-v1"})):
        env = make_vector_env(EnvCls, kwargs, [4, 5])
        env.reset([0, 1])
        with pytest.raises(EnvError, match=r"ranks 4 to 5.*no notice of options\['reset_mask'\].*mid_batch_reset=True"):
            env.reset_some(mask)


# ---- send and recv


class StepsOnly(CountingVectorEnv):
    def step(self, actions: Any) -> Any:
        observation, reward, *rest = super().step(actions)
        return observation, 3 * reward, *rest

    def recv(self) -> Any:
        raise AssertionError("step says more than recv")

    send = recv  # type: ignore[assignment]


def rewards(env: VectorEnvAdapter) -> list[float]:
    env.reset([0, 1])
    seen = []
    for _ in range(5):
        env.send(np.array([1, 2]))
        seen += env.recv()[1].tolist()
    return seen


def test_a_step_that_overrides_more_than_its_halves_is_taken():
    class Newest(StepsOnly):
        def step(self, actions: Any) -> Any:
            return super().step(actions)

    class Wrapped(VectorWrapper):
        def step(self, actions: Any) -> Any:
            observation, reward, *rest = self.env.step(actions)
            return observation, 3 * reward, *rest

    expected = [3 * x for x in rewards(VectorEnvAdapter(CountingVectorEnv(2), [0, 1]))]
    assert max(expected) > 0
    assert rewards(VectorEnvAdapter(Newest(2), [0, 1])) == expected
    assert rewards(VectorEnvAdapter(Wrapped(CountingVectorEnv(2)), [0, 1])) == expected


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_reset_takes_in_a_step_that_is_under_way(mode):
    env = make_vector_env(gymnasium.make_vec, {"id": "CartPole-v1", "vectorization_mode": mode}, [0, 1])
    first, _ = env.reset([5, 6])
    env.send(np.array([1, 1]))
    assert mode == "sync" or env.env._state.value == "step", "it steps while others are waited for"
    again, _ = env.reset([5, 6])
    np.testing.assert_array_equal(first, again)
    env.send(np.array([0, 0]))
    env.recv()
    env.close()


# ---- what is refused


def test_actions_are_checked_before_they_reach_native_code():
    env = make_vector_env(AtariVectorEnv, {"game": "pong"}, [3, 4])  # steps with 99 would hang for ever
    env.reset([0, 1])
    with pytest.raises(
        EnvError, match=r"AtariVectorEnv \(rank 4 of ranks 3 to 4, seed 1\), its step 1: .*0 to 5, got .*99"
    ):
        env.send(np.array([0, 99]))
    with pytest.raises(EnvError, match="-1"):
        env.send(np.array([-1, 0]))
    env.send(np.array([0, 5]))
    env.recv()


class Broken(CountingVectorEnv):
    """Gives one wrong thing at its second step, of the environment at place 1 where one can be told."""

    def __init__(self, num_envs: int, place: int | None, value: Any) -> None:
        super().__init__(num_envs, lengths=(99,))
        self.place, self.value = place, value

    def step(self, actions: Any) -> Any:
        result = list(super().step(actions))
        if self.envs[0].t != 2:
            return tuple(result)
        if isinstance(self.value, BaseException):
            raise self.value
        if self.place is None:
            return self.value(result)
        result[self.place] = self.value(result[self.place]) if callable(self.value) else self.value
        return tuple(result)


def with_nan(x: np.ndarray) -> np.ndarray:
    x[1] = np.nan
    return x


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (0, with_nan, r"\(rank 5 of ranks 4 to 6, seed 8\), its step 2: step: ValueError: observation must be finite"),
        (0, None, "TypeError: observation: expected float32"),
        (0, lambda x: x.astype(complex), "TypeError: observation: expected float32"),
        (0, lambda x: x[:2], r"observation: expected shape \(3, 3\), got \(2, 3\)"),
        (
            0,
            ZeroDivisionError("the toy broke"),
            r"\(ranks 4 to 6\), its step 2: step: ZeroDivisionError: the toy",
        ),
        (0, SystemExit(), r"SystemExit: no message \((?s:.*)must not end the process"),
        (1, with_nan, r"\(rank 5 of ranks 4 to 6, seed 8\), its step 2: step: ValueError: reward: expected a finite"),
        (1, lambda x: x * np.inf, "reward: expected a finite number, got "),
        (1, lambda x: x[:2], r"reward: expected shape \(3,\), got \(2,\)"),
        (1, ["1", "2", "3"], "reward: expected 3 numbers, got list"),
        (1, np.zeros((3, 2)), r"reward: expected shape \(3,\), got \(3, 2\)\. .*LinearReward"),
        (2, False, r"terminated: expected shape \(3,\), got \(\)"),
        (2, ["False"] * 3, "terminated: expected an array of 3 bools, got list"),
        (2, {"a": False}, r"terminated: expected an array of 3 bools, got dict .*One value for each of several"),
        (3, lambda x: x[:, None], r"truncated: expected shape \(3,\), got \(3, 1\)"),
        (3, [None] * 3, "truncated: expected an array of 3 bools"),
        (3, np.array([0.0, 3.5, 0]), r"truncated: expected an array of 3 bools, got the numbers \[0\.  3\.5 0\. \]"),
        (3, np.array([0.0, np.nan, 0]), "truncated: expected an array of 3 bools"),
        (4, 3, "info: expected a dictionary of arrays"),
        (4, [{}], "info: .* or a list of 3 dictionaries, got list"),
        (4, {"traj_done": ["no"] * 3}, r"info\['traj_done'\]: expected an array of 3 bools"),
        (
            None,
            lambda result: tuple(result[:4]),
            r"expected \(observation, .* got tuple of 4 values",
        ),
    ],
)
def test_what_a_vector_environment_may_not_return_is_named(place, value, text):
    env = make_vector_env(Broken, {"place": place, "value": value}, [4, 5, 6])
    env.reset([7, 8, 9])
    step(env)
    with pytest.raises(EnvError, match=f"^Broken .*{text}"):
        step(env)


def test_a_fault_deep_in_a_nested_observation_is_found():
    class Nested(DictCountingVectorEnv):
        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            result[0]["pair"][1][2] = 1
            result[0]["ale.lives"][2] = 4
            return result

    env = make_vector_env(Nested, {}, [4, 5, 6])
    env.reset([7, 8, 9])
    text = r"\(rank 6 of ranks 4 to 6, seed 9\), its step 1: .*observation\['ale.lives'\]: expected an integer"
    with pytest.raises(EnvError, match=text):
        step(env)


@pytest.mark.parametrize("flags", [[True, False, False], np.array([1, 0, 0]), np.array([1.0, 0.0, 0.0], "f4")])
def test_flags_of_a_vector_may_be_numbers(flags):
    env = make_vector_env(Broken, {"place": 2, "value": flags}, [4, 5, 6])
    env.reset([7, 8, 9])
    step(env)
    env.send(np.ones(3, int))
    terminated = env.recv()[2]
    assert (terminated.dtype, terminated.tolist()) == (bool, [True, False, False])


# ---- other modes of reset


MODES = (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


def ts_and_ends(env: VectorEnvAdapter, n: int) -> list[tuple[int, int, bool]]:
    """Return t and episode of the first environment, and whether it ended, in the next rows."""
    rows: list[tuple[int, int, bool]] = []
    for _ in range(n):
        env.send(np.zeros(env.n, int))
        observation, reward, terminated, truncated, info = env.recv()
        assert not (rows and rows[-1][2] and reward[0]), "a reward for the step that nobody sees"
        assert not {"final_obs", "final_info", "_final_obs", "_final_info"} & info.keys()
        _, t, episode = observation[0] if isinstance(observation, np.ndarray) else observation.counts[0]
        if not isinstance(observation, np.ndarray):
            assert observation.pair["0"][0] == -t, "all parts are of one moment"
        rows.append((int(t), int(episode), bool(terminated[0] | truncated[0])))
    return rows


def episode(*rows: int) -> list[tuple[int, bool]]:
    """Return t and whether it is the last, of rows until an episode ends."""
    return [(t, t == rows[-1]) for t in rows]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("VectorCls", "lengths", "rows"),
    [
        (CountingVectorEnv, (1,), [(1, True), (0, False)] * 3),
        (DictCountingVectorEnv, (2,), [(1, False), (2, True), (0, False)] * 2),
        # Lives of three steps, the second and third of them begun by a step that nobody sees; the horizon is 11.
        (LifeVectorEnv, (3,), [*episode(1, 2, 3), *episode(4, 5, 6), *episode(7, 8, 9), (0, False), (1, False)]),
        # The second life takes nine steps, the last one is lost in the step that nobody sees: its final row is its own.
        (LifeVectorEnv, (1, 9), [(1, True), *episode(*range(2, 11)), (11, True), (0, False), (1, True)]),
    ],
)
def test_rows_of_environments_that_reset_themselves_or_not_at_all(mode, VectorCls, lengths, rows):
    env = VectorEnvAdapter(VectorCls(1, lengths=lengths, mode=mode), [0])
    env.reset([3])
    seen = ts_and_ends(env, len(rows))
    assert [(t, ended) for t, _, ended in seen] == rows
    if lengths == (3,):
        assert len({episode for _, episode, _ in seen[:9]}) == 1, "the game went on"


class Meaningless(CountingVectorEnv):
    """Gives anything in the rows that a reset of a part does not reset."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        if options is not None:
            observation[~options["reset_mask"]] = np.nan
        return observation, info


@pytest.mark.parametrize("mode", MODES)
def test_only_the_rows_of_a_reset_are_read(mode):
    env = VectorEnvAdapter(Meaningless(3, lengths=(3, 1, 2), mode=mode), [0, 1, 2])
    env.reset([3, 4, 5])
    assert [(t, ended) for t, _, ended in ts_and_ends(env, 5)] == [*episode(1, 2, 3), (0, False), (1, False)]


class Keeping(CountingVectorEnv):
    """Goes on using the arrays that it gave."""

    def step(self, actions: Any) -> Any:
        self.given = super().step(actions)
        self.before = copy.deepcopy(self.given)
        return self.given


@pytest.mark.parametrize("mode", MODES)
def test_what_an_environment_gave_stays_as_it_was(mode):
    env = VectorEnvAdapter(Keeping(2, lengths=(1,), mode=mode), [0, 1])
    env.reset([3, 4])
    for _ in range(4):
        ts_and_ends(env, 1)
        assert_same(env.env.given[:4], env.env.before[:4])


def test_the_info_of_a_final_row_is_the_final_one_alone():
    mask = np.array([True, False])
    step = {"x": np.array([1, 2]), "_x": np.array([True, True]), "deep": {"z": np.array([1, 2])}, "n": 3}
    final = {"y": np.array([5, 0]), "_y": np.array([True, False]), "deep": {"z": np.array([7, 0])}}
    merged = _with_info(step, final, mask)
    deep = merged.pop("deep")
    assert deep["z"].tolist() == [7, 2]
    assert {key: np.asarray(value).tolist() for key, value in merged.items()} == {
        "x": [0, 2], "_x": [False, True], "y": [5, 0], "_y": [True, False], "n": 3
    }  # fmt: skip


class Plainly(CountingEnv):
    def step(self, action: Any) -> Any:
        return super().step(int(action))


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_vector_environments_show_final_and_first_observations_in_every_mode(mode):
    env = VectorEnvAdapter(SyncVectorEnv([functools.partial(Plainly, (2,))] * 2, autoreset_mode=mode), [0, 1])
    env.reset([3, 4])
    assert [(t, ended) for t, _, ended in ts_and_ends(env, 6)] == [(1, False), (2, True), (0, False)] * 2


def test_a_mode_that_was_asked_for_becomes_the_one_that_needs_no_further_resets():
    class Asked(CountingVectorEnv):
        def __init__(self, num_envs: int, autoreset_mode: Any) -> None:
            super().__init__(num_envs)
            self.asked = autoreset_mode

    assert make_vector_env(Asked, {"autoreset_mode": "Disabled"}, [0]).env.asked == "NextStep"
    for mode in (*MODES, "SameStep"):
        kwargs = {"id": "CartPole-v1", "vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
        env = make_vector_env(gymnasium.make_vec, kwargs, [0])
        assert env.env.unwrapped.autoreset_mode is AutoresetMode.NEXT_STEP
        assert kwargs["vector_kwargs"] == {"autoreset_mode": mode}
    assert make_vector_env(AtariVectorEnv, {"game": "pong", "autoreset_mode": "SameStep"}, [0]).n == 1


def test_who_can_only_reset_all_at_once_loses_first_observations_and_says_so():
    env = VectorEnvAdapter(Ignores(2, lengths=(3,), mode=AutoresetMode.SAME_STEP), [0, 1])
    with pytest.warns(UserWarning, match="Ignores: its autoreset mode is SAME_STEP.*begins with one step of the null"):
        check_vector_env(env, seed=0)
    env.reset([3, 3])
    rows = [(1, False), (2, False), (3, True), (1, False), (2, False), (3, True), (1, False)]
    assert [(t, ended) for t, _, ended in ts_and_ends(env, 7)] == rows
    with pytest.raises(TypeError, match="Ignores: its autoreset mode is DISABLED, and it cannot reset a part"):
        VectorEnvAdapter(Ignores(2, mode=AutoresetMode.DISABLED), [0, 1])


def step(env: VectorEnvAdapter) -> None:
    env.send(np.ones(env.n, int))
    env.recv()


class NoMode(CountingVectorEnv):
    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        del self.metadata


def test_the_mode_that_another_environment_left_in_the_base_class_does_not_count(monkeypatch):
    monkeypatch.setattr(VectorEnv, "metadata", {})
    AtariVectorEnv("pong", 1)
    assert NoMode(1).metadata == {"autoreset_mode": AutoresetMode.NEXT_STEP}  # the trap
    with pytest.raises(ValueError, match=r"is None; expected one of AutoresetMode.NEXT_STEP, .* of gymnasium.vector"):
        VectorEnvAdapter(NoMode(1), [0])


def test_spaces_and_interfaces_that_cannot_be_used():
    with pytest.raises(TypeError, match="CountingEnv has no single_observation_space, single_action_space, num_envs"):
        VectorEnvAdapter(CountingEnv(), [0])
    with pytest.raises(ValueError, match=r"expected 2 environments \(num_envs\), got 3"):
        VectorEnvAdapter(CountingVectorEnv(3), [0, 1])
    env = CountingVectorEnv(1)
    env.single_observation_space = spaces.Text(3)
    with pytest.raises(TypeError, match="cannot be stored in rows"):
        VectorEnvAdapter(env, [0])
    env = CountingVectorEnv(1)
    env.single_action_space = spaces.Box(0, 1, (1,), np.float32)
    env.single_action_space.low[:] = np.nan
    with pytest.raises(ValueError, match="single_action_space: every bound must be a number"):
        VectorEnvAdapter(env, [0])


# ---- making one


class Plain:
    def __init__(self, num_envs: int) -> None: ...


def test_what_makes_a_vector_environment():
    makes = [gymnasium.make_vec, AtariVectorEnv, CountingVectorEnv, Plain, lambda num_envs=3: None]
    makes += [functools.partial(gymnasium.make_vec, "CartPole-v1"), functools.partial(CountingVectorEnv, num_envs=2)]
    assert all(makes_vector_env(make) for make in makes)
    others = [gymnasium.make, CountingEnv, functools.partial(CountingEnv, lengths=(3,)), int, print, min, 3, None]
    others += [lambda **kwargs: None, functools.partial(CountingVectorEnv, 2)]
    assert not any(makes_vector_env(make) for make in others)


def test_a_failure_to_make_tells_the_call():
    with pytest.raises(ValueError, match=r"env_kwargs has num_envs=4, but the sampler decides"):
        make_vector_env(gymnasium.make_vec, {"id": "CartPole-v1", "num_envs": 4}, [0])
    text = r"Making the environments of ranks 2 to 3: make_vec\(id='Cart', num_envs=2\) failed: .*Cart"
    with pytest.raises(EnvError, match=text):
        make_vector_env(gymnasium.make_vec, {"id": "Cart"}, [2, 3])
    with pytest.raises(EnvError, match=r"of rank 2: FaultyVectorEnv\(fault='constructor', num_envs=1\).*no licence"):
        make_vector_env(FaultyVectorEnv, {"fault": "constructor"}, [2])


def test_an_environment_that_is_refused_is_closed():
    made: list[AsyncVectorEnv] = []

    def make(num_envs: int) -> Any:
        made.append(AsyncVectorEnv([CountingEnv] * num_envs, shared_memory=False))
        return made[-1]

    with pytest.raises(EnvError, match=r"do not notice a reset.*Leave shared_memory out"):
        make_vector_env(make, {}, [0])
    assert made[0].closed
    assert not made[0].processes[0].is_alive()


# ---- info and the check


def test_info_of_one_environment():
    info = {
        "lives": np.array([3, 2]),
        "vector": np.array([[1, 2], [3, 4]]),
        "name": np.array(["a", None], object),
        "_name": np.array([True, False]),
        "episode": {"r": np.array([1.5, 0.0]), "_r": np.array([True, False])},
        "_episode": np.array([True, False]),
        "_alone": np.array([7, 8]),
        "per_batch": 3,
        "short": np.zeros(1),
        "scalar": np.array(5),
    }
    assert {k: np.array(v).tolist() for k, v in info_at(info, 1).items()} == {"lives": 2, "vector": [3, 4], "_alone": 8}
    first = info_at(info, 0, n=2)
    assert first["episode"] == {"r": 1.5}
    assert first["name"] == "a"
    assert list(first) == ["lives", "vector", "name", "episode", "_alone"]
    assert info_at(info, 0)["short"] == 0
    assert info_at({}, 1) == {}


@pytest.mark.parametrize(("VectorCls", "EnvCls"), TOYS)
def test_the_check_of_a_vector_gives_the_examples_of_a_single_one(VectorCls, EnvCls):
    examples = check_vector_env(make_vector_env(VectorCls, {}, [3, 4, 5]), seed=1)
    expected = check_env(make_env(EnvCls, {}), seed=1)
    assert examples.spaces == expected.spaces
    assert_same((examples.observation, examples.action), (expected.observation, expected.action))
    assert {k: (v.shape, v.dtype) for k, v in examples.info.items()} == {
        k: (v.shape, v.dtype) for k, v in expected.info.items()
    }
    assert examples.reward.dtype == np.float32
    assert set(examples.ignored_info) <= set(expected.ignored_info)


def test_the_check_finds_observations_out_of_bounds():
    class OutOfBounds(CountingVectorEnv):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.single_observation_space = spaces.Box(0, 1, (3,), np.float32)

    with pytest.warns(UserWarning, match=r"OutOfBounds \(rank 6\), its step 0: observation has values from"):
        check_vector_env(make_vector_env(OutOfBounds, {}, [6, 7]), seed=0)


def test_the_check_draws_actions_of_any_space():
    fns = [functools.partial(Sampled, NESTED, NESTED)] * 2
    examples = check_vector_env(VectorEnvAdapter(SyncVectorEnv(fns), [0, 1]), seed=0)
    assert_same(examples.action, null_action(NESTED))
    # gymnasium puts a list into an array of objects, which no buffer can be written from.
    assert list(examples.info) == ["lives", "ale.x"]
    assert examples.ignored_info == ("name", "vector")


# ---- what environments of others return


class Others(VectorEnv[Any, Any, Any]):
    """Counts to three in every environment, and resets itself in the step that ends an episode.

    Args:
        num_envs: environments.
        form: of info: "arrays", "objects" (an array of objects with None), or "list" (one dictionary for each).
        key: under which the final observation is given; None gives none.
        mode: what it says of itself.
        final: what is given as the final observation, if another one.
    """

    single_observation_space = spaces.Box(0, 9, (1,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(
        self,
        num_envs: int,
        form: str = "arrays",
        key: str | None = "final_observation",
        mode: AutoresetMode = AutoresetMode.SAME_STEP,
        final: Any = None,
    ) -> None:
        self.num_envs, self.form, self.key, self.final = num_envs, form, key, final
        self.metadata = {"autoreset_mode": mode}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        if options is None:
            self.t = np.arange(self.num_envs) % 3
        self.t[mask] = np.arange(self.num_envs)[mask] % 3 if seed is not None else 0
        return self.t[:, None].astype("f4"), [{} for _ in self.t] if self.form == "list" else {}

    def step(self, actions: Any) -> Any:
        self.t += 1
        cut, final = self.t == 3, self.t[:, None].astype("f4")
        self.t[cut] = 0
        given = [final[b] if cut[b] else None for b in range(self.num_envs)] if self.final is None else self.final
        info: Any = {}
        if self.form == "list":
            info = [{"t": 7, **({self.key: given[b]} if self.key and cut[b] else {})} for b in range(self.num_envs)]
        elif self.key and cut.any():
            objects = np.empty(self.num_envs, object)
            objects[:] = given
            info = {self.key: objects} if self.form == "objects" else {self.key: final, f"_{self.key}": cut}
        no = np.zeros(self.num_envs, bool)
        return self.t[:, None].astype("f4"), np.ones(self.num_envs), no, cut, info


@pytest.mark.parametrize(
    ("form", "key"), [("arrays", "final_obs"), ("objects", "final_observation"), ("list", "terminal_observation")]
)
def test_final_observations_are_found_by_every_name_and_in_every_form(form, key):
    env = make_vector_env(Others, {"form": form, "key": key}, [0, 1])
    env.reset([5, 6])
    rows = []
    for _ in range(7):
        env.send(np.zeros(2, int))
        observation, _, _, truncated, info = env.recv()
        rows.append((observation[:, 0].tolist(), truncated.tolist()))
        assert key not in info
        if form == "list":
            assert info_at(info, 0) == {"t": 7}
    # The final observation has a row, and so has the first one of the next episode.
    counts = [(1, False), (2, False), (3, True), (0, False)] * 3
    expected = [([counts[i][0], counts[i + 1][0]], [counts[i][1], counts[i + 1][1]]) for i in range(7)]
    assert rows == expected


@pytest.mark.parametrize("form", ["arrays", "objects", "list"])
def test_final_observations_of_environments_that_reset_themselves_in_the_default_mode(form):
    env = make_vector_env(Others, {"form": form, "mode": AutoresetMode.NEXT_STEP}, [0, 1])
    env.reset([5, 6])
    seen = []
    for _ in range(3):
        env.send(np.zeros(2, int))
        seen.append(env.recv()[0][:, 0].tolist())
    assert seen == [[1, 2], [2, 3], [3, 1]]
    with pytest.warns(
        UserWarning, match=r"NEXT_STEP.* has a reward, which is not counted.*name AutoresetMode.SAME_STEP"
    ):
        check_vector_env(env, seed=0)


def test_final_observations_of_several_parts_have_the_masks_of_gymnasium_beside_them():
    space = spaces.Dict(t=spaces.Box(0, 9, (1,)), deep=spaces.Dict(t=spaces.Discrete(9)))
    ended = np.array([False, True])

    def batch(*ts: int) -> dict[str, Any]:
        return {"t": np.array(ts, "f4")[:, None], "deep": {"t": np.array(ts)}}

    rows, finals = to_rows(batch_rows_space(space, 2))(batch(1, 0)), batch(0, 3)
    given = {**finals, "_t": ended, "_deep": ended, "deep": {**finals["deep"], "_t": ended}}
    found, info = with_final(space, rows, {"final_obs": given, "_final_obs": ended}, ended)
    assert (found.t[:, 0].tolist(), found.deep.t.tolist(), info) == ([1, 3], [1, 3], {})
    assert rows.deep.t.tolist() == [1, 0], "a copy"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"form": "list", "key": None},
            "its autoreset mode is SAME_STEP, and info has no 'final_obs'",
        ),
        ({"form": "objects", "final": [None, None]}, "expected an observation of environment 1, which ended; got none"),
        ({"form": "objects", "final": [None, np.zeros(4, "f4")]}, r"the final observation,: expected shape \(1,\)"),
        (
            {"form": "list", "final": [None, "x"]},
            r"info\['final_observation'\], the final observation,: expected float32",
        ),
    ],
)
def test_a_final_observation_that_is_missing_or_another_thing_is_refused(options, text):
    env = make_vector_env(Others, options, [0, 1])
    env.reset([5, 6])
    step(env)
    with pytest.raises(EnvError, match=text):
        step(env)


def test_sub_environments_and_vectors_that_are_one_object_are_refused():
    one, vector = CountingEnv(), CountingVectorEnv(2)
    with pytest.raises(EnvError, match="has returned the same CountingEnv twice"):
        make_vector_env(lambda num_envs: SyncVectorEnv([lambda: one] * num_envs), {}, [0, 1])
    make_vector_env(lambda num_envs: vector, {}, [0, 1])
    with pytest.raises(EnvError, match="has returned the same CountingVectorEnv twice"):
        make_vector_env(lambda num_envs: vector, {}, [0, 1])


class Dying(CountingEnv):
    """May kill its process in the third step."""

    def __init__(self, dies: bool) -> None:
        super().__init__((100,))
        self.dies = dies

    def step(self, action: Any) -> Any:
        if self.dies and self.t == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(int(action))


def three_of_which_the_second_dies(num_envs: int) -> Any:
    return AsyncVectorEnv([functools.partial(Dying, b == 1) for b in range(num_envs)])


def test_a_process_that_is_killed_in_a_step_does_not_keep_the_others():
    env = make_vector_env(three_of_which_the_second_dies, {}, [0, 1, 2])
    processes = env.env.unwrapped.processes
    env.reset([1, 2, 3])
    for _ in range(2):
        step(env)
    with pytest.raises(
        EnvError, match=r"AsyncVectorEnv \(ranks 0 to 2\), its step 3: step: EOFError: (?s:.*) was killed"
    ):
        step(env)
    env.close()
    assert not any(process.is_alive() for process in processes)


def test_processes_in_the_middle_of_a_step_are_closed_in_order():
    env = make_vector_env(gymnasium.make_vec, {"id": "CartPole-v1", "vectorization_mode": "async"}, [4, 5])
    env.reset([1, 2])
    env.send(np.ones(2, int))
    processes = env.env.unwrapped.processes
    env.close()
    assert [process.exitcode for process in processes] == [0, 0]
