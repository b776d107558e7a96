"""The models of DDPG, TD3 and SAC: features of any observation, and over them policies and action values.

Names, arguments and defaults of the policies and of the action values are those of rlpyt 0.1. What they call the
observation is the vector of features; of a Box without images, it is the observation itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import Space
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.encoders import EncoderSettings, make_encoder
from rlpyt.models.ensemble import EnsembleMlpModel
from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.recurrent import RecurrentCore, RnnState


class FeatureModel(Model):
    """Features [..., F] of any observation space, feed-forward or recurrent, which policy and action values share.

    Returns the features, and the next state if recurrent. A vector is its own features: nothing is shared then.

    Args:
        observation_space: see `make_encoder`.
        action_size: A, of the previous action, which a recurrent model sees.
        hidden_sizes: layers over the encoder; none by default.
        nonlinearity: of these layers.
        image_feature_size: of a linear layer with layer normalisation and tanh that follows where there is an image, as
            in DrQ (Yarats et al. 2021, arXiv:2004.13649).
        channels: of the convolutions over images, as are the three that follow; those of DrQ by default.
        kernel_sizes: of each layer.
        strides: of each layer.
        paddings: of each layer.
        recurrent: None, "lstm" or "gru".
        rnn_size: units of the recurrent layer.
        normalize_observation: whether vectors are normalised by running statistics.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_size: int,
        *,
        hidden_sizes: int | Sequence[int] | None = None,
        nonlinearity: Nonlinearity = nn.ReLU,
        image_feature_size: int = 50,
        channels: Sequence[int] = (32, 32, 32, 32),
        kernel_sizes: Sequence[int] = (3, 3, 3, 3),
        strides: Sequence[int] = (2, 1, 1, 1),
        paddings: Sequence[int] = (0, 0, 0, 0),
        recurrent: str | None = None,
        rnn_size: int = 256,
        normalize_observation: bool = False,
    ) -> None:
        encoder = make_encoder(
            observation_space,
            EncoderSettings(
                channels=channels,
                kernel_sizes=kernel_sizes,
                strides=strides,
                paddings=paddings,
                use_maxpool=False,
                fc_sizes=None,
                normalize_observation=normalize_observation,
            ),
        )
        trunk = MlpModel(encoder.output_size, hidden_sizes, nonlinearity=nonlinearity)
        if encoder.has_image:
            size = trunk.output_size
            trunk.extend([nn.Linear(size, image_feature_size), nn.LayerNorm(image_feature_size), nn.Tanh()])
            trunk.output_size = image_feature_size
        core = (
            None if recurrent is None else RecurrentCore(trunk.output_size + action_size + 1, rnn_size, kind=recurrent)
        )
        super().__init__(encoder, trunk, core)
        self.output_size = trunk.output_size if core is None else core.output_size

    def forward(
        self,
        observation: Any,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> Any:
        """Return features and, if recurrent, the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        return x if next_rnn_state is None else (x, next_rnn_state)


class MuMlpModel(nn.Module):
    """A deterministic policy; returns mu [..., action_size] in (-output_max, output_max).

    Args:
        observation_shape: of the features, flattened.
        hidden_sizes: fully connected layers.
        action_size: A.
        output_max: of tanh; 1 stands for the bounds of the actions.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        hidden_sizes: int | Sequence[int],
        action_size: int,
        output_max: float = 1.0,
    ) -> None:
        super().__init__()
        self.mlp = MlpModel(math.prod(observation_shape), hidden_sizes, action_size)
        self.output_max = output_max

    def forward(self, observation: torch.Tensor, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Return mu of features [..., F]."""
        mu = self.mlp(observation).tanh()
        return mu if self.output_max == 1.0 else self.output_max * mu


class PiMlpModel(nn.Module):
    """A Gaussian policy whose standard deviation depends on the state; returns mean and log_std, [..., A] each.

    Args:
        observation_shape: of the features, flattened.
        hidden_sizes: fully connected layers.
        action_size: A.
    """

    def __init__(self, observation_shape: Sequence[int], hidden_sizes: int | Sequence[int], action_size: int) -> None:
        super().__init__()
        self.mlp = MlpModel(math.prod(observation_shape), hidden_sizes, 2 * action_size)

    def forward(
        self, observation: torch.Tensor, prev_action: Any, prev_reward: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and log_std of features [..., F]."""
        mean, log_std = self.mlp(observation).chunk(2, dim=-1)
        return mean, log_std


class QofMuMlpModel(nn.Module):
    """The values of actions, by `n_models` networks at once; returns [n_models, ...].

    Args:
        observation_shape: of the features, flattened.
        hidden_sizes: fully connected layers of each network.
        action_size: A.
        n_models: networks with weights of their own.
        dropout: see `EnsembleMlpModel`; DroQ has 0.01 with layer_norm.
        layer_norm: see `EnsembleMlpModel`.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        hidden_sizes: int | Sequence[int],
        action_size: int,
        n_models: int = 1,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        size = math.prod(observation_shape) + action_size
        self.mlp = EnsembleMlpModel(n_models, size, hidden_sizes, 1, dropout=dropout, layer_norm=layer_norm)

    def forward(
        self,
        observation: torch.Tensor,
        prev_action: Any,
        prev_reward: Any,
        action: torch.Tensor,
        n_models: int | None = None,
    ) -> torch.Tensor:
        """Return the values of actions [..., A], in units of the bounds, at features [..., F].

        With `n_models` the first so many networks are computed alone.
        """
        return self.mlp(torch.cat([observation, action], -1), n_models).squeeze(-1)


class ActorModel(nn.Module):
    """Features and the policy over them: what acting takes.

    Args:
        body: see `FeatureModel`.
        pi: see `MuMlpModel` and `PiMlpModel`.
    """

    def __init__(self, body: Model, pi: nn.Module) -> None:
        super().__init__()
        self.body: Model = body
        self.pi: nn.Module = pi

    def forward(
        self,
        observation: Any,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> Any:
        """Return what the policy gives and, if recurrent, the next state; see `Model`."""
        if not self.body.recurrent:
            return self.pi(self.body(observation, prev_action, prev_reward), prev_action, prev_reward)
        x, next_rnn_state = self.body(observation, prev_action, prev_reward, rnn_state, episode_start)
        return self.pi(x, prev_action, prev_reward), next_rnn_state
