"""Images with the channels last, and other pictures: what is said of them, and the wrapper that mends them."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from rlpyt.envs import ChannelsFirst, EnvError, make_env, restores_exactly
from rlpyt.envs.images import image_advice
from tests.envs.env_kinds import OldGym, Rlpyt, Sampled

PICTURE = spaces.Box(0, 255, (5, 6, 3), np.uint8)
BOOL: Any = spaces.Box(0, 1, (10, 10, 4), np.dtype("bool").type)


def numbered(space: spaces.Box, n: int) -> np.ndarray:
    """Return an array of a space whose values tell where they stand."""
    values = np.arange(int(np.prod(space.shape))).reshape(space.shape) + n
    return (values % (int(space.high.max()) + 1)).astype(space.dtype)


class Bare:
    """Environment without a base class; counts its steps in the picture."""

    action_space: Any = spaces.Discrete(2)

    def __init__(self, space: Any = PICTURE) -> None:
        self.observation_space, self.n = space, 0

    def see(self) -> Any:
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: numbered(part, self.n) for key, part in space.spaces.items()}  # type: ignore[arg-type]
        return numbered(space, self.n)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.n = seed or 0
        return self.see(), {"n": self.n}

    def step(self, action: Any) -> Any:
        self.n += 1
        return self.see(), 1.0, False, self.n % 7 == 0, {"final_observation": self.see(), "final_obs": None}


INNER = [Bare, *(partial(EnvCls, PICTURE) for EnvCls in (Sampled, OldGym, Rlpyt))]


@pytest.mark.parametrize("inner", [*INNER, lambda: TimeLimit(Sampled(PICTURE), 3)])
def test_every_interface_is_wrapped(inner: Any) -> None:
    PICTURE.seed(0)  # of which each has a copy
    env, twin = make_env(lambda: ChannelsFirst(inner()), {}, seed=3), make_env(inner, {}, seed=3)
    assert env.observation_space == spaces.Box(0, 255, (3, 5, 6), np.uint8)
    for _ in range(2):
        np.testing.assert_array_equal(env.reset()[0], twin.reset()[0].transpose(2, 0, 1))
        ended = False
        while not ended:
            observation, *rest, info = env.step(1)
            expected, *of_twin, _ = twin.step(1)
            np.testing.assert_array_equal(observation, expected.transpose(2, 0, 1))
            assert rest == of_twin
            assert inner is not Bare or (info["final_observation"] == observation).all()
            ended = bool(rest[1] or rest[2])
    env.close()


@pytest.mark.parametrize(
    ("shape", "dtype", "changed"),
    [
        ((5, 6, 3), np.uint8, (3, 5, 6)),
        ((5, 6), np.uint8, (1, 5, 6)),
        ((10, 10, 4), np.bool_, (4, 10, 10)),
        ((4, 5, 6, 3), np.uint8, (12, 5, 6)),
        ((4, 3, 5, 6), np.uint8, (12, 5, 6)),
        ((2, 4, 4, 16), np.uint8, (32, 4, 4)),
    ],
)
def test_what_becomes_of_an_image(shape: Any, dtype: Any, changed: Any) -> None:
    space = spaces.Box(0, 1, shape, dtype)
    env = ChannelsFirst(Bare(space))
    assert env.observation_space == spaces.Box(0, 1, changed, np.uint8)
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    value = numbered(space, 0)
    if len(shape) == 4:
        frames = [x if shape[1] == 3 else x.transpose(2, 0, 1) for x in value]
        np.testing.assert_array_equal(observation, np.concatenate(frames))
    else:
        np.testing.assert_array_equal(observation, value[None] if len(shape) == 2 else value.transpose(2, 0, 1))


def test_the_bound_of_the_values_that_occur() -> None:
    env = ChannelsFirst(Bare(spaces.Dict(a=PICTURE, b=spaces.Box(0, 5, (4, 4), np.uint8))), high=10)
    assert [int(part.high.max()) for part in env.observation_space.values()] == [10, 5]  # type: ignore[attr-defined]


def test_parts_of_a_dict() -> None:
    parts: dict[str, Any] = dict(
        board=spaces.Box(0, 9, (4, 4), np.uint8), image=PICTURE, state=spaces.Box(-1, 1, (9, 9))
    )
    both, one = ChannelsFirst(Bare(spaces.Dict(parts))), ChannelsFirst(Bare(spaces.Dict(parts)), keys=["image"])

    def shapes(env: Any) -> dict[str, Any]:
        return {key: part.shape for key, part in env.observation_space.items()}

    assert shapes(both) == dict(board=(1, 4, 4), image=(3, 5, 6), state=(9, 9))
    assert shapes(one) == dict(board=(4, 4), image=(3, 5, 6), state=(9, 9))
    for env in (both, one):
        assert env.observation_space.contains(env.reset()[0])
        assert env.observation_space.contains(env.step(0)[0])


def test_what_cannot_be_wrapped_is_refused() -> None:
    with pytest.raises(TypeError, match=r"SyncVectorEnv is a vector environment.*wrappers\.vector"):
        ChannelsFirst(SyncVectorEnv([lambda: Sampled(PICTURE)]))
    with pytest.raises(ValueError, match="expected a uint8 or bool Box"):
        ChannelsFirst(Bare(spaces.Box(-1, 1, (9, 9))))
    with pytest.raises(ValueError, match="correct the keys"):
        ChannelsFirst(Bare(spaces.Dict(image=PICTURE)), keys=["picture"])


def test_values_that_are_not_of_the_space_are_not_cast() -> None:
    class Wrong(Bare):
        def see(self) -> Any:
            return np.full(PICTURE.shape, 0.5)

    with pytest.raises(EnvError, match=r"expected uint8 of shape \(3, 5, 6\), got ndarray \(float64\)"):
        make_env(lambda: ChannelsFirst(Wrong()), {}).reset()


def test_its_state_is_that_of_the_environment() -> None:
    one, other = (make_env(lambda: ChannelsFirst(Bare()), {}) for _ in range(2))
    assert restores_exactly(one, other, seed=1, n_steps=20) is None


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), "channels are last.*ChannelsFirst"),
        (spaces.Box(0, 1, (4, 4, 16), np.uint8), "channels are last.*ChannelsFirst"),
        (spaces.Box(0, 255, (210, 160, 3), np.uint8), "channels are last"),
        (spaces.Box(0, 255, (3, 84, 84), np.uint8), None),
        (spaces.Box(0, 1, (16, 4, 4), np.uint8), None),
        (spaces.Box(0, 255, (84, 84), np.uint8), r"uint8 \[84, 84\], looks like an image.*7,056 inputs.*ChannelsFirst"),
        (spaces.Box(0, 255, (4, 84, 84, 3), np.uint8), "cannot take it.*ChannelsFirst"),
        (BOOL, "looks like an image.*400 inputs.*ChannelsFirst"),
        (spaces.MultiBinary([10, 10, 4]), "looks like an image.*ModelCls"),
        (spaces.Box(0, 1, (3, 64, 64), np.float32), "float32.*looks like an image.*12,288 inputs.*ModelCls"),
        (spaces.Box(0, 255, (64, 64, 3), np.int32), "looks like an image"),
        (spaces.Box(-1, 1, (4, 17), np.float32), None),
        (spaces.Box(-1, 1, (7, 7, 3), np.float32), None),
        (spaces.Box(-1, 1, (128,), np.float32), None),
        (spaces.Box(-1, 1, (20_000,), np.float32), "flattened into 20,000 inputs"),
        (spaces.Discrete(4_000), None),
        (spaces.Discrete(40_000), "one-hot with 40,000 inputs"),
    ],
)
def test_advice_on_images(space: Any, said: str | None) -> None:
    alone, within = image_advice(space), image_advice(spaces.Dict(x=spaces.Tuple([space])))
    assert len(alone) == len(within) == (said is not None)
    if said is not None:
        assert re.search(said, alone[0])
        assert within[0].startswith("observation['x']['0']")
