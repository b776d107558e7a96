"""Batched environments that take and return tensors of a device, and the ways in which their episodes end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rlpyt.envs.autoreset import named_mode
from rlpyt.envs.base import EnvError, env_name
from rlpyt.envs.info import FINAL_KEYS
from rlpyt.envs.making import call_env_cls, has_parameter
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, as_gymnasium, null_value, subspaces
from rlpyt.types import Info, Kwargs, StateDict
from rlpyt.utils.arrays import broadcast_mask, buffer_func, buffer_leaves
from rlpyt.utils.checks import described

FINAL_OBSERVATIONS = (*FINAL_KEYS, "final_observations")
"""Names of the final observations in the info of simulators that reset themselves."""
_STATE = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


class DeviceStep(NamedTuple):
    """Result of a step of all environments, tensors [B, ...] as the simulator has them."""

    observation: Buffer
    """In row form."""
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    info: Info


class DeviceEnv:
    """Batched environment with its spaces and its device, whose values are checked and brought to row form.

    The checks read shapes, dtypes and devices, and no number. So nothing waits for the device.

    Args:
        EnvCls: makes one environment that has `num_envs`, `single_observation_space`, `single_action_space`,
            `reset(seed=...)` and `step(action)`. It is given `num_envs` if it names such a parameter.
        env_kwargs: its other arguments.
        n: environments that it must have.
        ends: how episodes end, a key of `ENDS`, or "auto".
        compiled: whether torch.compile compiles its `step`.

    Raises:
        EnvError: if the environment cannot be built.
        TypeError: if it has another interface.
        ValueError: if it has another number of environments, or episodes end in a way that has no rows.
    """

    def __init__(
        self,
        EnvCls: Callable[..., object],
        env_kwargs: Kwargs | None,
        n: int,
        ends: str = "auto",
        compiled: bool = False,
    ) -> None:
        kwargs = dict(env_kwargs or {})
        if "num_envs" not in kwargs and has_parameter(EnvCls, "num_envs"):
            kwargs["num_envs"] = n
        try:
            self.env = cast(Buffer, call_env_cls(EnvCls, kwargs))
        except Exception as error:
            raise EnvError(f"Building {n} environments in one: {type(error).__name__}: {error}") from error
        self.name = env_name(self.env)
        missing = [
            x for x in ("num_envs", "single_observation_space", "single_action_space") if not hasattr(self.env, x)
        ]
        if missing:
            raise TypeError(
                f"{self.name}: has no {', '.join(missing)}; expected one object with many environments, whose tensors "
                "are [num_envs, ...] (docs/howto/device_simulators.md). Use SerialSampler for single environments."
            )
        self.n = int(self.env.num_envs)
        if self.n != n:
            raise ValueError(f"{self.name}: num_envs is {self.n}; expected {n}. Give both the same number.")
        self.spaces = EnvSpaces(*map(as_gymnasium, (self.env.single_observation_space, self.env.single_action_space)))
        self.ends = make_ends(self, ends)
        self._step = torch.compile(self.env.step) if compiled else self.env.step
        pairs = ([getattr(self.env, name, None) for name in names] for names in _STATE)
        self._state_methods: list[Buffer] = next((pair for pair in pairs if all(map(callable, pair))), [])
        self._device: torch.device | None = None  # that of the first tensor which comes
        self.row = self._rows_of(self.spaces.observation, "observation")
        """Returns observations [B, ...] of the simulator in row form.

        EnvError if they have another form than the space, or are on another device than the first ones.
        """

    @property
    def device(self) -> torch.device:
        """Device of the observations; known after the first reset."""
        return self._device or torch.device("cpu")

    def reset(self, seed: int) -> Buffer:
        """Begin an episode in every environment; return the first observations in row form."""
        row = self.row(self.called("reset", self.env.reset, seed=seed)[0])
        self._to_env = _actions_of(self.spaces.action, self.device)
        return row

    def step(self, action: Buffer) -> DeviceStep:
        """Take one step in every environment, by actions in row form."""
        result = self.called("step", self._step, self._to_env(action))
        if not isinstance(result, tuple) or len(result) != 5:
            raise EnvError(
                f"{self.name}: step returned {described(result)}; expected observation, reward, terminated, truncated "
                "and info. RslRlEnv of rlpyt.envs is for simulators that return four values."
            )
        observation, reward, terminated, truncated, info = result
        self._check("reward", reward, (self.n,))
        for flag, x in (("terminated", terminated), ("truncated", truncated)):
            self._check(flag, x, (self.n,))
            if x.dtype is not torch.bool:
                raise EnvError(f"{self.name}: {flag} is {x.dtype}; expected torch.bool. Convert it: {flag}.bool().")
        return DeviceStep(self.row(observation), reward, terminated, truncated, info)

    def from_info(self, step: DeviceStep, key: str, like: torch.Tensor) -> torch.Tensor:
        """Return what was in the info of the first step, and must be in every one.

        Where an episode ended it is of its last step: a simulator that resets itself has that in `final_info`, and in
        info what belongs to the next episode.
        """
        finals = (step.info.get(name) for name in FINAL_KEYS.values())
        final = next((x[key] for x in finals if isinstance(x, Mapping) and key in x), None)
        x: torch.Tensor | None = step.info.get(key, final)
        if x is None:
            raise EnvError(f"{self.name}: info has no {key!r} in this step; expected it in every step.")
        self._check(f"info[{key!r}]", x, like.shape)
        if final is None:
            return x
        return torch.where(broadcast_mask(step.terminated | step.truncated, final), final, x.to(final.dtype))

    def called(self, what: str, function: Callable[..., Buffer], *args: Buffer, **kwargs: Buffer) -> Buffer:
        """Return what a method of the environment gives; an error tells whose it is."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise EnvError(f"{self.name}: {what} raised {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        getattr(self.env, "close", lambda: None)()

    # ---- state ----

    def why_no_state(self) -> str | None:
        """Return why the environment has no state that can be saved; None if it has."""
        if self._state_methods:
            return None
        return f"{self.name}: has neither state_dict and load_state_dict nor get_state and set_state."

    def state(self) -> StateDict | None:
        """Return the state of the environment; None if it has none."""
        return {"state": self._state_methods[0]()} if self._state_methods else None

    def load_state(self, state: StateDict) -> None:
        """Load the result of `state`."""
        self.called("load_state_dict", self._state_methods[1], state["state"])

    # ---- row form ----

    def _rows_of(self, space: Space, name: str) -> Callable[[Buffer], Buffer]:
        """Return the function that checks observations of a space, and returns them in row form."""
        if parts := subspaces(space):
            Row, of_parts = type(null_value(space)), [self._rows_of(part, f"{name}[{key!r}]") for key, part in parts]
            keys = [int(key) if isinstance(space, spaces.Tuple) else key for key, _ in parts]

            def row_of_parts(value: Buffer) -> Buffer:
                try:
                    values = [value[key] for key in keys]
                except (KeyError, IndexError, TypeError) as error:
                    raise EnvError(f"{self.name}: {name} has no part {error}; expected those of {space}.") from None
                return Row(*[of_part(x) for of_part, x in zip(of_parts, values, strict=True)])

            return row_of_parts
        shape, start = (self.n, *(space.shape or ())), torch.as_tensor(getattr(space, "start", 0))
        is_float = np.asarray(null_value(space)).dtype.kind == "f"

        def row(value: Buffer) -> Buffer:
            self._check(name, value, shape)
            if value.is_floating_point() and not is_float:
                raise EnvError(f"{self.name}: {name} is {value.dtype}; expected numbers of {space}. Mend the space.")
            return value - start.to(value) if start.any() else value

        return row

    def _check(self, name: str, x: Buffer, shape: tuple[int, ...]) -> None:
        if not isinstance(x, torch.Tensor):
            raise EnvError(
                f"{self.name}: {name} is a {type(x).__name__}; expected a tensor {list(shape)}. Use SerialSampler, "
                "CpuSampler or GpuSampler for environments that return arrays."
            )
        if x.shape != shape:
            raise EnvError(f"{self.name}: {name} is {list(x.shape)}; expected {list(shape)}, a row an environment.")
        self._device = self._device or x.device
        if x.device != self._device:
            raise EnvError(
                f"{self.name}: {name} is on {x.device}; expected {self._device}, where the first observations are. "
                "Return all tensors on one device."
            )


def _actions_of(space: Space, device: torch.device) -> Callable[[Buffer], Buffer]:
    """Return the function from actions in row form to those of a simulator, without a check of their numbers.

    Those of a Box are clipped to its bounds, and rounded if it holds integers.
    """
    if parts := subspaces(space):
        of_parts = [_actions_of(part, device) for _, part in parts]
        if isinstance(space, spaces.Tuple):
            return lambda row: tuple(f(x) for f, x in zip(of_parts, row, strict=True))
        keys = [key for key, _ in parts]
        return lambda row: {key: f(x) for key, f, x in zip(keys, of_parts, row, strict=True)}
    if isinstance(space, spaces.Box):
        low, high = torch.as_tensor(space.low, device=device), torch.as_tensor(space.high, device=device)

        def clip(row: torch.Tensor) -> torch.Tensor:
            clipped = torch.clamp(row, low.to(row.dtype), high.to(row.dtype))
            return clipped if low.is_floating_point() else clipped.round().to(low.dtype)

        return clip
    start = getattr(space, "start", 0)
    if not np.any(start):
        return lambda row: row
    first = torch.as_tensor(start, device=device)
    return lambda row: row + first


# ---- ends of episodes ----


class Ends:
    """Way in which episodes end: where the final observation is, and who resets.

    Here environments reset themselves in the same step, and hand the final observation over in info. It is in
    `final_obs` (gymnasium, Isaac Lab), `final_observation` (ManiSkill) or another of `FINAL_OBSERVATIONS`, for all
    environments at once. A mask of the same name with an underscore before it says which have one.

    Args:
        env: whose episodes end.
    """

    estimated: ClassVar[bool] = False
    """Whether the observation before the last step stands for the final one."""

    def __init__(self, env: DeviceEnv) -> None:
        self.env = env

    def final(self, step: DeviceStep, before: Buffer) -> tuple[Buffer, torch.Tensor | None]:
        """Return the final observations [B, ...] of a step in row form, None where there is none, and which are given.

        None is all, or none at all. `before` are the observations before the step, in row form.
        """
        key = next((key for key in FINAL_OBSERVATIONS if step.info.get(key) is not None), None)
        return (None, None) if key is None else (self.env.row(step.info[key]), step.info.get(f"_{key}"))

    def next_observation(self, step: DeviceStep, done: torch.Tensor, final: Buffer) -> tuple[Buffer, Info]:
        """Return the observations [B, ...] that the next actions are chosen on, and the info of the reset, if any.

        Args:
            step: whose episodes have ended where `done` [B] is True.
            done: bool.
            final: a copy of what `final` returned.
        """
        return step.observation, {}


class LastObservation(Ends):
    """Environments that reset themselves and lose the final observation: the one before it stands for it."""

    estimated: ClassVar[bool] = True

    def final(self, step: DeviceStep, before: Buffer) -> tuple[Buffer, torch.Tensor | None]:
        """Return the observations before the step."""
        return before, None


class ResetFromOutside(Ends):
    """Environments that do not reset themselves, but some of them when they are told.

    They are told by `reset(env_ids=...)`, numbers of environments, for which the loop waits for the device once a step;
    or by `reset(options={"reset_mask": ...})`, a mask [B], in every step.
    """

    def __init__(self, env: DeviceEnv) -> None:
        super().__init__(env)
        self._by_ids = has_parameter(env.env.reset, "env_ids")

    def final(self, step: DeviceStep, before: Buffer) -> tuple[Buffer, torch.Tensor | None]:
        """Return the observations of the step."""
        return step.observation, None

    def next_observation(self, step: DeviceStep, done: torch.Tensor, final: Buffer) -> tuple[Buffer, Info]:
        """Reset the environments whose episodes have ended; return the observations of all, and info."""
        env = self.env
        if self._by_ids:
            ids = done.nonzero().squeeze(1)
            if not len(ids):
                return final, {}
            reset, info = env.called("reset", env.env.reset, env_ids=ids)
        else:
            reset, info = env.called("reset", env.env.reset, options={"reset_mask": done})
        # The others are as they were: a simulator may give anything for them, in memory that it uses again.
        old = iter(buffer_leaves(final))
        return buffer_func(env.row(reset), lambda x: torch.where(broadcast_mask(done, x), x, next(old))), info


ENDS: Mapping[str, type[Ends]] = {
    "final_obs": Ends,
    "reset": ResetFromOutside,
    "last_observation": LastObservation,
}
"""Ways in which episodes end, by the setting that names them."""


def make_ends(env: DeviceEnv, ends: str) -> Ends:
    """Return the way in which the episodes of an environment end: the one that is named, or for "auto" found."""
    mode = named_mode(env.env)
    if mode is AutoresetMode.NEXT_STEP:
        raise ValueError(
            f"{env.name}: its autoreset mode is NEXT_STEP, which takes a step for each reset; expected SAME_STEP or "
            "DISABLED. Make it in AutoresetMode.SAME_STEP, with final_obs in info."
        )
    if ends == "auto":
        cfg = getattr(env.env, "cfg", None)
        default = getattr(cfg, "auto_reset", mode is not AutoresetMode.DISABLED)
        ends = "final_obs" if getattr(env.env, "auto_reset", default) else "reset"
    return ENDS[ends](env)
