"""Default model of Q-learning, for any observation space, and its heads: of one stream, or of value and advantage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from gymnasium import Space, spaces
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.conv import NATURE, ConvSettings, takes_layers
from rlpyt.models.encoders import Observation, encoded_action_size, encoder_and_layers
from rlpyt.models.layers import Layers, features_of
from rlpyt.models.mlp import MlpModel, Nonlinearity, output_layer
from rlpyt.models.recurrent import RnnState, make_core
from rlpyt.models.utils import scale_grad
from rlpyt.namedarraytuple import NamedArrayTuple


class DuelingHeadModel(nn.Module):
    """Head with a value stream and an advantage stream over the same features.

        q(s, a) = v(s) + A(s, a) - mean_a' A(s, a')

    Args:
        input_size: number of features.
        hidden_sizes: of each stream.
        output_size: number of actions.
        grad_scale: factor of the gradient into the features, to which two streams contribute.
        nonlinearity: of the hidden layers.
        noisy: whether the layers are `NoisyLinear`.
        n_atoms: outputs per action, such as atoms of a distribution; the value stream has as many. None is one output
            without a dimension of its own.
        layer_norm: whether hidden layers are normalised; see `MlpModel`.

    Source: Wang et al. 2016, arXiv:1511.06581.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: int | Sequence[int],
        output_size: int,
        grad_scale: float = 2 ** (-1 / 2),
        nonlinearity: Nonlinearity = nn.ReLU,
        noisy: bool = False,
        n_atoms: int | None = None,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self._n_atoms, n = n_atoms, n_atoms or 1
        self.advantage_hidden = MlpModel(input_size, hidden_sizes, None, nonlinearity, noisy, layer_norm)
        # Without the bias of rlpyt 0.1, which all actions shared: subtracting the mean removes it.
        self.advantage = output_layer(self.advantage_hidden.output_size, output_size * n, noisy=noisy, bias=False)
        self.value = MlpModel(input_size, hidden_sizes, n, nonlinearity, noisy, layer_norm)
        self.grad_scale = grad_scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return q [..., output_size], or [..., output_size, n_atoms], of features [..., input_size]."""
        x = scale_grad(x, self.grad_scale)
        value, advantage = self.value(x), self.advantage(self.advantage_hidden(x))
        if self._n_atoms is None:
            return value + (advantage - advantage.mean(-1, keepdim=True))
        advantage = advantage.unflatten(-1, (-1, self._n_atoms))
        return value.unsqueeze(-2) + (advantage - advantage.mean(-2, keepdim=True))


class QHeadModel(nn.Module):
    """Head with a single stream; see `DuelingHeadModel` for its arguments and outputs."""

    def __init__(
        self,
        input_size: int,
        hidden_sizes: int | Sequence[int],
        output_size: int,
        nonlinearity: Nonlinearity = nn.ReLU,
        noisy: bool = False,
        n_atoms: int | None = None,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self._n_atoms = n_atoms
        self.q = MlpModel(input_size, hidden_sizes, output_size * (n_atoms or 1), nonlinearity, noisy, layer_norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return q [..., output_size], or [..., output_size, n_atoms], of features [..., input_size]."""
        q = self.q(x)
        return q if self._n_atoms is None else q.unflatten(-1, (-1, self._n_atoms))


class QModel(Model):
    """Q-values of discrete actions for any observation space, feed-forward or recurrent.

    Returns `q` [..., A], or [..., A, n_atoms]; `(q, next_rnn_state)` if recurrent. The head takes the last hidden
    layer. A dueling head has it in both streams. A recurrent model has it before and, in the head, after the recurrent
    layer, as R2D2 does.

    Args:
        observation_space: see `make_encoder`.
        action_space: Discrete.
        hidden_sizes: layers over the features; where the observation is a single image, `conv.fc_sizes` replace them.
        nonlinearity: of these layers; where the observation is a single image it is ReLU.
        layers: kind of these layers, such as "simba"; see `rlpyt.models.layers`. With another kind than "mlp" all of
            them are below the head, which is linear unless it has `head_sizes`.
        conv: sizes of the layers over images. Its fields are also arguments of their own: `channels=(16, 32)`.
        head_sizes: hidden layers of the head, over all the layers above; None moves the last of these into the head.
        dueling: whether the head is a `DuelingHeadModel`.
        noisy: whether the head's layers are `NoisyLinear`.
        n_atoms: outputs per action: logits of the atoms of a categorical distribution, or quantiles. None gives q.
        recurrent: None, "lstm" or "gru".
        rnn_size: units of the recurrent layer.
        normalize_observation: whether vectors are normalised by running statistics.
        layer_norm: whether all hidden layers, convolutions too, are normalised; see `MlpModel` and `ConvSettings`.

    Raises:
        TypeError: if the action space is not Discrete.
    """

    @takes_layers
    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        hidden_sizes: int | Sequence[int] = (128, 128),
        nonlinearity: Nonlinearity = nn.ReLU,
        layers: Layers = "mlp",
        conv: ConvSettings = NATURE,
        head_sizes: int | Sequence[int] | None = None,
        dueling: bool = False,
        noisy: bool = False,
        n_atoms: int | None = None,
        recurrent: str | None = None,
        rnn_size: int = 512,
        normalize_observation: bool = False,
        layer_norm: bool = False,
    ) -> None:
        if not isinstance(action_space, spaces.Discrete):
            raise TypeError(
                f"QModel: the action space is {action_space}; expected Discrete, with one output per action. "
                "Use a policy-gradient agent."
            )
        action_size = encoded_action_size(action_space)
        conv = replace(conv, conv_layer_norm=layer_norm or conv.conv_layer_norm)
        under = encoder_and_layers(observation_space, conv, normalize_observation, hidden_sizes, nonlinearity)
        encoder, sizes, nonlinearity = under
        if layers != "mlp" and head_sizes is None:
            head_sizes = ()
        trunk_sizes = sizes[:-1] if recurrent is None and head_sizes is None else sizes
        trunk = features_of(layers, encoder.output_size, trunk_sizes, nonlinearity, layer_norm)
        core = make_core(recurrent, trunk.output_size + action_size + 1, rnn_size)
        super().__init__(encoder, trunk, core)
        self.feature_size = trunk.output_size if core is None else core.output_size
        Head = DuelingHeadModel if dueling else QHeadModel
        self.head = Head(
            self.feature_size,
            sizes[-1:] if head_sizes is None else head_sizes,
            action_size,
            nonlinearity=nonlinearity,
            noisy=noisy,
            n_atoms=n_atoms,
            layer_norm=layer_norm,
        )

    def forward(
        self,
        observation: Observation,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> torch.Tensor | NamedArrayTuple | tuple[torch.Tensor | NamedArrayTuple, RnnState]:
        """Return q and, if recurrent, the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        q = self.head(x)
        return q if next_rnn_state is None else (q, next_rnn_state)
