from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from rlpyt.envs import EnvError, VectorEnvAdapter, check_env, check_vector_env, make_env
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
    assert len(caught) == 1


def test_images_with_the_channels_last_are_warned_of():
    def images(*shape: int) -> spaces.Dict:
        return spaces.Dict(image=spaces.Box(0, 255, shape, np.uint8), direction=spaces.Discrete(4))

    text = r"observation\['image'\] has the shape \(7, 7, 3\), and .*\[channels, height, width\].*ChannelsFirst"
    with pytest.warns(UserWarning, match=text):
        check_env(make_env(Sampled, {"observation_space": images(7, 7, 3)}), seed=0)
    with pytest.warns(UserWarning, match=text):
        check_vector_env(VectorEnvAdapter(SyncVectorEnv([lambda: Sampled(images(7, 7, 3))]), [0]), seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in ((3, 7, 7), (16, 4, 4), (1, 84, 84)):
            check_env(make_env(Sampled, {"observation_space": images(*shape)}), seed=0)


def test_bounds_of_float64_are_kept_in_float32():
    env = make_env(OutOfBounds, {"space": spaces.Box(-0.1, 0.1, (1,), np.float64), "value": np.array([0.1])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, seed=0)


def test_the_random_steps_repeat():
    actions = []
    for _ in range(2):
        env = make_env(Sampled, {"action_space": spaces.Box(-1, 1, (2,))})
        check_env(env, seed=3, n_steps=7)
        actions.append(np.array(env.env.actions).tolist())
    assert actions[0] == actions[1]
    assert len(actions[0]) == 7
