"""Action values with batch normalisation, and an agent that has them and no targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from rlpyt.agents import SacAgent


class NormalisedQ(nn.Module):
    """Networks of action values [n_models, M] whose layers are normalised over the rows of the call."""

    def __init__(self, observation_shape: Sequence[int], action_size: int, n_models: int, size: int = 256) -> None:
        super().__init__()
        n = math.prod(observation_shape) + action_size

        def network() -> nn.Sequential:
            norm = nn.BatchNorm1d
            layers = [norm(n), nn.Linear(n, size), nn.ReLU(), norm(size), nn.Linear(size, size), nn.ReLU(), norm(size)]
            return nn.Sequential(*layers, nn.Linear(size, 1))

        self.networks = nn.ModuleList(network() for _ in range(n_models))

    def forward(self, observation: torch.Tensor, prev_action: object, prev_reward: object, action: torch.Tensor):
        x = torch.cat([observation, action], -1)
        return torch.stack([network(x).squeeze(-1) for network in self.networks])


class CrossQAgent(SacAgent):
    has_targets = False
