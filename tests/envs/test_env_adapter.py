from __future__ import annotations

import itertools
import math
import threading
import time
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.envs import Env, EnvAdapter, EnvError, EnvStep, make_env
from rlpyt.envs.check import examine_env
from rlpyt.envs.making import layers_of
from tests.envs.env_kinds import LENGTH, Broken, NoInfo, OldGym, OldGymWrapper, Rlpyt, Sampled, Unseeded

OldTimeLimitInfo = namedtuple("OldTimeLimitInfo", ["traj_done"])


class Flags(Sampled):
    """Returns what it was given for `terminated`."""

    def __init__(self, flag, info=()):
        super().__init__()
        self.flag, self.info, self.n_resets = flag, info, 0

    def reset(self, *, seed=None, options=None):
        self.n_resets += 1
        return super().reset(seed=seed)

    def step(self, action):
        return self.observation_space.sample(), 1.0, self.flag, False, dict(self.info)


class OldFlags(Flags):
    """Returns what it was given for `done`."""

    def step(self, action):
        return self.observation_space.sample(), 1.0, self.flag, self.info or None


class SelfResetting(gymnasium.Env):
    """Episodes of three steps; the step that ends one returns the first observation of the next."""

    def __init__(self, key, old=False, final_info=None):
        self.observation_space, self.action_space = spaces.Box(0, 9, (1,)), spaces.Discrete(2)
        self.key, self.old, self.final_info = key, old, final_info

    def observe(self):
        return np.full(1, self.t, "f4")

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        observation, cut, info = self.observe(), self.t == 3, {"game_score": 0.0}
        if cut:
            info[self.key] = observation
            if self.final_info is not None:
                info["final_info"] = self.final_info
            observation, _ = self.reset()
        if self.old:
            return observation, 1.0, cut, {**info, "TimeLimit.truncated": cut}
        return observation, 1.0, False, cut, info


class Quitting(Sampled):
    """Raises something."""

    def __init__(self, where, error):
        super().__init__()
        self.where, self.error = where, error
        self.at("init")

    def at(self, where):
        if where == self.where:
            raise self.error

    def reset(self, *, seed=None, options=None):
        self.at("reset")
        return super().reset(seed=seed)

    def step(self, action):
        self.at("step")
        return super().step(action)


def flagged(env: OldGym) -> OldGym:
    """Let an environment say of every step that a limit has ended it."""
    step = env.step
    env.step = lambda action: (*step(action)[:3], {"TimeLimit.truncated": True})  # type: ignore[method-assign]
    return env


@pytest.mark.parametrize(
    ("EnvCls", "first"),
    [
        *((EnvCls, (True, False)) for EnvCls in (Sampled, OldGym, OldGymWrapper, Rlpyt, Unseeded)),
        (NoInfo, None),  # every end is terminated
        (lambda: flagged(OldGym()), (False, True)),  # the flag counts only where the episode ended
    ],
)
def test_the_kind_of_end_is_kept(EnvCls, first):
    env, seen = make_env(EnvCls, {}), []
    for _ in range(2):
        env.reset()
        steps = [env.step(0) for _ in range(LENGTH)]
        assert not any(step[2] or step[3] for step in steps[:-1])
        seen.append(steps[-1][2:4])
    assert seen == ([(True, False)] * 2 if first is None else [first, (False, True)])
    if EnvCls is Rlpyt:
        assert steps[-1][4] == {"timeout": True, "game_score": 3.0}, "of a named tuple"


class Compiled:
    """A function of which nothing is known, as compiled code may have them."""

    __signature__ = "none"

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class Passing(gymnasium.Wrapper):
    def reset(self, **kwargs):
        return self.env.reset(**kwargs)


class SeedsOfItsOwn(OldGym):
    def seed(self):  # type: ignore[override]
        self.seeds.append(-1)


def recording(way):
    """Return an environment that keeps the seeds of its resets, which are called in some way."""
    env: Any = Sampled()
    inner, env.seeds = env.reset, []

    def reset(seed):
        env.seeds.append(seed)
        return inner(seed=seed)

    env.reset = way(reset)
    return env


def compiled_without_a_seed():
    env = OldGym()
    env.reset = Compiled(env.reset)  # type: ignore[method-assign]
    return env


@pytest.mark.parametrize(
    ("make", "seeds"),
    [
        (OldGym, [7, 8]),
        (OldGymWrapper, [7, 8]),
        (compiled_without_a_seed, [7, 8]),
        (SeedsOfItsOwn, [-1, -1]),
        (lambda: recording(lambda reset: lambda seed=None: reset(seed)), [7, None, 8]),
        (lambda: recording(lambda reset: Compiled(lambda seed=None: reset(seed))), [7, None, 8]),
        (lambda: Passing(recording(lambda reset: lambda seed=None: reset(seed))), [7, None, 8]),
    ],
)
def test_seeds_come_in_the_way_that_the_environment_takes(make, seeds):
    env = EnvAdapter(make(), seed=7)
    env.reset(), env.reset(), env.reset(8)
    assert env.seed == 8
    assert vars(env.layers[-1])["seeds"] == seeds


def test_an_observation_that_is_a_pair_is_no_observation_and_info():
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Discrete(4)})])
    for EnvCls in (OldGym, Sampled):
        observation, _ = make_env(EnvCls, {"observation_space": pair}).reset(0)
        assert observation._fields == ("0", "1")
        assert observation["1"]._fields == ("x",)


class LostLife(Env):
    """A game of two lives of three steps, in the predecessor's way: done at each, traj_done at the second."""

    def __init__(self):
        self._observation_space, self._action_space = spaces.Box(0, 99, (1,)), spaces.Discrete(2)
        self.n_resets = self.t = 0

    def reset(self):
        self.n_resets += 1
        self.t = 0
        return np.zeros(1)

    def step(self, action):
        self.t += 1
        return EnvStep(np.array([self.t], "f4"), 1.0, self.t % 3 == 0, {"traj_done": self.t == 6})


def test_a_game_of_the_predecessor_goes_on_after_a_lost_life():
    env = make_env(LostLife, {})
    env.reset()
    for _ in range(3):
        observation, _, terminated, _, _ = env.step(0)
    assert terminated
    assert observation == 3
    observation, _ = env.reset()
    assert observation == 3
    assert env.env.n_resets == 1
    for t in range(4, 7):
        observation, _, terminated, _, _ = env.step(0)
        assert observation == t
    assert terminated
    assert env.reset()[0] == 0
    assert env.env.n_resets == 2
    for _ in range(3):
        env.step(0)
    assert env.reset(seed=1)[0] == 0
    assert env.env.n_resets == 3
    # A game goes on once, and not after a seeded reset.
    assert env.reset()[0] == 0
    assert env.env.n_resets == 4
    for _ in range(3):
        env.step(0)
    assert [int(env.reset()[0][0]) for _ in range(2)] == [3, 0]
    assert env.env.n_resets == 5


@pytest.mark.filterwarnings("ignore:invalid value encountered in dot")
@pytest.mark.parametrize(
    ("what", "value", "text"),
    [
        ("observation", np.zeros(4, "f4"), r"ValueError: observation: expected shape \(3,\), got \(4,\)"),
        ("observation", None, "TypeError: observation: expected float32 .* got NoneType"),
        ("observation", np.array([0, np.nan, 0], "f4"), "ValueError: observation must be finite"),
        ("reward", np.nan, "reward: expected a finite number, got nan"),
        ("reward", 1e300, "reward: expected a finite number, got 1e\\+300"),  # infinite in float32 rows
        ("reward", None, "TypeError: reward: expected one number, got NoneType"),
        (
            "reward",
            np.zeros(2),
            r"TypeError: reward: expected one number, got ndarray.* mo_gymnasium\.wrappers\.Linear",
        ),
        ("reward", "1", "TypeError: reward: expected one number, got str '1'"),
        ("reward", [0, 0], r"expected one number, got list \[0, 0\]\. One reward for each of several"),
        ("info", 3, "TypeError: info: expected a dictionary, a named tuple or None, got int"),
        ("step", (1, 2, 3), r"expected \(observation, reward, terminated, truncated, info\), or the older"),
        ("step", None, r"expected \(observation, .* got NoneType"),
        ("step", (0, 1.0, False, False, {}, {}), r"got tuple of 6 values: int, float, bool, bool, dict, dict\."),
        ("step", [0, 1.0, False, False, {}], "got list of 5 values"),
        ("step", (np.zeros(3, "f4"), 1.0, False, {"x": 1}, {}), r"truncated: expected .* got dict .* Is it the info\?"),
        ("step", ZeroDivisionError("oh no"), "ZeroDivisionError: oh no"),
        ("step", AssertionError(), r"AssertionError: no message \(.*env_kinds\.py:\d+ in _wrong\)"),
        ("step", AttributeError("module 'numpy' has no attribute 'bool8'"), r"rlpyt\.envs\.gym_make"),
        ("step", gymnasium.error.NameNotFound("no Own"), r"Give 'package:Id-v0', or import the package at the top"),
    ],
)
def test_a_broken_step_is_reported_with_everything(what, value, text):
    env = make_env(Broken, {"what": what, "value": value}, rank=11)
    env.reset(seed=42)
    for _ in range(2):
        env.step(np.zeros(2, "f4"))
    with pytest.raises(EnvError, match=text) as caught:
        env.step(np.array([0.25, 0], "f4"))
    for part in ("Broken (rank 11, seed 42), its step 3", "step with action array([0.25, 0."):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, Exception)
    if isinstance(value, Exception):
        assert repr(caught.value.__cause__) == repr(value)  # the environment has a copy of it


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (RuntimeError("no display"), "RuntimeError: no display"),
        ((np.zeros(2, "f4"), {}), r"observation: expected shape \(3,\), got \(2,\)"),
        (None, "observation: expected float32"),
    ],
)
def test_a_broken_reset_is_reported(value, text):
    env = make_env(Broken, {"what": "reset", "value": value}, rank=2)
    with pytest.raises(EnvError, match=rf"Broken \(rank 2, seed 9\), its step 0: reset: .*{text}"):
        env.reset(seed=9)


def test_a_reward_may_be_an_array_of_one_element():
    for value in (np.array([1.5]), np.array([[1.5]], "f4"), np.array(1.5), np.float32(1.5)):
        env = make_env(Broken, {"what": "reward", "value": value})
        env.reset()
        reward = [env.step(np.zeros(2, "f4"))[1] for _ in range(3)][2]
        assert (reward, type(reward)) == (1.5, float)


class Reversed(Sampled):
    def __init__(self):
        super().__init__(action_space=spaces.Box(-1, 1, (2,)))
        self.action_space.high[0] = -2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("EnvCls", "env_kwargs", "text"),
    [
        (
            gymnasium.make,
            {"id": "NoSuchEnv-v0"},
            r"Making environment 4: make\(id='NoSuchEnv-v0'\) failed: .*NoSuchEnv",
        ),
        (Sampled, {"wrong": 1}, r"Making environment 4: Sampled\(wrong=1\) failed: TypeError"),
        (dict, {}, "dict has no observation_space, action_space, reset, step"),
        (Sampled, {"observation_space": spaces.Text(3)}, r"observation: the space .* cannot be stored in rows"),
        (Reversed, {}, "Reversed: action_space: every bound must be a number with low <= high"),
        (
            partial(gymnasium.make_vec, "CartPole-v1", num_envs=2),
            {},
            r"CartPoleVectorEnv is a vector environment; .* has a parameter num_envs",
        ),
    ],
)
def test_what_cannot_be_made_says_what_was_being_made(EnvCls, env_kwargs, text):
    with pytest.raises(EnvError, match=text):
        make_env(EnvCls, env_kwargs, rank=4)


@pytest.mark.parametrize("spec", ["v1", object(), {"id": 3}])
def test_a_spec_of_the_environments_own_is_not_taken_for_an_id(spec):
    class Own:
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)
        reset = step = print

        def __init__(self):
            self.spec = spec

    assert make_env(Own, {}).name == "Own"
    assert make_env(gymnasium.make, {"id": "CartPole-v1"}).name == "CartPoleEnv CartPole-v1"


# ---- flags


@pytest.mark.parametrize(
    "true", [True, np.True_, 1, 1.0, np.int64(1), np.float32(1), np.array(True), np.array([1]), torch.tensor(True)]
)
def test_flags_may_be_any_one_truth(true):
    for EnvCls in (Flags, OldFlags):
        env = make_env(EnvCls, {"flag": true})
        env.reset()
        terminated, truncated = env.step(0)[2:4]
        assert (terminated, type(terminated), truncated) == (True, bool, False)


@pytest.mark.parametrize(
    "flag",
    ["False", "", [False], (), {"agent_0": False}, {}, 3.5, float("nan"), 2, np.zeros(2, bool)],
    ids=repr,
)
def test_what_is_no_flag_is_refused_by_name(flag):
    for EnvCls, name in ((Flags, "terminated"), (OldFlags, "done")):
        env = make_env(EnvCls, {"flag": flag}, rank=3)
        env.reset()
        with pytest.raises(
            EnvError, match=rf"\(rank 3, .*its step 1: .*TypeError: {name}: expected True or False, got "
        ):
            env.step(0)


def test_a_flag_of_none_is_false_and_the_check_says_so():
    for EnvCls in (Flags, OldFlags):
        env = make_env(EnvCls, {"flag": None})
        env.reset()
        assert env.step(0)[2:4] == (False, False)
        assert "terminated, truncated or done is None" in examine_env(env, 0).advice["flags"]


@pytest.mark.parametrize("key", ["timeout", "TimeLimit.truncated", "traj_done"])
def test_flags_in_info_are_checked_too(key):
    for EnvCls in (OldFlags, Flags) if key == "traj_done" else (OldFlags,):
        env = make_env(EnvCls, {"flag": True, "info": {key: 3.5}})
        env.reset()
        with pytest.raises(EnvError, match=rf"info\['{key}'\]: expected True or False, got float 3\.5"):
            env.step(0)
        env = make_env(EnvCls, {"flag": True, "info": {key: None}})
        env.reset()
        *_, info = env.step(0)
        assert info.get("traj_done", True) in (True, None)
        assert EnvCls is OldFlags or info["traj_done"] is True


@pytest.mark.parametrize("info", [{"traj_done": True}, OldTimeLimitInfo(True)], ids=["dict", "tuple"])
def test_an_old_time_limit_that_says_traj_done_alone_truncates(info):
    env = make_env(OldFlags, {"flag": False, "info": info})
    env.reset()
    assert env.step(0)[2:4] == (False, True)
    env.reset()
    assert env.env.n_resets == 2


# ---- final observations of environments that reset themselves


@pytest.mark.parametrize("key", ["final_observation", "final_obs", "terminal_observation", "closing_observation"])
@pytest.mark.parametrize("old", [False, True])
def test_the_final_observation_is_read_from_info(key, old):
    env = make_env(SelfResetting, {"key": key, "old": old})
    env.reset()
    for _ in range(2):
        seen = [env.step(0) for _ in range(3)]
        assert [step[0].tolist() for step in seen] == [[1], [2], [3]]
        assert [step[2:4] for step in seen] == [(False, False)] * 2 + [(False, True)]
        assert env.reset()[0] == 0


class Odd(SelfResetting):
    """Gives something else under the name of the final observation, before the end and at it."""

    def __init__(self, before, at_the_end):
        super().__init__("final_obs")
        self.before, self.at_the_end = before, at_the_end

    def step(self, action):
        observation, *rest, info = super().step(action)
        info[self.key] = self.at_the_end if self.t == 0 else self.before
        return observation, *rest, info


class InDict(SelfResetting):
    def __init__(self):
        super().__init__("final_observation", final_info={"game_score": 7.0})
        self.observation_space = spaces.Dict(t=spaces.Box(0, 9, (1,)), n=spaces.Discrete(9))

    def observe(self):
        return {"t": np.full(1, self.t, "f4"), "n": self.t}


def test_the_final_observation_is_checked_and_its_info_counts():
    env = make_env(Odd, {"before": np.full(1, 9.0, "f4"), "at_the_end": None})  # which have no effect
    env.reset()
    assert [int(env.step(0)[0][0]) for _ in range(3)] == [1, 2, 0]
    env = make_env(InDict, {})
    env.reset()
    steps = [env.step(0) for _ in range(3)]
    assert [(int(step[0]["n"]), step[4].get("game_score")) for step in steps] == [(1, 0.0), (2, 0.0), (3, 7.0)]
    env = make_env(Odd, {"before": None, "at_the_end": np.zeros(4)})
    env.reset()
    env.step(0), env.step(0)
    with pytest.raises(
        EnvError, match=r"info\['final_obs'\], the final observation,: expected shape \(1,\), got \(4,\)"
    ):
        env.step(0)


# ---- environments that end the process


def make_reset_step(where, error):
    env = make_env(Quitting, {"where": where, "error": error})
    env.reset()
    env.step(0)


class RustPanic(BaseException):
    """As the panic of a library written in Rust is: no Exception."""


@pytest.mark.parametrize("error", [SystemExit(), SystemExit(0), SystemExit("closed"), RustPanic("index out of bounds")])
@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_what_would_end_the_process_is_an_error_of_the_environment(where, error):
    with pytest.raises(EnvError, match=rf"{type(error).__name__}: .* \(.*env_adapter\.py:\d+ in "):
        make_reset_step(where, error)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(128 + 15)])
@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_an_end_that_was_asked_for_stays_one(where, error):
    with pytest.raises(type(error)):
        make_reset_step(where, error)


# ---- arguments


class Popping(Sampled):
    """Takes its settings out of what it was given."""

    def __init__(self, config, more=None):
        super().__init__()
        self.reward = config.pop("reward", 0.0)
        self.more = more


def test_every_environment_gets_arguments_of_its_own():
    config = {"reward": 1.0, "nested": [{"x": 1}]}
    for EnvCls, env_kwargs in ((Popping, {"config": config}), (partial(Popping, config), {})):
        assert [make_env(EnvCls, env_kwargs).env.reward for _ in range(2)] == [1.0, 1.0]
    assert config == {"reward": 1.0, "nested": [{"x": 1}]}
    ports = itertools.count(5000)
    assert [next(make_env(Popping, {"config": {}, "more": [ports]}).env.more[0]) for _ in range(2)] == [5000, 5001]


def test_what_cannot_be_copied_or_is_large_is_handed_on():
    lock, large, own = threading.Lock(), np.zeros(2**24, np.uint8), np.zeros(3)
    holder = SimpleNamespace(large=large, own=own)
    config = {"lock": lock, "module": math, "large": large, "own": own, "holder": holder, "both": [own, lock]}
    more = make_env(Popping, {"config": {}, "more": config}).env.more
    assert more["lock"] is lock
    assert more["module"] is math
    assert more["large"] is large
    assert more["holder"] is not holder
    assert more["holder"].large is large
    assert more["own"] is not own
    assert more["own"] is more["both"][0] is more["holder"].own
    assert more["both"][1] is lock


def test_the_largest_of_many_parts_are_handed_on_until_the_rest_is_small():
    data = {f"{i}": np.zeros(2**20 + i, np.uint8) for i in range(20)}
    more = make_env(Popping, {"config": {}, "more": data}).env.more
    assert more is not data
    assert [key for key in data if more[key] is data[key]] == ["15", "16", "17", "18", "19"]


def test_a_table_of_lists_is_copied_in_a_time_that_grows_with_its_rows():
    table = [[float(row), "x"] for row in range(20_000)]
    start = time.process_time()
    more = make_env(Popping, {"config": {}, "more": table}).env.more
    assert more == table
    assert more[0] is not table[0]
    assert time.process_time() - start < 10, "0.1 s, and 50 s where each part copies what stands for all others"


@dataclass
class WithDefault:
    """Wrapper whose class has an attribute `env` too."""

    env: Any = None

    def __getattr__(self, name):
        return getattr(self.env, name)


class WithSlot:
    __slots__ = ("env",)

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)


def test_the_environment_inside_is_found_by_any_attribute_env_but_a_property():
    one = Sampled()
    for Wrapper in (WithDefault, WithSlot):
        env = Wrapper(one)
        assert list(map(id, layers_of(env))) == [id(env), id(one)]
    asking = type("Asking", (Sampled,), {"env": property(lambda self: print(self.unset))})()
    assert layers_of(asking) == [asking]
    shared = type("Shared", (Sampled,), {"env": one})()
    assert layers_of(shared) == [shared]
    vars(one)["env"] = SimpleNamespace(env=one)
    assert len(layers_of(one)) == 2, "it may lead back"


def test_the_same_environment_twice_is_refused():
    one = Sampled()
    make_env(lambda: one, {}).close()
    for EnvCls in (lambda: one, lambda: gymnasium.wrappers.TimeLimit(one, 5), lambda: WithDefault(one)):
        with pytest.raises(EnvError, match=r"EnvCls has returned the same Sampled twice\..* a new one at each call"):
            make_env(EnvCls, {})
    for _ in range(50):  # the memory of an environment that is gone may be given to the next one
        make_env(Sampled, {})


class Seeded(Sampled):
    def __init__(self, env_seed):
        super().__init__()
        self.env_seed = env_seed


def test_a_parameter_env_seed_is_given_a_number():
    assert make_env(Seeded, {}, rank=4, env_seed=9).env.env_seed == 9
    assert make_env(Seeded, {"env_seed": 1}, env_seed=9).env.env_seed == 1
    assert make_env(partial(Seeded, env_seed=2), {}, env_seed=9).env.env_seed == 2
    assert [make_env(Seeded, {}, rank=4, seed=seed).env.env_seed for seed in (None, 6)] == [4, 6]
    assert make_env(lambda **kwargs: Popping(kwargs), {}, env_seed=9).env.reward == 0.0


# ---- several agents, and messages


class Parallel:
    """As PettingZoo: spaces by agent."""

    possible_agents = ("a", "b")
    reset = step = print

    def observation_space(self, agent):
        return spaces.Discrete(2)

    action_space = observation_space


class OpenSpiel:
    num_players = 2
    reset = step = print


class Foraging(Sampled):
    """As lbforaging and rware: a Tuple of spaces."""

    n_agents = 2

    def __init__(self):
        super().__init__(action_space=spaces.Tuple([spaces.Discrete(2)] * 2))


@pytest.mark.parametrize(
    ("EnvCls", "text"),
    [
        (Parallel, "Parallel has several agents: observation_space and action_space is a method, as in PettingZoo"),
        (OpenSpiel, "OpenSpiel has several agents: it has num_players, and no observation_space and action_space"),
        (Foraging, "it has n_agents, and its actions are a Tuple"),
    ],
)
def test_several_agents_are_refused_in_these_words(EnvCls, text):
    with pytest.raises(EnvError, match=rf"{text}; .*players_make_vec, see docs/howto/several_players\.md") as caught:
        make_env(EnvCls, {})
    assert str(caught.value).count("\n") == 0
    make_env(type("Unready", (Sampled,), {"agents": property(lambda self: 1 / 0)}), {})
    make_env(type("Alone", (Sampled,), {"n_agents": 2}), {})  # the attribute alone says nothing
