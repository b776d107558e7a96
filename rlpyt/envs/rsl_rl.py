"""Simulators with the interface of rsl_rl, for `DeviceSampler`: those of mjlab, Isaac Lab, Playground, Genesis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from gymnasium.spaces import Box, Dict

from rlpyt.envs.device_env import FINAL_OBSERVATIONS
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import Space
from rlpyt.types import Info, Kwargs


class RslRlEnv:
    """Environment of rsl_rl (`VecEnv` of its version 3 and later) with the interface that `DeviceSampler` takes.

    It has `num_envs`, `num_actions`, `reset()`, `get_observations()`, which returns a dictionary (or TensorDict) of
    groups of numbers [num_envs, n], and `step(actions)`, which returns groups, rewards, dones and extras. An episode
    whose `extras["time_outs"]` is true is truncated. rsl_rl asks for no final observation. Where the simulator gives
    one, it is in extras by a name of `rlpyt.envs.device_env.FINAL_OBSERVATIONS`; else the sampler needs
    ends="last_observation".

    Args:
        EnvCls: makes the environment.
        env_kwargs: its arguments.
        groups: groups that are observed, all by default. One alone is a vector, several are a dictionary.
        action_limit: bound of the actions, to which they are clipped, and the unit of the agent's. rsl_rl has none.
        random_lengths: whether episodes begin at random times of their length (`episode_length_buf`), so that they do
            not end together.

    Raises:
        TypeError: if the environment cannot be reset.
        ValueError: if there is no such group, or one is no vector.
    """

    metadata: Mapping[str, object] = {"autoreset_mode": "SAME_STEP"}

    def __init__(
        self,
        EnvCls: Callable[..., object],
        env_kwargs: Kwargs | None = None,
        *,
        groups: Sequence[str] = (),
        action_limit: float = 1.0,
        random_lengths: bool = False,
    ) -> None:
        self.env = cast(Buffer, EnvCls(**(env_kwargs or {})))
        self.num_envs, self.random_lengths = int(self.env.num_envs), random_lengths
        first = self.env.get_observations()
        self._groups = list(groups or first.keys())
        missing = [group for group in self._groups if group not in set(first.keys())]
        if missing or any(first[group].dim() != 2 for group in self._groups if group not in missing):
            shapes = {name: list(x.shape) for name, x in first.items()}
            raise ValueError(f"RslRlEnv: groups is {self._groups}; expected groups of vectors among {shapes}.")
        parts: list[tuple[str, Space]] = [(x, Box(-np.inf, np.inf, (first[x].shape[1],))) for x in self._groups]
        self.single_observation_space: Space = Dict(parts) if len(parts) > 1 else parts[0][1]
        self.single_action_space = Box(-action_limit, action_limit, (int(self.env.num_actions),))

    def reset(self, seed: int | None = None) -> tuple[Buffer, Info]:
        """Begin an episode in every environment; a seed reaches simulators that have a method `seed`."""
        if seed is not None and callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        self.env.reset()
        if self.random_lengths:
            lengths = self.env.episode_length_buf
            generator = torch.Generator(lengths.device).manual_seed(seed or 0)
            share = torch.rand(lengths.shape, generator=generator, device=lengths.device)
            self.env.episode_length_buf = (share * self.env.max_episode_length).to(lengths.dtype)
        return self._shown(self.env.get_observations()), {}

    def step(self, action: torch.Tensor) -> tuple[Buffer, torch.Tensor, torch.Tensor, torch.Tensor, Info]:
        """Take one step in every environment."""
        groups, reward, dones, extras = self.env.step(action)
        done, timed_out = dones.bool(), extras.get("time_outs")
        truncated = torch.zeros_like(done) if timed_out is None else timed_out.bool() & done
        finals = {key: self._shown(extras[key]) for key in FINAL_OBSERVATIONS if isinstance(extras.get(key), Mapping)}
        return self._shown(groups), reward, done & ~truncated, truncated, {**extras, **finals}

    def close(self) -> None:
        """Close the simulator, if it can be closed."""
        getattr(self.env, "close", lambda: None)()

    def _shown(self, groups: Buffer) -> Buffer:
        if len(self._groups) == 1:
            return groups[self._groups[0]]
        return {group: groups[group] for group in self._groups}
