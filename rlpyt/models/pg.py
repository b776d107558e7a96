"""Default models of policies, for any pair of spaces: with a value, and without."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gymnasium import Space, spaces
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.conv import NATURE, ConvSettings, takes_layers
from rlpyt.models.encoders import Observation, encoded_action_size, encoder_and_layers, make_value_encoder
from rlpyt.models.layers import Layers, features_of, tower_of
from rlpyt.models.mlp import Nonlinearity
from rlpyt.models.recurrent import RnnState, make_core
from rlpyt.models.utils import init_orthogonal
from rlpyt.spaces import leaf_spaces


class PgModel(Model):
    """Policy and value for any observation and action space, feed-forward or recurrent.

    Returns `(logits, value)`, or `(mean, log_std, value)` for a Box of actions, and the next state if recurrent. For a
    Dict or Tuple the parameters of all parts come one after the other, and then the value.
    `log_std` is one parameter per dimension. With `state_dependent_std` it is an output of the policy's last layer.

    Args:
        observation_space: see `make_encoder`.
        action_space: Discrete, MultiDiscrete, MultiBinary, Box, or Dict or Tuple of these.
        hidden_sizes: layers over the features; where the observation is a single image, `conv.fc_sizes` replace them.
        nonlinearity: of these layers; where the observation is a single image it is ReLU.
        layers: kind of these layers, such as "simba", with linear outputs; see `rlpyt.models.layers`. Those of another
            kind than "mlp" have a nonlinearity and initial weights of their own.
        conv: sizes of the layers over images. Its fields are also arguments of their own: `channels=(16, 32)`.
        recurrent: None, "lstm" or "gru".
        rnn_size: units of the recurrent layer.
        normalize_observation: whether vectors are normalised by running statistics.
        init_log_std: initial `log_std`, in units in which the bounds of the actions are -1 and 1.
        state_dependent_std: whether `log_std` depends on the state.
        share_trunk: whether policy and value are linear in the same layers. Otherwise each has its own layers over the
            same features. None shares for images and recurrent models.
        orthogonal_init: whether weights start orthogonal, with gain sqrt 2 (0.01 in the policy's last layer, 1 in the
            value's); otherwise they start as torch sets them.
        n_atoms: outputs of the value, which a value head reads; None is the value, without a dimension of its own.
        value_only: keys of a Dict observation that the value sees and the policy does not, such as states that only a
            simulator knows. They do not pass through the recurrent layer, and policy and value share no layers over
            the features.

    Raises:
        ValueError: if `value_only` names another key, or all, or policy and value are to share a trunk.
    """

    @takes_layers
    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        hidden_sizes: int | Sequence[int] = (64, 64),
        nonlinearity: Nonlinearity = nn.Tanh,
        layers: Layers = "mlp",
        conv: ConvSettings = NATURE,
        recurrent: str | None = None,
        rnn_size: int = 256,
        normalize_observation: bool = False,
        init_log_std: float = 0.0,
        state_dependent_std: bool = False,
        share_trunk: bool | None = None,
        orthogonal_init: bool = True,
        n_atoms: int | None = None,
        value_only: Sequence[str] = (),
    ) -> None:
        action_size = encoded_action_size(action_space)
        if value_only and share_trunk:
            raise ValueError("PgModel: value_only and share_trunk are set; expected one of them. Leave one out.")
        value_encoder = make_value_encoder(observation_space, conv, normalize_observation, value_only)
        under = encoder_and_layers(
            observation_space, conv, normalize_observation, hidden_sizes, nonlinearity, without=value_only
        )
        encoder, sizes, nonlinearity = under
        shares = (encoder.has_image or recurrent is not None) and value_encoder is None
        share = shares if share_trunk is None else share_trunk
        trunk = features_of(layers, encoder.output_size, sizes if share else None, nonlinearity)
        core = make_core(recurrent, trunk.output_size + action_size + 1, rnn_size)
        super().__init__(encoder, trunk, core, value_encoder)
        size = trunk.output_size if core is None else core.output_size
        leaves = leaf_spaces(action_space)
        self._are_boxes = [isinstance(leaf, spaces.Box) for leaf in leaves]
        self._sizes = list(map(encoded_action_size, leaves))
        self._std_sizes = [n for n, is_box in zip(self._sizes, self._are_boxes, strict=True) if is_box]
        self._init_log_std = float(init_log_std)
        if self._std_sizes and state_dependent_std:
            self._sizes.append(sum(self._std_sizes))
        self.policy = tower_of(layers, size, None if share else sizes, sum(self._sizes), nonlinearity)
        self._n_atoms = n_atoms
        size += 0 if value_encoder is None else value_encoder.output_size
        self.value = tower_of(layers, size, None if share else sizes, n_atoms or 1, nonlinearity)
        self.log_std: nn.Parameter | None = None
        if self._std_sizes and not state_dependent_std:
            self.log_std = nn.Parameter(torch.full((sum(self._std_sizes),), float(init_log_std)))
        if orthogonal_init:
            init_orthogonal(self)
            init_orthogonal(self.policy[-1], 0.01)
            init_orthogonal(self.value[-1], 1.0)

    def forward(
        self,
        observation: Observation,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor | RnnState, ...]:
        """Return the policy's parameters [..., A], the value [...] and, if recurrent, the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        policy = self.policy(x)
        value = self.value(x if self.value_encoder is None else torch.cat([x, self.value_encoder(observation)], -1))
        value = value.squeeze(-1) if self._n_atoms is None else value
        outputs: tuple[torch.Tensor, ...] = (*self._parameters_of_parts(policy), value)
        return outputs if next_rnn_state is None else (*outputs, next_rnn_state)

    def _parameters_of_parts(self, policy: torch.Tensor) -> list[torch.Tensor]:
        """Return logits, or mean and log_std, of every part of an action, of what the last layer gives."""
        parts, log_std = _split(policy, self._sizes), self.log_std
        if not self._std_sizes:
            return parts
        log_stds = _split(parts.pop() + self._init_log_std if log_std is None else log_std, self._std_sizes)
        parameters = []
        for part, is_box in zip(parts, self._are_boxes, strict=True):
            parameters += [part, log_stds.pop(0).expand_as(part)] if is_box else [part]
        return parameters


def _split(x: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    """Return the pieces of the last dimension; of one there is no view, which would take time."""
    return [x] if len(sizes) == 1 else list(x.split(sizes, -1))


class PolicyModel(Model):
    """Deterministic policy for any observation and action space, feed-forward; every parameter decides on actions.

    Returns scores of discrete actions, or mu in [-1, 1] for a Box of actions, [..., A]. `PgModel` has the arguments.
    """

    @takes_layers
    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        hidden_sizes: int | Sequence[int] = (16,),
        nonlinearity: Nonlinearity = nn.Tanh,
        layers: Layers = "mlp",
        conv: ConvSettings = NATURE,
        normalize_observation: bool = False,
    ) -> None:
        under = encoder_and_layers(observation_space, conv, normalize_observation, hidden_sizes, nonlinearity)
        encoder, sizes, nonlinearity = under
        super().__init__(encoder)
        self.policy = tower_of(layers, encoder.output_size, sizes, encoded_action_size(action_space), nonlinearity)
        self._bounded = isinstance(action_space, spaces.Box)

    def forward(self, observation: Observation, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return scores or mu [..., A]; see `Model`."""
        x, _ = self.features(observation, prev_action, prev_reward)
        output: torch.Tensor = self.policy(x)
        return output.tanh() if self._bounded else output
