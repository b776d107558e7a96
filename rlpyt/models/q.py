"""The default Q network, for any observation space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.dueling import DuelingHeadModel, QHeadModel
from rlpyt.models.encoders import EncoderSettings, is_image, make_encoder
from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.recurrent import RecurrentCore, RnnState
from rlpyt.models.utils import as_sizes


class QModel(Model):
    """Q-values of discrete actions for any observation space, feed-forward or recurrent.

    Returns `q` [..., A], or [..., A, n_atoms]; `(q, next_rnn_state)` if recurrent. The last hidden layer belongs to
    the head: a dueling head has it twice, and a recurrent model has it once more after the recurrent layer (as R2D2
    has).

    Args:
        observation_space: see `make_encoder`.
        action_space: Discrete.
        hidden_sizes: layers over the features, except where the observation is one image, whose are `fc_sizes`.
        nonlinearity: of these layers; image networks have ReLU.
        channels: of the convolutions over images, as are the three that follow.
        kernel_sizes: of each layer.
        strides: of each layer.
        paddings: of each layer.
        use_maxpool: whether to shrink by max pooling instead of by strides.
        fc_sizes: fully connected layers over the convolutions.
        head_sizes: hidden layers of the head, over all the layers above; None is as said before.
        dueling: whether the head is a `DuelingHeadModel`.
        noisy: whether the head's layers are `NoisyLinear`.
        n_atoms: outputs an action: logits of the atoms of a categorical distribution, or quantiles. None is q itself.
        recurrent: None, "lstm" or "gru".
        rnn_size: units of the recurrent layer.
        normalize_observation: whether vectors are normalised by running statistics.

    Raises:
        TypeError: if the action space is not Discrete.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        *,
        hidden_sizes: int | Sequence[int] = (128, 128),
        nonlinearity: Nonlinearity = nn.ReLU,
        channels: Sequence[int] = (32, 64, 64),
        kernel_sizes: Sequence[int] = (8, 4, 3),
        strides: Sequence[int] = (4, 2, 1),
        paddings: Sequence[int] = (0, 0, 0),
        use_maxpool: bool = False,
        fc_sizes: int | Sequence[int] = 512,
        head_sizes: int | Sequence[int] | None = None,
        dueling: bool = False,
        noisy: bool = False,
        n_atoms: int | None = None,
        recurrent: str | None = None,
        rnn_size: int = 512,
        normalize_observation: bool = False,
    ) -> None:
        if not isinstance(action_space, spaces.Discrete):
            raise TypeError(
                f"QModel: the action space is {action_space}; expected Discrete, as there is one output an action. "
                "Use a policy-gradient agent."
            )
        action_size = int(action_space.n)
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
        trunk_sizes = sizes[:-1] if recurrent is None and head_sizes is None else sizes
        trunk = MlpModel(encoder.output_size, trunk_sizes, nonlinearity=nonlinearity)
        core = (
            None if recurrent is None else RecurrentCore(trunk.output_size + action_size + 1, rnn_size, kind=recurrent)
        )
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
        )

    def forward(
        self,
        observation: Any,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> Any:
        """Return q and, if recurrent, the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        q = self.head(x)
        return q if next_rnn_state is None else (q, next_rnn_state)
