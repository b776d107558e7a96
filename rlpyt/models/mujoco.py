"""The vector models for continuous actions with rlpyt 0.1's names, arguments, sizes and initialisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.encoders import VectorEncoder
from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.recurrent import RecurrentCore, RnnState
from rlpyt.models.running_mean_std import RunningMeanStdModel


def _encoder(
    observation_shape: Sequence[int], normalize_observation: bool, clip: float, var_clip: float
) -> VectorEncoder:
    shape = (math.prod(observation_shape),)
    return VectorEncoder(
        observation_shape, RunningMeanStdModel(shape, clip, var_clip) if normalize_observation else None
    )


class MujocoFfModel(Model):
    """Separate networks for policy and value; returns `(mean, log_std, value)`.

    `log_std` is one parameter a dimension. The mean is in units in which the bounds of the actions are -1 and 1.

    Args:
        observation_shape: of one observation, flattened.
        action_size: A.
        hidden_sizes: of each network.
        hidden_nonlinearity: of the hidden layers.
        mu_nonlinearity: over the mean; None leaves it linear.
        init_log_std: what `log_std` starts from.
        normalize_observation: whether to normalise by running statistics.
        norm_obs_clip: bound of a normalised observation.
        norm_obs_var_clip: least variance to divide by.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        hidden_sizes: int | Sequence[int] = (64, 64),
        hidden_nonlinearity: Nonlinearity = nn.Tanh,
        mu_nonlinearity: Nonlinearity | None = nn.Tanh,
        init_log_std: float = 0.0,
        normalize_observation: bool = False,
        norm_obs_clip: float = 10.0,
        norm_obs_var_clip: float = 1e-6,
    ) -> None:
        encoder = _encoder(observation_shape, normalize_observation, norm_obs_clip, norm_obs_var_clip)
        super().__init__(encoder)
        mu = MlpModel(encoder.output_size, hidden_sizes, action_size, hidden_nonlinearity)
        self.mu = mu if mu_nonlinearity is None else nn.Sequential(mu, mu_nonlinearity())
        self.v = MlpModel(encoder.output_size, hidden_sizes, 1, hidden_nonlinearity)
        self.log_std = nn.Parameter(torch.full((action_size,), float(init_log_std)))

    def forward(
        self, observation: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return mean and log_std, [..., A] each, and the value [...]."""
        x, _ = self.features(observation, prev_action, prev_reward)
        mean = self.mu(x)
        return mean, self.log_std.expand_as(mean), self.v(x).squeeze(-1)


class MujocoLstmModel(Model):
    """Linear heads over one LSTM; returns `(mean, log_std, value, next_rnn_state)`, log_std depending on the state.

    Args:
        observation_shape: of one observation, flattened.
        action_size: A.
        hidden_sizes: of the layers before the LSTM.
        lstm_size: units of the LSTM.
        nonlinearity: of the hidden layers.
        normalize_observation: whether to normalise by running statistics.
        norm_obs_clip: bound of a normalised observation.
        norm_obs_var_clip: least variance to divide by.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        hidden_sizes: int | Sequence[int] = (256, 256),
        lstm_size: int = 256,
        nonlinearity: Nonlinearity = nn.ReLU,
        normalize_observation: bool = False,
        norm_obs_clip: float = 10.0,
        norm_obs_var_clip: float = 1e-6,
    ) -> None:
        encoder = _encoder(observation_shape, normalize_observation, norm_obs_clip, norm_obs_var_clip)
        trunk = MlpModel(encoder.output_size, hidden_sizes, nonlinearity=nonlinearity)
        core = RecurrentCore(trunk.output_size + action_size + 1, lstm_size)
        super().__init__(encoder, trunk, core)
        self.head = MlpModel(lstm_size, None, 2 * action_size + 1)
        self._splits = [action_size, action_size, 1]

    def forward(
        self,
        observation: torch.Tensor,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:
        """Return mean and log_std, [..., A] each, the value [...] and the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        mean, log_std, value = self.head(x).split(self._splits, -1)
        return mean, log_std, value.squeeze(-1), next_rnn_state
