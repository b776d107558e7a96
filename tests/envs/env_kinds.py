"""Toy environments of every kind that the adapter takes, one class a way of speaking."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from rlpyt.envs import AtariEnv, Env, EnvStep

OldInfo = namedtuple("OldInfo", ["timeout", "game_score"])
LENGTH = 5


class Sampled(gymnasium.Env[Any, Any]):
    """Gymnasium's interface over any spaces: samples as observations, episodes of LENGTH steps that end in turn
    by termination and by truncation; an action outside of the space is refused."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        # Copies, since sampling changes a space.
        self.observation_space = deepcopy(observation_space) or spaces.Box(-1, 1, (3,))
        self.action_space = deepcopy(action_space) or spaces.Discrete(3)
        self.episode = self.t = 0
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        self.episode += 1
        self.t = 0
        return self.observation_space.sample(), {"lives": 3}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.t += 1
        over = self.t == LENGTH
        terminated, truncated = over and self.episode % 2 == 1, over and self.episode % 2 == 0
        info = {"lives": 3, "ale.x": np.float64(0.5), "name": "toy", "vector": [1.0, 2.0]}
        return self.observation_space.sample(), 1.5, np.bool_(terminated), truncated, info


class OldGym:
    """Old gym: `seed`, a reset that gives only the observation, a 4-tuple with TimeLimit.truncated in its info."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        self.inner = Sampled(observation_space, action_space)
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.seeds: list[int] = []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)
        self.inner.observation_space.seed(seed)

    def reset(self) -> Any:
        return self.inner.reset()[0]

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.inner.step(action)
        if truncated:
            info["TimeLimit.truncated"] = True
        return observation, reward, bool(terminated or truncated), info


class OldGymWrapper:
    """As old gym's wrappers: passes whatever `reset` is given on to an environment that takes nothing."""

    def __init__(self) -> None:
        self.env = OldGym()
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.seed, self.step = self.env.seed, self.env.step

    def reset(self, **kwargs: Any) -> Any:
        return self.env.reset(**kwargs)


class NoInfo(OldGym):
    """Info is None, from `step` and from `reset`."""

    def reset(self) -> Any:
        return super().reset(), None

    def step(self, action: Any) -> Any:
        observation, reward, done, _ = super().step(action)
        return observation, np.float32(reward), done, None


class Unseeded(Sampled):
    """Gymnasium's steps, but no way to seed."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class Rlpyt(Env):
    """The predecessor's interface, with a named tuple for info."""

    def __init__(self, observation_space: Any = None) -> None:
        self.inner = Sampled(observation_space)
        self._observation_space, self._action_space = self.inner.observation_space, self.inner.action_space

    def reset(self) -> Any:
        return self.inner.reset()[0]

    def step(self, action: Any) -> EnvStep:
        observation, reward, terminated, truncated, _ = self.inner.step(action)
        return EnvStep(observation, reward, terminated or truncated, OldInfo(truncated, 2 * reward))


class Broken(Sampled):
    """Goes wrong in one way, at its third step or at its reset.

    Args:
        what: "observation", "reward", "info", "step" (the whole result) or "reset".
        value: what is given instead; an exception is raised.
    """

    def __init__(self, what: str, value: Any) -> None:
        super().__init__(spaces.Box(-1, 1, (3,)), spaces.Box(-2, 2, (2,)))
        self.what, self.value = what, value

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        result = super().reset(seed=seed)
        return result if self.what != "reset" else self._wrong()

    def step(self, action: Any) -> Any:
        result = list(super().step(action))
        if self.t != 3 or self.what == "reset":
            return tuple(result)
        if self.what == "step":
            return self._wrong()
        result[{"observation": 0, "reward": 1, "info": 4}[self.what]] = self._wrong()
        return tuple(result)

    def _wrong(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class GymBox:
    """Stands for old gym's spaces, which are known by the name of their class."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def old_space(name: str, **attributes: Any) -> Any:
    """Return an object whose class has the name of an old gym space."""
    return type(name, (GymBox,), {})(**attributes)


def old_spaces_env() -> OldGym:
    env = OldGym()
    env.observation_space = old_space("Box", low=-np.ones(3, "f4"), high=np.ones(3, "f4"), shape=(3,), dtype=np.float32)
    env.action_space = old_space("Discrete", n=3)
    return env


NESTED = spaces.Dict(
    {
        "zoom": spaces.Box(-1, 1, (2,), np.float64),
        "ale.lives": spaces.Discrete(4, start=1),
        "pair": spaces.Tuple([spaces.MultiBinary(3), spaces.MultiDiscrete([2, 5], start=[0, 7])]),
        "image": spaces.Dict({"pixels": spaces.Box(0, 255, (2, 4, 4), np.uint8)}),
    }
)

# ---- spaces of every kind, for hypothesis ----

shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
leaves: Any = st.one_of(
    st.builds(
        lambda s, d: spaces.Box(-2, 3, s, d), shapes, st.sampled_from([np.float32, np.float64, np.int16, np.float16])
    ),
    st.builds(lambda s: spaces.Box(0, 255, s, np.uint8), shapes),
    st.builds(lambda n, s: spaces.Discrete(n, start=s), st.integers(1, 6), st.integers(-4, 4)),
    st.builds(lambda n, s: spaces.MultiDiscrete([n, 2], start=[s, 1]), st.integers(1, 6), st.integers(-4, 4)),
    st.builds(lambda s: spaces.MultiDiscrete(np.array([[2, 3], [1, 4]]), start=np.full((2, 2), s)), st.integers(-4, 4)),
    st.builds(spaces.MultiBinary, st.integers(1, 4) | st.just([2, 3])),
)
random_spaces = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from(["b", "a", "ale.lives", "count", "0"]), parts, min_size=1, max_size=3).map(
            spaces.Dict
        ),
    ),
    max_leaves=6,
)

# Every one of these must pass the contract of tests/envs/test_env_contract.py.
KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "gymnasium": (Sampled, {}),
    "gymnasium.make": (gymnasium.make, {"id": "CartPole-v1"}),
    "continuous": (gymnasium.make, {"id": "Pendulum-v1"}),
    "float64": (Sampled, {"observation_space": spaces.Box(-1, 1, (2,), np.float64)}),
    "image": (Sampled, {"observation_space": spaces.Box(0, 255, (3, 8, 8), np.uint8)}),
    "discrete": (
        Sampled,
        {"observation_space": spaces.Discrete(5, start=2), "action_space": spaces.Discrete(3, start=-1)},
    ),
    "nested": (Sampled, {"observation_space": NESTED, "action_space": NESTED}),
    "tuple": (OldGym, {"observation_space": spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Box(0, 1)})])}),
    "old gym": (OldGym, {}),
    "old gym wrapper": (OldGymWrapper, {}),
    "old gym spaces": (old_spaces_env, {}),
    "no info": (NoInfo, {}),
    "rlpyt": (Rlpyt, {}),
    "atari": (AtariEnv, {"game": "Breakout", "image_size": (52, 40), "horizon": 30, "max_start_noops": 5}),
}
# These cannot be seeded.
UNSEEDED = ("rlpyt",)
