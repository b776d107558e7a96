"""Networks without a library, and loops that step a vector environment with one of them.

They are for the bare loop, and for peers that are environments alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from workloads import Clock, Workload

N_ACTIONS = 6
"""Of Pong."""


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Return linear layers with activations between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class Nature(nn.Module):
    """The Nature network over uint8 frames, with heads of some sizes in float32."""

    def __init__(self, *heads: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
        )  # fmt: skip
        self.heads = nn.ModuleList([nn.Linear(512, n) for n in heads])
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, frames: Tensor) -> list[Tensor]:
        """Return the heads' outputs."""
        dtype = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        x = self.body(frames.to(dtype, memory_format=torch.channels_last).div_(255))
        with torch.autocast("cpu", enabled=False):
            return [head(x.float()) for head in self.heads]


class TwoNetworks(nn.Module):
    """Separate networks of 64 x 64 for the policy and the value."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.pi, self.v = mlp(n_in, 64, 64, n_out, act=nn.Tanh), mlp(n_in, 64, 64, 1, act=nn.Tanh)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's parameters and values."""
        return self.pi(x), self.v(x)


def draw(logits: Tensor) -> np.ndarray:
    """Return actions with the probabilities of the logits."""
    return logits.softmax(-1).multinomial(1).squeeze(-1).numpy()


@torch.no_grad()
def choose(model: nn.Module, observation: np.ndarray) -> np.ndarray:
    """Return actions of a policy for the observations of several environments."""
    x = torch.from_numpy(observation)
    return draw(model(x if x.dtype == torch.uint8 else x.float())[0])


def sample(envs: Any, model: nn.Module, work: Workload, clock: Clock) -> None:
    """Step all environments of a gymnasium `VectorEnv` with drawn actions."""
    torch.set_num_threads(1)  # two are slower: the environments need the other core
    observation, steps = envs.reset(seed=0)[0], 0
    while True:
        clock.tick(steps)
        observation = envs.step(choose(model, observation))[0]
        steps += work.n_envs


def sample_in_halves(
    envs: Any,
    first: tuple[np.ndarray, dict[str, Any]],
    send: Callable[[np.ndarray, np.ndarray], None],
    model: nn.Module,
    clock: Clock,
) -> None:
    """Choose actions for the half of the environments that is ready, while threads step the other half.

    `first` is the observations of the half that was ready first, and the info with their numbers. `send` takes actions
    and the numbers of their environments.
    """
    torch.set_num_threads(1)
    (observation, info), steps = first, 0
    while True:
        clock.tick(steps)
        send(choose(model, observation), info["env_id"])
        observation, *_, info = envs.recv()
        steps += len(observation)
