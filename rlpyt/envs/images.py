"""Images among observations: what is told of parts that the default models take for none, and a wrapper for these.

The rule is `rlpyt.spaces.is_image`: a Box of uint8 with three dimensions, [C, height, width].
"""

from __future__ import annotations

import math
from collections.abc import Collection

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.vector import VectorEnv

from rlpyt.envs.adapter import read_reset, seeded_reset
from rlpyt.envs.base import Reset
from rlpyt.envs.info import FINAL_KEYS
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import FrameStack, Space, as_gymnasium, is_image, subspaces
from rlpyt.types import Kwargs

_SMALLEST_SIDE = 8
"""Height and width from which on an array of two or more dimensions looks like an image."""
_MANY_INPUTS = 10_000


def image_advice(space: Space, name: str = "observation") -> list[str]:
    """Return a sentence for every part of an observation that the default models may read otherwise than was meant."""
    parts = subspaces(space)
    if parts:
        return [text for key, part in parts for text in image_advice(part, f"{name}[{key!r}]")]
    if is_image(space):
        shape = space.shape or ()
        if not _seems_channels_last(shape):
            return []
        return [
            f"{name} has the shape {shape}, and images are [channels, height, width]. If the channels are last, "
            "transpose it: wrap the environment in rlpyt.envs.ChannelsFirst."
        ]
    if isinstance(space, Discrete | MultiDiscrete):
        size = int(space.n if isinstance(space, Discrete) else space.nvec.sum())
        return [_of_many_inputs(name, space, size, "one-hot with")] if size > _MANY_INPUTS else []
    size, sides = math.prod(space.shape or ()), sorted(space.shape or ())
    if len(sides) < 2 or sides[-2] < _SMALLEST_SIDE:
        return [_of_many_inputs(name, space, size, "flattened into")] if size > _MANY_INPUTS else []
    refused = space.dtype == np.uint8 and len(sides) > 3
    what = "cannot take it" if refused else f"flatten it into {size:,} inputs"
    how = (
        "wrap the environment in rlpyt.envs.ChannelsFirst, which makes it one"
        if _is_changed(space)
        else "return one from the environment, or give the agent a model of your own (ModelCls)"
    )
    return [
        f"{name}, {space.dtype} {list(space.shape or ())}, looks like an image, and the default models {what}: images "
        f"are uint8 [channels, height, width] alone. To have it convolved, {how}."
    ]


def _of_many_inputs(name: str, space: Space, size: int, how: str) -> str:
    return (
        f"{name}, {space!s:.100}, is {how} {size:,} inputs by the default models. If these are too many, give the "
        "agent a model of your own (ModelCls)."
    )


def _seems_channels_last(shape: tuple[int, ...]) -> bool:
    height, width, channels = shape
    return height == width != channels or (min(height, width) > 4 and channels in (1, 3, 4))


class ChannelsFirst(gymnasium.Env[Buffer, Buffer]):
    """Wrapper of any environment that samplers take, with its images as the default models read them.

    A uint8 or bool Box of the observation, alone or a part of a Dict or Tuple, becomes uint8 with the channels first:

        [H, W, C] -> [C, H, W],    [H, W] -> [1, H, W],    [N, H, W, C] -> [N * C, H, W], the frames of a stack

    A stack [N, C, H, W], told from the other by a C that is smaller than W and not H, becomes [N * C, H, W], too.
    Everything else stays as it is: vectors, other dtypes, and `FrameStack` spaces, which have their channels first.

    Args:
        env: environment of gymnasium, old gym or rlpyt 0.1, or of no base class.
        keys: of the Dict or Tuple, the parts to change; None changes all that are images by their dtype and dimensions.
        high: largest value of these images, where the space declares a larger one than occurs, as minigrid does. The
            default models divide images by it.

    Raises:
        TypeError: if `env` is a vector environment, whose images gymnasium's wrappers of `gymnasium.wrappers.vector`
            transpose.
        ValueError: if a key is not there, or nothing is to be changed.
    """

    def __init__(self, env: Buffer, keys: Collection[str | int] | None = None, *, high: int | None = None) -> None:
        if isinstance(env, VectorEnv):
            raise TypeError(
                f"ChannelsFirst: {type(env).__name__} is a vector environment; expected one environment. Wrap those "
                "inside of it, or use gymnasium.wrappers.vector.TransformObservation."
            )
        self.env = env
        self.keys = None if keys is None else frozenset(map(str, keys))
        self._space = as_gymnasium(env.observation_space)
        self.observation_space = _changed_space(self._space, self.keys, high)
        self.action_space = as_gymnasium(env.action_space)
        names = [key for key, _ in subspaces(self._space)]
        if not (self.keys or set()) <= set(names) or self.observation_space == self._space:
            raise ValueError(
                f"ChannelsFirst: {type(env).__name__} has the observations {self._space}, and keys is {keys}; expected "
                "a uint8 or bool Box of two to four dimensions there. Leave the wrapper out, or correct the keys."
            )
        self.spec = getattr(env, "spec", None)
        self.render_mode = getattr(env, "render_mode", None)
        self.metadata = getattr(env, "metadata", {})

    @property
    def unwrapped(self) -> Buffer:
        """Return the environment within all wrappers."""
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, *, seed: int | None = None, options: Kwargs | None = None) -> Reset:
        """Start an episode; return its first observation and the info.

        Args:
            seed: seeds the environment, in the way that it takes a seed; None continues its random stream.
            options: of environments of gymnasium.
        """
        if options is not None:
            result = self.env.reset(seed=seed, options=options)
        else:
            result = self.env.reset() if seed is None else seeded_reset(self.env)(seed)
        observation, info = read_reset(result, self._space)
        return self._changed(observation), info

    def step(self, action: Buffer) -> Buffer:
        """Take one step; return what the environment does, a tuple of four or five with the observation first."""
        result = self.env.step(action)
        if not isinstance(result, tuple) or len(result) < 4:
            return result  # for whoever called to refuse
        observation, *others = result
        info = others[-1]
        if isinstance(info, dict) and any(info.get(key) is not None for key in FINAL_KEYS):
            finals = {key: self._changed(info[key]) for key in FINAL_KEYS if info.get(key) is not None}
            others[-1] = {**info, **finals}
        return (self._changed(observation), *others)

    def render(self) -> Buffer:
        """Return what the environment's `render` returns."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment if it has `close`."""
        close = getattr(self.env, "close", None)
        if close is not None:
            close()

    def _changed(self, observation: Buffer) -> Buffer:
        return _changed_value(self._space, observation, self.keys)


def _is_changed(space: Space) -> bool:
    return (
        isinstance(space, Box)
        and not isinstance(space, FrameStack)
        and 2 <= len(space.shape) <= 4
        and space.dtype in (np.uint8, np.bool_)
    )


def _changed_array(array: np.ndarray) -> np.ndarray:
    array = np.asarray(array)
    array = array.astype(np.uint8) if array.dtype == np.bool_ else array  # another dtype is for the check to refuse
    if array.ndim == 2:
        return array[None]
    if array.ndim == 3:
        return np.moveaxis(array, -1, 0)
    _, first, middle, last = array.shape
    array = array if first < last and first != middle else np.moveaxis(array, -1, 1)
    return array.reshape(-1, *array.shape[2:])


def _changed_space(space: Space, keys: frozenset[str] | None, high: int | None) -> Space:
    parts = [(key, _changed_space(part, None, high) if _named(key, keys) else part) for key, part in subspaces(space)]
    if isinstance(space, Dict):
        return Dict(dict(parts))
    if isinstance(space, Tuple):
        return Tuple([part for _, part in parts])
    if not _is_changed(space):
        return space
    assert isinstance(space, Box)
    bound = _changed_array(space.high)
    return Box(_changed_array(space.low), bound if high is None else np.minimum(bound, high), dtype=np.uint8)


def _changed_value(space: Space, value: Buffer, keys: frozenset[str] | None) -> Buffer:
    if isinstance(space, Dict):
        changed = {k: _changed_value(part, value[k], None) for k, part in subspaces(space) if _named(k, keys)}
        return {**value, **changed}
    if isinstance(space, Tuple):
        pairs = zip(subspaces(space), value, strict=True)
        return tuple(_changed_value(part, x, None) if _named(k, keys) else x for (k, part), x in pairs)
    return _changed_array(value) if _is_changed(space) else value


def _named(key: str, keys: frozenset[str] | None) -> bool:
    return keys is None or key in keys
