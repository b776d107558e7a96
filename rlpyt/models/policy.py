"""Deterministic policy without a value, for any pair of spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from gymnasium import Space, spaces
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.conv import NATURE, ConvSettings, takes_layers
from rlpyt.models.encoders import Observation, encoded_action_size, make_encoder
from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.utils import as_sizes
from rlpyt.spaces import is_image


class PolicyModel(Model):
    """Deterministic policy for any observation and action space, feed-forward; every parameter decides on actions.

    Returns scores of discrete actions, or mu in [-1, 1] for a Box of actions, [..., A].

    Args:
        observation_space: see `make_encoder`.
        action_space: Discrete, MultiDiscrete, MultiBinary or Box.
        hidden_sizes: layers over the features; where the observation is a single image, `conv.fc_sizes` replace them.
        nonlinearity: of these layers; where the observation is a single image it is ReLU.
        conv: sizes of the layers over images. Its fields are also arguments of their own: `channels=(16, 32)`.
        normalize_observation: whether vectors are normalised by running statistics.
    """

    @takes_layers
    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        hidden_sizes: int | Sequence[int] = (16,),
        nonlinearity: Nonlinearity = nn.Tanh,
        conv: ConvSettings = NATURE,
        normalize_observation: bool = False,
    ) -> None:
        image = is_image(observation_space)
        # The fully connected layers over a single image are those of the policy.
        layers = replace(conv, fc_sizes=None) if image else conv
        super().__init__(make_encoder(observation_space, layers, normalize_observation))
        assert self.encoder is not None
        self.policy = MlpModel(
            self.encoder.output_size,
            as_sizes(conv.fc_sizes if image else hidden_sizes),
            encoded_action_size(action_space),
            nn.ReLU if image else nonlinearity,
        )
        self._bounded = isinstance(action_space, spaces.Box)

    def forward(self, observation: Observation, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return scores or mu [..., A]; see `Model`."""
        x, _ = self.features(observation, prev_action, prev_reward)
        output: torch.Tensor = self.policy(x)
        return output.tanh() if self._bounded else output
