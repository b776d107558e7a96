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

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.envs import Env, EnvAdapter, EnvError, EnvStep, make_env
from rlpyt.envs.check import examine_env
from rlpyt.envs.making import layers_of
from rlpyt.logging import logger_context, read_progress
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler
from tests.envs.env_kinds import LENGTH, Broken, NoInfo, OldGym, OldGymWrapper, Rlpyt, Sampled, Unseeded
from tests.toy_envs import CountingEnv

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


def ends(env):
    """(terminated, truncated) of the last steps of two episodes."""
    seen = []
    for _ in range(2):
        env.reset()
        for t in range(LENGTH):
            _, _, terminated, truncated, info = env.step(0)
            assert (terminated or truncated) == (t == LENGTH - 1)
        seen.append((terminated, truncated, info))
    return seen


@pytest.mark.parametrize("EnvCls", [Sampled, OldGym, OldGymWrapper, Rlpyt, Unseeded])
def test_the_kind_of_end_is_kept(EnvCls):
    first, second = ends(make_env(EnvCls, {}))
    assert first[:2] == (True, False)
    assert second[:2] == (False, True)


def test_without_info_every_end_is_terminated():
    assert [end[:2] for end in ends(make_env(NoInfo, {}))] == [(True, False)] * 2


def test_named_tuple_info_becomes_a_dictionary():
    assert ends(make_env(Rlpyt, {}))[1][2] == {"timeout": True, "game_score": 3.0}


def test_time_limit_flag_counts_only_where_the_episode_ended():
    class Flagged(OldGym):
        def step(self, action):
            observation, reward, done, _ = super().step(action)
            return observation, reward, done, {"TimeLimit.truncated": True}

    env = make_env(Flagged, {})
    env.reset()
    flags = [env.step(0)[2:4] for _ in range(LENGTH)]
    assert flags == [(False, False)] * (LENGTH - 1) + [(False, True)]


def test_seeds_reach_environments_that_take_none_in_reset():
    for EnvCls in (OldGym, OldGymWrapper):
        env = make_env(EnvCls, {}, seed=7)
        inner = getattr(env.env, "env", env.env)
        env.reset()
        assert inner.seeds == [7]
        env.reset()
        assert inner.seeds == [7]
        env.reset(8)
        assert inner.seeds == [7, 8]
        assert env.seed == 8


def test_a_wrapper_that_passes_on_a_seed_is_given_one():
    class Passing(gymnasium.Wrapper):
        def reset(self, **kwargs):
            return self.env.reset(**kwargs)

    first = [EnvAdapter(Passing(Sampled())).reset(4)[0].tolist() for _ in range(2)]
    assert first[0] == first[1]


class Compiled:
    """A function of which nothing is known, as compiled code may have them."""

    __signature__ = "none"

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


@pytest.mark.parametrize(
    "way", [lambda reset: lambda seed=None, /: reset(seed), lambda reset: Compiled(lambda seed=None: reset(seed))]
)
def test_a_reset_may_take_its_seed_by_position_or_be_compiled(way):
    class Env(Sampled):
        def __init__(self):
            super().__init__()
            inner = super().reset

            def reset(seed):
                self.seeds.append(seed)
                return inner(seed=seed)

            self.seeds: list[int | None] = []
            self.reset = way(reset)  # type: ignore[method-assign]

    env = EnvAdapter(Env(), seed=7)
    env.reset()
    env.reset()
    assert env.env.seeds == [7, None]


def test_a_compiled_reset_without_a_seed_is_called_without_one():
    env = OldGym()
    env.reset = Compiled(env.reset)  # type: ignore[method-assign]
    EnvAdapter(env, seed=7).reset()
    assert env.seeds == [7]


def test_an_observation_that_is_a_pair_is_no_observation_and_info():
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Discrete(4)})])
    for EnvCls in (OldGym, Sampled):
        observation, _ = make_env(EnvCls, {"observation_space": pair}).reset(0)
        assert observation._fields == ("0", "1")
        assert observation["1"]._fields == ("x",)


def test_box_actions_are_clipped_and_discrete_ones_are_python_integers():
    env = make_env(Sampled, {"action_space": spaces.Box(-1, 1, (2,))})
    env.reset()
    env.step(np.array([3, -0.5], "f4"))
    assert env.env.actions[0].tolist() == [1.0, -0.5]
    env = make_env(Sampled, {"action_space": spaces.Discrete(3, start=4)})
    env.reset()
    env.step(np.int64(2))
    assert env.env.actions == [6]
    assert type(env.env.actions[0]) is int


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
        ("observation", np.array(["a", "b", "c"]), "TypeError: observation: expected float32"),
        ("observation", np.array([0, np.nan, 0], "f4"), "ValueError: observation must be finite"),
        ("observation", np.array([0, np.inf, 0], "f4"), "ValueError: observation must be finite"),
        ("reward", np.nan, "reward: expected a finite number, got nan"),
        ("reward", 1e300, "reward: expected a finite number, got 1e\\+300"),  # infinite in float32 rows
        ("reward", -np.inf, "reward: expected a finite number, got -inf"),
        ("reward", None, "TypeError: reward: expected one number, got NoneType"),
        ("reward", np.zeros(2), "TypeError: reward: expected one number, got ndarray"),
        ("reward", "a lot", "TypeError: reward: expected one number, got str 'a lot'"),
        ("info", 3, "TypeError: info: expected a dictionary, a named tuple or None, got int"),
        ("step", (1, 2, 3), r"expected \(observation, reward, terminated, truncated, info\), or the older"),
        ("step", None, r"expected \(observation, .* got NoneType"),
        ("step", ZeroDivisionError("oh no"), "ZeroDivisionError: oh no"),
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


def test_an_action_out_of_range_never_reaches_the_environment():
    env = make_env(Sampled, {})
    env.reset()
    with pytest.raises(EnvError, match="action: expected an index from 0 to 2, got 99"):
        env.step(99)
    assert env.env.actions == []


def test_environments_made_by_id_are_named_by_it():
    env = make_env(gymnasium.make, {"id": "CartPole-v1"})
    assert env.name == "CartPoleEnv CartPole-v1"


@pytest.mark.parametrize("spec", ["v1", object(), {"id": 3}])
def test_a_spec_of_the_environments_own_is_not_taken_for_an_id(spec):
    class Own:
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)
        reset = step = print

        def __init__(self):
            self.spec = spec

    assert make_env(Own, {}).name == "Own"


@pytest.mark.parametrize("reward", [np.array([1.5]), np.array([[1.5]], "f4"), np.array(1.5), np.float32(1.5)])
def test_a_reward_may_be_an_array_of_one_element(reward):
    env = make_env(Broken, {"what": "reward", "value": reward})
    env.reset()
    rewards = [env.step(np.zeros(2, "f4"))[1] for _ in range(3)]
    assert rewards[2] == 1.5
    assert type(rewards[2]) is float


def test_the_checker_of_old_gym_is_recognised():
    error = AttributeError("module 'numpy' has no attribute 'bool8'")
    env = make_env(Broken, {"what": "step", "value": error})
    env.reset()
    env.step(np.zeros(2)), env.step(np.zeros(2))
    with pytest.raises(EnvError, match=r"rlpyt\.envs\.gym_make"):
        env.step(np.zeros(2))


def test_what_cannot_be_made_says_what_was_being_made():
    with pytest.raises(EnvError, match=r"Making environment 4: make\(id='NoSuchEnv-v0'\) failed: .*NoSuchEnv"):
        make_env(gymnasium.make, {"id": "NoSuchEnv-v0"}, rank=4)
    with pytest.raises(EnvError, match=r"Making environment 0: Sampled\(wrong=1\) failed: TypeError"):
        make_env(Sampled, {"wrong": 1})
    with pytest.raises(EnvError, match="dict has no observation_space, action_space, reset, step"):
        make_env(dict, {})
    with pytest.raises(EnvError, match=r"observation: the space .* cannot be stored in rows"):
        make_env(Sampled, {"observation_space": spaces.Text(3)})


def test_bad_action_bounds_are_refused():
    class Reversed(Sampled):
        def __init__(self):
            super().__init__(action_space=spaces.Box(-1, 1, (2,)))
            self.action_space.high[0] = -2  # type: ignore[attr-defined]

    with pytest.raises(EnvError, match="Reversed: action_space: every bound must be a number with low <= high"):
        make_env(Reversed, {})


def test_close_is_called_where_there_is_one():
    class Closed(Sampled):
        closed = False

        def close(self):
            self.closed = True

    env = make_env(Closed, {})
    env.close()
    assert env.env.closed
    make_env(OldGym, {}).close()


def test_an_interrupt_is_not_wrapped():
    class Interrupted(Sampled):
        def step(self, action):
            raise KeyboardInterrupt

    env = make_env(Interrupted, {})
    env.reset()
    with pytest.raises(KeyboardInterrupt):
        env.step(0)


def steps_left(env: EnvAdapter, n: int) -> list[tuple[list[float], bool]]:
    """Return observation and truncation of the next n steps."""
    ends = [env.step(0)[::3] for _ in range(n)]
    return [(observation.tolist(), truncated) for observation, truncated in ends]


def test_the_time_limit_is_part_of_where_an_environment_stands():
    def limited() -> EnvAdapter:
        ordered = gymnasium.wrappers.OrderEnforcing(CountingEnv((100,)))
        env = EnvAdapter(gymnasium.wrappers.TimeLimit(ordered, 10), seed=1)
        env.reset()
        return env

    env, other = limited(), limited()
    steps_left(env, 7)
    other.load_state_dict(env.state_dict())
    after = steps_left(other, 3)
    assert after == steps_left(env, 3)
    assert [truncated for _, truncated in after] == [False, False, True]


def test_a_vector_environment_is_not_taken_for_one():
    with pytest.raises(EnvError, match=r"CartPoleVectorEnv is a vector environment; .* has a parameter num_envs"):
        make_env(lambda: gymnasium.make_vec("CartPole-v1", num_envs=2), {})


# ---- flags


@pytest.mark.parametrize(
    "true", [True, np.True_, 1, 1.0, np.int64(1), np.float32(1), np.array(True), np.array([1]), torch.tensor(True)]
)
@pytest.mark.parametrize("EnvCls", [Flags, OldFlags])
def test_flags_may_be_any_one_truth(EnvCls, true):
    env = make_env(EnvCls, {"flag": true})
    env.reset()
    terminated, truncated = env.step(0)[2:4]
    assert (terminated, truncated) == (True, False)
    assert type(terminated) is bool


@pytest.mark.parametrize(
    "flag",
    ["False", "", [False], (), (False, False), {"agent_0": False}, {}, 3.5, float("nan"), 2, np.zeros(2, bool)],
    ids=repr,
)
@pytest.mark.parametrize("EnvCls", [Flags, OldFlags])
def test_what_is_no_flag_is_refused_by_name(EnvCls, flag):
    env = make_env(EnvCls, {"flag": flag}, rank=3)
    env.reset()
    name = "done" if EnvCls is OldFlags else "terminated"
    with pytest.raises(EnvError, match=rf"\(rank 3, .*its step 1: .*TypeError: {name}: expected True or False, got "):
        env.step(0)


@pytest.mark.parametrize("EnvCls", [Flags, OldFlags])
def test_a_flag_of_none_is_false_and_the_check_says_so(EnvCls):
    env = make_env(EnvCls, {"flag": None})
    env.reset()
    assert env.step(0)[2:4] == (False, False)
    assert "terminated, truncated or done is None, which is taken for False" in examine_env(env, 0).advice["flags"]


def test_an_info_in_the_place_of_truncated_is_recognised():
    class Shifted(Flags):
        def step(self, action):
            observation, reward, done, _, info = super().step(action)
            return observation, reward, done, {"x": 1, **info}, {}

    env = make_env(Shifted, {"flag": False})
    env.reset()
    with pytest.raises(EnvError, match=r"truncated: expected True or False, got dict .* Is it the info\? The five are"):
        env.step(0)


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


def test_the_info_of_the_step_that_ended_counts():
    env = make_env(SelfResetting, {"key": "final_observation", "final_info": {"game_score": 7.0}})
    env.reset()
    assert [env.step(0)[4].get("game_score") for _ in range(3)] == [0.0, 0.0, 7.0]


def test_a_final_observation_that_is_none_or_comes_before_the_end_has_no_effect():
    class Odd(SelfResetting):
        def step(self, action):
            observation, *rest, info = super().step(action)
            info[self.key] = None if self.t == 0 else np.full(1, 9.0, "f4")
            return observation, *rest, info

    env = make_env(Odd, {"key": "final_obs"})
    env.reset()
    assert [int(env.step(0)[0][0]) for _ in range(3)] == [1, 2, 0]


def test_a_final_observation_must_be_in_the_space():
    class Raw(SelfResetting):
        def step(self, action):
            *rest, info = super().step(action)
            info[self.key] = np.zeros(4)
            return *rest, info

    env = make_env(Raw, {"key": "final_obs"})
    env.reset()
    env.step(0), env.step(0)
    with pytest.raises(
        EnvError, match=r"info\['final_obs'\], the final observation,: expected shape \(1,\), got \(4,\)"
    ):
        env.step(0)


def test_the_final_observation_of_a_dict_space_is_a_dict():
    class InDict(SelfResetting):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.observation_space = spaces.Dict(t=spaces.Box(0, 9, (1,)), n=spaces.Discrete(9))

        def observe(self):
            return {"t": np.full(1, self.t, "f4"), "n": self.t}

    env = make_env(InDict, {"key": "final_observation"})
    env.reset()
    assert [int(env.step(0)[0]["n"]) for _ in range(3)] == [1, 2, 3]


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


def test_an_iterator_gives_each_environment_a_value_of_its_own():
    ports = itertools.count(5000)
    assert [next(make_env(Popping, {"config": {}, "more": [ports]}).env.more[0]) for _ in range(3)] == [
        5000,
        5001,
        5002,
    ]


def test_an_attribute_env_may_lead_back():
    env = Sampled()
    vars(env)["env"] = SimpleNamespace(env=env)
    assert len(make_env(lambda: env, {}).layers) == 2


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
    """As lbforaging and rware: a Tuple of spaces, and a list of rewards."""

    n_agents = 2

    def __init__(self, action_space=None):
        super().__init__(spaces.Tuple([spaces.Discrete(2)] * 2), action_space)

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, [0, 0], *rest


@pytest.mark.parametrize(
    ("EnvCls", "text"),
    [
        (Parallel, "Parallel has several agents: observation_space and action_space is a method, as in PettingZoo"),
        (OpenSpiel, "OpenSpiel has several agents: it has num_players, and no observation_space and action_space"),
        (partial(Foraging, spaces.Tuple([spaces.Discrete(2)] * 2)), "it has n_agents, and its actions are a Tuple"),
    ],
)
def test_several_agents_are_refused_in_these_words(EnvCls, text):
    with pytest.raises(EnvError, match=rf"{text}; .*docs/howto/own_environment\.md, Several agents") as caught:
        make_env(EnvCls, {})
    assert str(caught.value).count("\n") == 0
    make_env(type("Unready", (Sampled,), {"agents": property(lambda self: 1 / 0)}), {})
    env = make_env(Foraging, {})  # the attribute alone says nothing
    env.reset()
    with pytest.raises(
        EnvError, match=r"reward: expected one number, got list \[0, 0\]\. One reward for each of several"
    ):
        env.step(0)


@pytest.mark.parametrize(
    ("what", "value", "text"),
    [
        ("reward", np.ones(2), r"reward: expected one number.* mo_gymnasium\.wrappers\.LinearReward"),
        ("reward", "1", "reward: expected one number, got str '1'"),
        ("step", (0, 1.0, False, False, {}, {}), r"got tuple of 6 values: int, float, bool, bool, dict, dict\."),
        ("step", [0, 1.0, False, False, {}], "got list of 5 values"),
        ("step", AssertionError(), r"AssertionError: no message \(.*env_kinds\.py:\d+ in _wrong\)"),
        ("step", gymnasium.error.NameNotFound("no Own"), r"Give 'package:Id-v0', or import the package at the top"),
        ("step", AssertionError("daemonic processes are not allowed to have children"), "Use SerialSampler"),
    ],
)
def test_messages_say_where_and_what_to_do(what, value, text):
    env = make_env(Broken, {"what": what, "value": value})
    env.reset()
    env.step(np.zeros(2)), env.step(np.zeros(2))
    with pytest.raises(EnvError, match=text):
        env.step(np.zeros(2))


def test_a_seed_method_without_a_number_is_called_without_one():
    class Own(OldGym):
        def seed(self):  # type: ignore[override]
            self.seeds.append(-1)

    env = make_env(Own, {}, seed=7)
    env.reset()
    assert env.env.seeds == [-1]


class ThreeMethods:
    """An environment with `reset`, `step` and `seed` alone, as a wrapper for rlmodels has them: no info, no seed."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
        self.n_seeds = 0

    def seed(self):
        self.n_seeds += 1

    def reset(self):
        self.t = 0
        return np.zeros(2, np.float32)

    def step(self, action):
        self.t += 1
        return np.full(2, self.t / 8, np.float32), float(action), self.t == 4, None


def test_a_run_with_an_environment_of_three_methods(tmp_path):
    algo = DQN(batch_size=8, min_steps_learn=20, replay_size=100, replay_ratio=2, eps_steps=50)
    sampler = SerialSampler(ThreeMethods, {}, batch_T=5, batch_B=2, eval_n_envs=2, eval_max_trajectories=4)
    agent = DqnAgent()
    with logger_context(tmp_path, run_ID=0):
        MinibatchRlEval(algo, agent, sampler, n_steps=60, log_interval_steps=30, seed=0).train()
    progress = read_progress(tmp_path / "run_0")
    assert progress["LengthAverage"] == [4, 4, 4]
    assert progress["Diagnostics/CumUpdates"][-1] > 0
    env = ThreeMethods()
    assert [(info.Length, info.Return) for info in agent.play(env, n_episodes=2)] == [(4, pytest.approx(4, abs=4))] * 2
    assert env.n_seeds == 2
