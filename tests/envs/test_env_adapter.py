from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlpyt.envs import Env, EnvAdapter, EnvError, EnvStep, make_env
from tests.envs.env_kinds import LENGTH, Broken, NoInfo, OldGym, OldGymWrapper, Rlpyt, Sampled, Unseeded
from tests.toy_envs import CountingEnv


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
        assert caught.value.__cause__ is value


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
