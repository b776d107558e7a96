"""Batched environments of tensors, in all ways in which episodes end, and the same environments for gymnasium.

Each is written once, for a batch: a single environment is a batch of one, so that the arithmetic is the same.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

Tensor = torch.Tensor


class Batched:
    """Base: many environments in lock step, with one buffer of observations that every step writes again.

    A subclass has spaces, `first(ids)`, the states of new episodes, `move(action)`, which changes `self.state` and
    returns reward and terminated, and `observe()`.

    Args:
        num_envs: environments.
        dialect: how the episodes end: "final_obs", "final_observation" (with a mask), "reset_mask", "env_ids" or
            "lost".
        limit: steps after which an episode is truncated.
        device: of all tensors.
        first_id: number of the first environment.
    """

    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    state_size: int

    def __init__(
        self,
        num_envs: int,
        dialect: str = "final_obs",
        limit: int = 20,
        device: str = "cpu",
        first_id: int = 0,
        noise: int = 0,
    ) -> None:
        self.num_envs, self.dialect, self.limit, self.device = num_envs, dialect, limit, torch.device(device)
        outside = dialect in ("reset_mask", "env_ids")
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED if outside else AutoresetMode.SAME_STEP}
        self.ids = torch.arange(first_id, first_id + num_envs).to(self.device)
        self.state = torch.zeros(num_envs, self.state_size, device=self.device)
        self.t, self.episode = (torch.zeros(num_envs, dtype=torch.int64, device=self.device) for _ in range(2))
        self.closed = False
        shape = (num_envs, *(self.single_observation_space.shape or ()))
        self._observation = torch.zeros(shape, device=self.device)
        self._reward = torch.zeros(num_envs, device=self.device)
        if dialect == "env_ids":
            self.reset = self._reset_ids  # type: ignore[method-assign, assignment]

    def first(self) -> Tensor:
        raise NotImplementedError

    def move(self, action: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def observe(self) -> Any:
        return self.state

    def _shown(self) -> Any:
        return self._observation.copy_(self.observe())

    def _begin(self, where: Tensor) -> None:
        self.episode += where
        self.t.masked_fill_(where, 0)
        self.state = torch.where(where[:, None], self.first(), self.state)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Tensor, dict[str, Any]]:
        if seed is not None:
            self.episode.fill_(-1)
        self._begin(torch.ones_like(self.t, dtype=torch.bool) if not options else options["reset_mask"])
        return self._shown(), {}

    def _reset_ids(self, *, seed: int | None = None, env_ids: Any = None) -> tuple[Tensor, dict[str, Any]]:
        where = torch.ones(self.num_envs, dtype=torch.bool).to(self.device)
        if env_ids is not None:
            where = torch.zeros_like(where).index_fill(0, env_ids, True)
        if seed is not None:
            self.episode.fill_(-1)
        self._begin(where)
        if env_ids is not None:  # the others may be anything
            return self._shown().masked_fill_(~where[:, None], torch.nan), {}
        return self._shown(), {}

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        self.t += 1
        reward, terminated = self.move(action)
        truncated = self.t >= self.limit
        done, info = terminated | truncated, dict[str, Any]()
        if self.dialect in ("reset_mask", "env_ids"):
            return self._shown(), self._reward.copy_(reward), terminated, truncated, info
        if self.dialect == "final_obs":
            info["final_obs"] = self.observe().clone()
        elif self.dialect == "final_observation":
            info |= {"final_observation": self.observe().clone(), "_final_observation": done}
        self._begin(done)
        return self._shown(), self._reward.copy_(reward), terminated, truncated, info

    def close(self) -> None:
        self.closed = True


class CartPole(Batched):
    """The cart and pole of gymnasium, in float32; episodes begin at places that follow from their number."""

    single_observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    single_action_space: spaces.Space[Any] = spaces.Discrete(2)
    state_size = 4

    def first(self) -> Tensor:
        k = torch.arange(4, device=self.device)
        return 0.05 * torch.sin(12.9898 * (self.ids[:, None] + 7.0 * self.episode[:, None] + 1.0) + 78.233 * k)

    def move(self, action: Tensor) -> tuple[Tensor, Tensor]:
        x, v, angle, w = self.state.unbind(1)
        force = torch.where(action == 1, 10.0, -10.0)
        cos, sin = angle.cos(), angle.sin()
        push = (force + 0.05 * w * w * sin) / 1.1
        angular = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        forward = push - 0.05 * angular * cos / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * forward, angle + 0.02 * w, w + 0.02 * angular], 1)
        fallen = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.2095)
        return torch.ones_like(x), fallen


class Pendulum(Batched):
    """The pendulum of gymnasium; it never terminates."""

    single_observation_space: spaces.Space[Any] = spaces.Box(-8.0, 8.0, (3,), np.float32)
    single_action_space: spaces.Space[Any] = spaces.Box(-2.0, 2.0, (1,), np.float32)
    state_size = 2

    def first(self) -> Tensor:
        n = 12.9898 * (self.ids + 7.0 * self.episode + 1.0)
        return torch.stack([torch.pi * torch.sin(n), torch.sin(n + 78.233)], 1)

    def observe(self) -> Any:
        angle, w = self.state.unbind(1)
        return torch.stack([angle.cos(), angle.sin(), w], 1)

    def move(self, action: Tensor) -> tuple[Tensor, Tensor]:
        angle, w = self.state.unbind(1)
        u = action[:, 0]
        off = torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
        reward = -(off * off + 0.1 * w * w + 0.001 * u * u)
        w = (w + (15.0 * angle.sin() + 3.0 * u) * 0.05).clamp(-8.0, 8.0)
        self.state = torch.stack([angle + w * 0.05, w], 1)
        return reward, torch.zeros_like(reward, dtype=torch.bool)


class Single(gymnasium.Env[Any, Any]):
    """One environment of a batch of one, for gymnasium; environments are numbered in the order of their making."""

    n_made = 0

    def __init__(self, Cls: type[Batched], limit: int = 20, first_id: int | None = None) -> None:
        self.Cls, self.limit = Cls, limit
        self.observation_space, self.action_space = Cls.single_observation_space, Cls.single_action_space
        if first_id is None:
            first_id, Single.n_made = Single.n_made, Single.n_made + 1
        self.env = Cls(1, "reset_mask", limit, first_id=first_id)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.env.reset(seed=seed)[0][0].numpy().copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = self.env.step(torch.as_tensor(np.asarray(action))[None])
        return observation[0].numpy().copy(), float(reward), bool(terminated), bool(truncated), {}
