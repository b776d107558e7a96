"""Conversion of vector environments to the autoreset mode that samplers need: NEXT_STEP of gymnasium.

In that mode the step after the end of an episode resets the environment, with any action. The final observation has a
row of its own, and the row after it has the first observation of the next episode.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv

from rlpyt.envs.base import Reset, VectorStep
from rlpyt.envs.info import FINAL_KEYS, as_flags, final_key, is_mask_in, vector_info
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import Space, as_gymnasium, to_rows
from rlpyt.types import Info, Kwargs
from rlpyt.utils.arrays import buffer_func


class NextStepEnv:
    """Vector environment in SAME_STEP or DISABLED mode, converted to NEXT_STEP.

    Such an environment steps all sub-environments or none. So it cannot wait while the final observation of one has its
    row. That one takes a hidden step of the null action instead, and is reset afterwards with `reset_mask`. In DISABLED
    mode it is reset before that step, too, as it allows none then. A SAME_STEP environment that ignores `reset_mask`
    loses the first observation of every episode but the first, which `advice` says. After a lost life (`traj_done`
    False), the reset that continues the game is the only one, and the step of the null action a part of the game.

    Args:
        env: the vector environment.
        mode: its mode.
        name: of the environment, for messages.
        converted: converts its observations to row form, in which they are given.

    Raises:
        TypeError: if the mode is DISABLED, and the environment can only reset all sub-environments together.
    """

    def __init__(self, env: Any, mode: AutoresetMode, name: str, converted: Callable[[Buffer], Buffer]) -> None:
        self.env, self._converted = env, converted
        self.num_envs, self._name = int(env.num_envs), name
        self.advice: list[str] = []
        """What the user should know of it."""
        self._same_step = mode is AutoresetMode.SAME_STEP
        self._env_send, self._env_recv = halves_of_step(env)
        self._ended = np.zeros(self.num_envs, bool)  # the row at hand is a final one
        self._begins = self._ended.copy()  # of these, those that begin a new game, not another life
        self._space = as_gymnasium(env.single_observation_space)
        self._to_row = to_rows(self._space)
        self._takes_mask = self._find_out_about_masks()

    def reset(self, seed: Any = None, options: ResetOptions | None = None) -> Reset:
        """Start episodes, in all environments or in those of `options["reset_mask"]`."""
        # Read past `options.was_read`: only the environment's own look at the mask counts.
        self._ended[... if options is None else options.data["reset_mask"]] = False
        kwargs = {"seed": seed, "options": options}
        observation, info = self.env.reset(**{key: value for key, value in kwargs.items() if value is not None})
        return self._converted(observation), info

    def send(self, actions: Buffer) -> None:
        """Start a step; where an episode is over, the action should be the null action."""
        if self._ended.any() and not self._same_step:
            reset_part(self.env, self._ended)
        self._env_send(actions)

    def recv(self) -> VectorStep:
        """Complete the step, in NEXT_STEP's way."""
        observation, reward, terminated, truncated, info = self._env_recv()
        terminated = as_flags(terminated, "terminated", self.num_envs).copy()
        truncated = as_flags(truncated, "truncated", self.num_envs).copy()
        observation, info = self._converted(observation), vector_info(info, self.num_envs)
        done, begins = terminated | truncated, self._ended & self._begins
        if self._ended.any():
            reward = np.where(self._ended, 0, reward)
        if begins.any():
            terminated[begins] = truncated[begins] = False
            if self._takes_mask:
                # A life lost in the step that nobody sees: one reset goes on with that game, another begins the next.
                goes_on = begins & done & ~_traj_done(info, done)
                if goes_on.any() and not self._same_step:
                    reset_part(self.env, goes_on)
                first, observation = reset_part(self.env, begins)[0], buffer_func(observation, np.copy)
                for b in np.flatnonzero(begins).tolist():  # the other rows may be anything
                    observation[b] = self._to_row(_one_of(first, b))
        self._ended = done & ~begins
        if self._same_step:
            observation, info = self._with_final(observation, info)
        self._begins = _traj_done(info, done)
        return observation, reward, terminated, truncated, info

    def _with_final(self, observation: Buffer, info: Info) -> Reset:
        if not self._ended.any():
            return observation, without_final(info)
        if final_key(info) is None:
            raise ValueError(
                "its autoreset mode is SAME_STEP, and info has no 'final_obs' where an episode ended. Give the final "
                "observation there, as gymnasium does, or make the environment in AutoresetMode.NEXT_STEP."
            )
        return with_final(self._space, observation, info, self._ended)

    def _find_out_about_masks(self) -> bool:
        """Return whether the first environment can be reset alone."""
        self.env.reset()
        try:
            reset_part(self.env, np.arange(self.num_envs) == 0)
        except Exception as error:
            if not self._same_step:
                raise TypeError(
                    f"{self._name}: its autoreset mode is DISABLED, and it cannot reset a part of itself "
                    "(options['reset_mask']). Make it in AutoresetMode.NEXT_STEP, or give it that option."
                ) from error
            self.advice.append(
                f"{self._name}: its autoreset mode is SAME_STEP, and it cannot reset a part of itself "
                "(options['reset_mask']). So every episode but the first begins with one step of the null action, "
                "whose reward is not counted. In AutoresetMode.NEXT_STEP there is no such step."
            )
            return False
        return True


def with_final(space: Space, rows: Buffer, info: Info, ended: np.ndarray) -> Reset:
    """Return a copy of the observations of a step, and its info, with those of the ended episodes in their places.

    Args:
        space: of one observation of the environment.
        rows: observations in row form [B, ...], where an episode ended the first one of the next.
        info: in gymnasium's form, with final observations by a name of `FINAL_KEYS`.
        ended: bool [B], where they are to be read.

    Raises:
        ValueError, TypeError: if one is missing, or not in the space.
    """
    key = final_key(info)
    assert key is not None
    rows, to_row = buffer_func(rows, np.copy), to_rows(space, f"info[{key!r}], the final observation,")
    for b in np.flatnonzero(ended).tolist():
        final = _one_of(info[key], b)
        if final is None or not _given(info, key, ended)[b]:
            raise ValueError(f"info[{key!r}]: expected an observation of environment {b}, which ended; got none.")
        rows[b] = to_row(final)
    final_info = info.get(FINAL_KEYS[key])
    if isinstance(final_info, np.ndarray | list | tuple):  # gymnasium before 1.0: an array of dictionaries, and None
        final_info = vector_info([one or {} for one in final_info], len(ended))
    return rows, _with_info(without_final(info), final_info or {}, ended)


def _one_of(batch: Buffer, b: int) -> Buffer:
    """Return the observation at a place in a batch, without the masks of gymnasium beside the parts of a dictionary."""
    if isinstance(batch, Mapping):
        return {key: _one_of(part, b) for key, part in batch.items() if not is_mask_in(batch, key)}
    return tuple(_one_of(part, b) for part in batch) if isinstance(batch, tuple) else batch[b]


def without_final(info: Info) -> dict[str, Buffer]:
    """Return an info without final observations and the infos of these."""
    names = {*FINAL_KEYS, *FINAL_KEYS.values()}
    return {key: value for key, value in info.items() if key.removeprefix("_") not in names}


class ResetOptions(UserDict[str, Any]):
    """Options of a reset that record whether the mask was read, be it to copy them.

    An environment that does not know the mask resets all sub-environments without a word.
    """

    was_read = False

    def __getitem__(self, key: str) -> Any:
        self.was_read |= key == "reset_mask"
        return super().__getitem__(key)


def reset_part(env: Any, mask: np.ndarray) -> Reset:
    """Reset the environments of a mask, bool [B], of which only the rows are meaningful in what is returned.

    Raises:
        TypeError: if the environment ignored the mask.
    """
    options = ResetOptions({"reset_mask": np.array(mask, bool)})
    result: Reset = env.reset(options=options)
    if not options.was_read:
        raise TypeError(
            "it takes no notice of options['reset_mask'], and so has reset all its environments. One that can "
            "only reset all at once needs a sampler with mid_batch_reset=True."
        )
    return result


def halves_of_step(env: Any) -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    """Return a function that starts a step and one that completes it.

    If a subclass overrides `step` below the class that has these halves, `step` is called, as it does more.
    """
    classes = type(env).__mro__

    def depth(name: str) -> int:
        return next((i for i, cls in enumerate(classes) if name in vars(cls)), len(classes))

    for send, recv in (("send", "recv"), ("step_async", "step_wait")):
        if max(depth(send), depth(recv)) < len(classes) and min(depth(send), depth(recv)) <= depth("step"):
            return getattr(env, send), getattr(env, recv)
    kept: list[Any] = []
    return kept.append, lambda: env.step(kept.pop())


def named_mode(env: Any) -> AutoresetMode | None:
    """Return the autoreset mode that an environment names, by the member or as a text; None if it names none."""
    said = _said(env)
    return next((mode for mode in AutoresetMode if said in (mode, mode.value, mode.name)), None)


def _said(env: Any) -> Any:
    # ale-py writes its mode into the base class's dictionary, where any environment without one of its own finds it.
    metadata = getattr(env, "metadata", None)
    named = {} if metadata is None or metadata is vars(VectorEnv)["metadata"] else metadata
    return getattr(getattr(env, "unwrapped", env), "autoreset_mode", named.get("autoreset_mode"))


def autoreset_mode(env: Any, name: str) -> AutoresetMode:
    """Return the autoreset mode of a vector environment.

    Raises:
        ValueError: if it names none, or a mode that it does not implement.
    """
    inner, mode = env.unwrapped, named_mode(env)
    if mode is None:
        raise ValueError(
            f"{name}: its autoreset mode (metadata['autoreset_mode']) is {_said(env)}; expected one of "
            f"{', '.join(map(str, AutoresetMode))} of gymnasium.vector. In an environment of your own, say so in its "
            "metadata."
        )
    if mode is AutoresetMode.NEXT_STEP and isinstance(inner, AsyncVectorEnv) and not inner.shared_memory:
        raise ValueError(
            f"{name}: with shared_memory=False gymnasium's processes do not notice a reset, and reset once more in the "
            "next step (gymnasium 1.4). Leave shared_memory out of vector_kwargs."
        )
    return mode


def in_next_step(env_kwargs: Kwargs) -> dict[str, Any]:
    """Return the arguments of a vector environment with its autoreset mode, if one is named, set to NEXT_STEP.

    The rows are the same in every mode, and this mode needs no further resets.
    """
    kwargs = dict(env_kwargs)
    if isinstance(kwargs.get("vector_kwargs"), Mapping):
        kwargs["vector_kwargs"] = in_next_step(kwargs["vector_kwargs"])
    if "autoreset_mode" in kwargs:
        mode = AutoresetMode.NEXT_STEP
        kwargs["autoreset_mode"] = mode.value if isinstance(kwargs["autoreset_mode"], str) else mode
    return kwargs


def _with_info(info: Info, final: Info, mask: np.ndarray) -> dict[str, Any]:
    """Return an info in which the environments of the mask have the values of `final`, and no others.

    If `final` is empty, the info of the step is kept.
    """
    if not final:
        return dict(info)
    merged: dict[str, Any] = {}
    both = {**info, **final}
    for key in (key for key in both if not (key.startswith("_") and key[1:] in both)):
        value, other = info.get(key), final.get(key)
        if isinstance(both[key], Mapping):
            merged[key] = _with_info(value or {}, other or {}, mask)
        elif np.shape(both[key])[:1] != mask.shape:
            merged[key] = both[key]
        else:
            other = np.zeros_like(value) if other is None else np.asarray(other)
            value = np.zeros_like(other) if value is None else np.asarray(value)
            merged[key] = np.where(mask.reshape(-1, *[1] * (value.ndim - 1)), other, value)
        if f"_{key}" in both:
            merged[f"_{key}"] = np.where(mask, _given(final, key, mask), _given(info, key, mask))
    return merged


def _traj_done(info: Info, like: np.ndarray) -> np.ndarray:
    """Return where an end is that of a game: wherever info does not say that it is not."""
    return np.where(_given(info, "traj_done", like), info.get("traj_done", True), True).astype(bool)


def _given(info: Info, key: str, like: np.ndarray) -> np.ndarray:
    """Return which environments gave a key, by gymnasium's mask of it, where there is one."""
    return info[f"_{key}"] if f"_{key}" in info else np.full_like(like, key in info)
