from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rlpyt.envs import EnvError, VectorEnvAdapter, check, check_env, check_vector_env, make_env
from tests.envs.env_kinds import Sampled


class Informed(Sampled):
    """Gives another info at every step, in turn."""

    def __init__(self, infos):
        super().__init__()
        self.infos, self.k = infos, 0

    def step(self, action):
        self.k += 1
        return *super().step(action)[:4], self.infos[self.k % len(self.infos)]


def test_numeric_info_of_fixed_shape_is_given_as_examples():
    infos = [
        {"score": 1, "ale.lives": 3, "flag": True, "vector": [0.5, 1], "text": "a", "grows": [1]},
        {
            "score": 0.5,
            "ale.lives": None,
            "flag": np.bool_(False),
            "vector": np.zeros(2),
            "grows": [1, 2],
            "none": None,
        },
        {"object": object(), "seldom": np.int32(4), "ragged": [[1], [1, 2]], "nested": {"x": 1}},
    ]
    examples = check_env(make_env(Informed, {"infos": infos}), seed=0)
    found = {key: (x.dtype.name, x.shape, x.sum()) for key, x in examples.info.items()}
    assert found == {
        "score": ("float32", (), 0),
        "ale.lives": ("int64", (), 0),
        "flag": ("bool", (), 0),
        "vector": ("float32", (2,), 0),
        "seldom": ("int64", (), 0),
    }
    assert set(examples.ignored_info) == {"text", "grows", "none", "object", "ragged", "nested"}


class OutOfBounds(Sampled):
    def __init__(self, space, value):
        super().__init__(space)
        self.value = value

    def step(self, action):
        return self.value, *super().step(action)[1:]


def test_integers_out_of_bounds_are_refused():
    space = spaces.Dict(board=spaces.Box(0, 2, (2,), np.int32))
    env = make_env(OutOfBounds, {"space": space, "value": {"board": np.array([0, 3], "i4")}}, rank=5)
    with pytest.raises(
        EnvError, match=r"OutOfBounds \(rank 5\), its step 1: observation\['board'\] has values from 0 to 3, "
    ):
        check_env(env, seed=0)


def test_floats_out_of_bounds_are_warned_of_once():
    env = make_env(OutOfBounds, {"space": spaces.Box(-1, 1, (2,)), "value": np.array([0, 1.5], "f4")})
    with pytest.warns(
        UserWarning, match=r"observation has values from 0.0 to 1.5, expected within Box\(-1.0, 1.0"
    ) as caught:
        check_env(env, seed=0)
    assert len([text for text in caught if "two plays" not in str(text.message)]) == 1  # see below


@pytest.mark.filterwarnings("ignore:.*two plays")  # the toy remembers how many episodes it has begun
def test_images_with_the_channels_last_are_warned_of():
    images = spaces.Dict(image=spaces.Box(0, 255, (7, 7, 3), np.uint8), direction=spaces.Discrete(4))
    text = r"observation\['image'\] has the shape \(7, 7, 3\), and .*\[channels, height, width\].*ChannelsFirst"
    with pytest.warns(UserWarning, match=text):
        check_env(make_env(Sampled, {"observation_space": images}), seed=0)
    with pytest.warns(UserWarning, match=text):
        check_vector_env(VectorEnvAdapter(SyncVectorEnv([lambda: Sampled(images)]), [0]), seed=0)


def test_bounds_of_float64_are_kept_in_float32():
    env = make_env(OutOfBounds, {"space": spaces.Box(-0.1, 0.1, (1,), np.float64), "value": np.array([0.1])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*two plays")
        check_env(env, seed=0)


def test_the_first_random_steps_are_taken_twice():
    env = make_env(Sampled, {"action_space": spaces.Box(-1, 1, (2,))})
    check_env(env, seed=3, n_steps=8)
    actions = np.array(env.env.actions).tolist()
    assert actions[:2] == actions[6:]
    assert len({tuple(action) for action in actions}) == 6


class Walk:
    """Random walk whose numbers come from a generator.

    Args:
        seeded: whether `reset` seeds it; "resets" where only seeded resets do, and others draw from the system.
        remembers: whether observations show how many episodes there were.
    """

    observation_space, action_space = spaces.Box(-100, 100, (2,), np.float32), spaces.Discrete(2)

    def __init__(self, seeded=True, remembers=False):
        self.seeded, self.remembers, self.n = seeded, remembers, 0

    def reset(self, seed=None):
        self.n += 1
        self.x = 0.0
        if seed is not None or self.seeded != True:  # noqa: E712
            self.rng = np.random.default_rng(seed if self.seeded else None)
            self.x = self.rng.normal() if self.seeded == "resets" else 0.0
        return self.observe(), {}

    def step(self, action):
        self.x += self.rng.normal()
        return self.observe(), 0.0, False, False, {}

    def observe(self):
        return np.array([self.x, self.n if self.remembers else 0], np.float32)


class Constructed(Walk):
    """Takes its seed when it is made, and no other."""

    def __init__(self, seed=None):
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def reset(self):  # type: ignore[override]
        self.x = 0.0
        return self.observe()


class WithEnvSeed(Constructed):
    def __init__(self, env_seed):
        super().__init__(env_seed)


@pytest.mark.parametrize(
    ("EnvCls", "kwargs", "text"),
    [
        (Walk, {}, None),
        (Walk, {"seeded": False}, "two plays with seed 0 and the same actions differ at step 1"),
        (Walk, {"seeded": "resets"}, "two plays with seed 0 and the same actions differ at a reset without a seed"),
        (Walk, {"remembers": True}, "two resets with seed 0 gave different .* If it remembers .* runs do repeat"),
        (
            Constructed,
            {"seed": 1},
            r"it is random, and neither reset\(seed=...\) nor a method seed\(number\) .* env_seed",
        ),
        (WithEnvSeed, {}, None),
    ],
)
def test_whether_a_seed_repeats_all_of_an_episode(EnvCls, kwargs, text):
    if text is not None:
        with pytest.warns(UserWarning, match=text) as caught:
            check_env(make_env(EnvCls, kwargs), seed=0)
        assert len(caught) == 1
        if EnvCls is Walk:
            with pytest.warns(UserWarning, match=text.replace("seed 0", "the same seeds").replace("a seed", "seeds")):
                check_vector_env(VectorEnvAdapter(WalkVector(2, **kwargs), [0, 1]), seed=0)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_env(EnvCls, kwargs), seed=0)
        if EnvCls is Walk:
            check_vector_env(VectorEnvAdapter(WalkVector(2, **kwargs), [0, 1]), seed=0)


class WalkVector(VectorEnv):
    """Walks next to each other, whose episodes do not end."""

    def __init__(self, num_envs, **kwargs):
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs, self.envs = num_envs, [Walk(**kwargs) for _ in range(num_envs)]
        self.single_observation_space, self.single_action_space = Walk.observation_space, Walk.action_space

    def reset(self, *, seed=None, options=None):
        seeds = seed or [None] * self.num_envs
        return np.stack([env.reset(one)[0] for env, one in zip(self.envs, seeds, strict=True)]), {}

    def step(self, actions):
        no = np.zeros(self.num_envs, bool)
        return np.stack([env.step(0)[0] for env in self.envs]), np.zeros(self.num_envs), no, no, {}


def test_a_slow_environment_is_not_played_twice(monkeypatch):
    monkeypatch.setattr(check, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(check, "_REPEAT_SECONDS", -1.0)
    env = make_env(Walk, {"remembers": False})
    check_env(env, seed=0, n_steps=6)
    assert env.env.n == 2
    assert env.n_steps == 5


@pytest.mark.parametrize("name", ["NormalizeObservation", "NormalizeReward"])
def test_running_statistics_of_a_wrapper_are_not_taken_for_a_lost_seed(name):
    def make(id="Pendulum-v1"):
        return getattr(gymnasium.wrappers, name)(gymnasium.make(id))

    with pytest.warns(UserWarning, match=f"{name} goes on with its running statistics.*; runs do repeat") as caught:
        check_env(make_env(make, {}), seed=0)
    assert len(caught) == 1
    assert ("Returns in the log are those of the normalised rewards" in str(caught[0])) == (name == "NormalizeReward")
    vector = getattr(gymnasium.wrappers.vector, name)(SyncVectorEnv([make, make]))
    with pytest.warns(UserWarning, match="runs do repeat") as caught:
        check_vector_env(VectorEnvAdapter(vector, [0, 1]), seed=0)
    assert len(caught) == 1
