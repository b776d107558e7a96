"""The default policy-gradient model, for any pair of spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.encoders import EncoderSettings, encoded_action_size, is_image, make_encoder
from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.recurrent import RecurrentCore, RnnState
from rlpyt.models.utils import as_sizes, init_orthogonal


class PgModel(Model):
    """Policy and value for any observation and action space, feed-forward or recurrent.

    Returns `(logits, value)`, or `(mean, log_std, value)` for a Box of actions, and the next state if recurrent.
    `log_std` is one parameter a dimension, whatever the state, or linear in the policy's last layer.

    Args:
        observation_space: see `make_encoder`.
        action_space: Discrete, MultiDiscrete, MultiBinary or Box.
        hidden_sizes: layers over the features, except where the observation is one image, whose are `fc_sizes`.
        nonlinearity: of these layers; image networks have ReLU.
        channels: of the convolutions over images, as are the three that follow.
        kernel_sizes: of each layer.
        strides: of each layer.
        paddings: of each layer.
        use_maxpool: whether to shrink by max pooling instead of by strides.
        fc_sizes: fully connected layers over the convolutions.
        recurrent: None, "lstm" or "gru".
        rnn_size: units of the recurrent layer.
        normalize_observation: whether vectors are normalised by running statistics.
        init_log_std: what `log_std` starts from, in units in which the bounds of the actions are -1 and 1.
        state_dependent_std: whether `log_std` depends on the state.
        share_trunk: whether policy and value are linear in the same layers, or have layers each over the same
            features; None shares for images and recurrent models.
        orthogonal_init: whether weights start orthogonal (gain sqrt 2; 0.01 of the policy's head, 1 of the value's)
            instead of torch's way.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        *,
        hidden_sizes: int | Sequence[int] = (64, 64),
        nonlinearity: Nonlinearity = nn.Tanh,
        channels: Sequence[int] = (32, 64, 64),
        kernel_sizes: Sequence[int] = (8, 4, 3),
        strides: Sequence[int] = (4, 2, 1),
        paddings: Sequence[int] = (0, 0, 0),
        use_maxpool: bool = False,
        fc_sizes: int | Sequence[int] = 512,
        recurrent: str | None = None,
        rnn_size: int = 256,
        normalize_observation: bool = False,
        init_log_std: float = 0.0,
        state_dependent_std: bool = False,
        share_trunk: bool | None = None,
        orthogonal_init: bool = True,
    ) -> None:
        action_size = encoded_action_size(action_space)
        image = is_image(observation_space)
        encoder = make_encoder(
            observation_space,
            EncoderSettings(
                channels=channels,
                kernel_sizes=kernel_sizes,
                strides=strides,
                paddings=paddings,
                use_maxpool=use_maxpool,
                fc_sizes=None if image else fc_sizes,
                normalize_observation=normalize_observation,
            ),
        )
        sizes = as_sizes(fc_sizes if image else hidden_sizes)
        nonlinearity = nn.ReLU if image else nonlinearity
        share = encoder.has_image or recurrent is not None if share_trunk is None else share_trunk
        trunk = MlpModel(encoder.output_size, sizes if share else None, nonlinearity=nonlinearity)
        core = (
            None if recurrent is None else RecurrentCore(trunk.output_size + action_size + 1, rnn_size, kind=recurrent)
        )
        super().__init__(encoder, trunk, core)
        size = trunk.output_size if core is None else core.output_size
        box = isinstance(action_space, spaces.Box)
        self._init_log_std = float(init_log_std) if box and state_dependent_std else None
        policy_size = action_size if self._init_log_std is None else 2 * action_size
        self.policy = MlpModel(size, None if share else sizes, policy_size, nonlinearity)
        self.value = MlpModel(size, None if share else sizes, 1, nonlinearity)
        self.log_std: nn.Parameter | None = None
        if box and not state_dependent_std:
            self.log_std = nn.Parameter(torch.full((action_size,), float(init_log_std)))
        if orthogonal_init:
            init_orthogonal(self)
            init_orthogonal(self.policy[-1], 0.01)
            init_orthogonal(self.value[-1], 1.0)

    def forward(
        self,
        observation: Any,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:
        """Return the policy's parameters [..., A], the value [...] and, if recurrent, the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        policy, value = self.policy(x), self.value(x).squeeze(-1)
        outputs: tuple[Any, ...] = (policy, value)
        if self.log_std is not None:
            outputs = (policy, self.log_std.expand_as(policy), value)
        elif self._init_log_std is not None:
            mean, log_std = policy.chunk(2, dim=-1)
            outputs = (mean, log_std + self._init_log_std, value)
        return outputs if next_rnn_state is None else (*outputs, next_rnn_state)
