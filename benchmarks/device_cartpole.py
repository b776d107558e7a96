"""The environment of the benchmarks of simulators."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

LIMIT = 500


class CartPole:
    """The cart-pole of gymnasium as tensors; it resets itself and hands the final observation over.

    Without `falls` a pole may turn round, and episodes begin at any time of their 500 steps. With `continuous` the
    force is ten times the action.
    """

    single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    single_action_space: spaces.Space[Any]

    def __init__(self, num_envs: int, device: str = "cpu", falls: bool = True, continuous: bool = False) -> None:
        self.num_envs, self.device, self.falls, self.continuous = num_envs, device, falls, continuous
        self.single_action_space = spaces.Box(-1.0, 1.0, (1,)) if continuous else spaces.Discrete(2)
        self.generator = torch.Generator(device)
        self.state = torch.zeros(num_envs, 4, device=device)
        self.t = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def begin(self, where: torch.Tensor) -> None:
        fresh = torch.rand(self.num_envs, 4, generator=self.generator, device=self.device) * 0.1 - 0.05
        self.state = torch.where(where[:, None], fresh, self.state)
        self.t.masked_fill_(where, 0)

    def reset(self, seed: int | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        if seed is not None:
            self.generator.manual_seed(seed)
        self.begin(torch.ones(self.num_envs, dtype=torch.bool, device=self.device))
        if not self.falls:
            self.t = torch.randint(LIMIT, (self.num_envs,), generator=self.generator, device=self.device)
        return self.state, {}

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        x, v, angle, w = self.state.unbind(1)
        force = 10 * action[:, 0].clamp(-1.0, 1.0) if self.continuous else torch.where(action == 1, 10.0, -10.0)
        cos, sin = angle.cos(), angle.sin()
        push = (force + 0.05 * w * w * sin) / 1.1
        angular = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        forward = push - 0.05 * angular * cos / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * forward, angle + 0.02 * w, w + 0.02 * angular], 1)
        self.t += 1
        terminated = ((self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.2095)) & self.falls
        truncated = self.t >= LIMIT
        final = self.state
        self.begin(terminated | truncated)
        return self.state, torch.ones_like(x), terminated, truncated, {"final_obs": final}
