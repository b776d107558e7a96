"""Models with the names, arguments, sizes and initial weights of rlpyt 0.1.

The image models are `PgModel` and `QModel` with other sizes. Their arguments, in the order of rlpyt 0.1:

    image_shape        (C, height, width)
    output_size        number of actions
    fc_sizes, fc_size  fully connected layers over the convolutions
    lstm_size          units of the LSTM
    head_size          hidden layers over the LSTM
    others             see `PgModel`, `QModel` and `ConvSettings`; None is the size of the preset
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.conv import ConvSettings
from rlpyt.models.encoders import VectorEncoder
from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.pg import PgModel
from rlpyt.models.q import QModel
from rlpyt.models.recurrent import RecurrentCore, RnnState
from rlpyt.models.running_mean_std import RunningMeanStdModel

_TWO_LAYERS = ConvSettings(channels=(16, 32), kernel_sizes=(8, 4), strides=(4, 2), paddings=(0, 1))
_THREE_LAYERS = ConvSettings(paddings=(0, 1, 1))
_LAYERS: dict[str, object] = {
    "use_maxpool": False,
    "channels": None,
    "kernel_sizes": None,
    "strides": None,
    "paddings": None,
}
_TODAY = {"fc_size": "fc_sizes", "lstm_size": "rnn_size", "head_size": "head_sizes"}


def _preset(
    init: Callable[..., None], conv: ConvSettings, arguments: Mapping[str, object], **fixed: object
) -> Callable[..., None]:
    """Return a constructor of an image model.

    Args:
        init: the constructor of the model for any spaces.
        conv: sizes of its layers over images.
        arguments: by name and in order, with their defaults, after `image_shape` and `output_size`.
        **fixed: arguments of `init` that the preset sets.
    """
    names = {"self": Parameter.empty, "image_shape": Parameter.empty, "output_size": Parameter.empty, **arguments}
    signature = Signature([Parameter(x, Parameter.POSITIONAL_OR_KEYWORD, default=y) for x, y in names.items()])

    def construct(self: Model, *args: object, **kwargs: object) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}() {error}") from None
        bound.apply_defaults()
        _, image_shape, output_size, *values = bound.args
        given = zip(arguments, values, strict=True)
        kwargs = {_TODAY.get(name, name): x for name, x in given if x is not None or name not in _LAYERS}
        images = spaces.Box(0, 255, tuple(image_shape), np.uint8)
        init(self, images, spaces.Discrete(output_size), conv=conv, **fixed, **kwargs)

    vars(construct)["__signature__"] = signature
    return construct


class AtariFfModel(PgModel):
    """Policy and value over two convolutions (Mnih et al. 2016, arXiv:1602.01783); returns `(logits, value)`."""

    __init__ = _preset(
        PgModel.__init__,
        _TWO_LAYERS,
        {"fc_sizes": 512, **_LAYERS},
        orthogonal_init=False,
    )


class AtariLstmModel(PgModel):
    """`AtariFfModel` with an LSTM before the heads; returns `(logits, value, next_rnn_state)`."""

    __init__ = _preset(
        PgModel.__init__,
        _TWO_LAYERS,
        {"fc_sizes": 512, "lstm_size": 512, **_LAYERS},
        recurrent="lstm",
        orthogonal_init=False,
    )


class AtariDqnModel(QModel):
    """Q network of Mnih et al. 2015 with padding and an optional dueling head; returns `q` [..., A]."""

    __init__ = _preset(
        QModel.__init__,
        _THREE_LAYERS,
        {"fc_sizes": 512, "dueling": False, **_LAYERS, "noisy": False, "n_atoms": None},
    )


class AtariCatDqnModel(QModel):
    """`AtariDqnModel` with a distribution over atoms per action; returns logits [..., A, n_atoms]."""

    __init__ = _preset(
        QModel.__init__,
        _THREE_LAYERS,
        {"n_atoms": 51, "fc_sizes": 512, "dueling": False, **_LAYERS, "noisy": False},
    )


class AtariR2d1Model(QModel):
    """Convolutional LSTM network of R2D2 (Kapturowski et al. 2019) with padding; returns `(q, next_rnn_state)`."""

    __init__ = _preset(
        QModel.__init__,
        _THREE_LAYERS,
        {"fc_size": 512, "lstm_size": 512, "head_size": 512, "dueling": False, **_LAYERS, "noisy": False},
        recurrent="lstm",
    )


def _vector_encoder(shape: Sequence[int], normalize: bool, clip: float, var_clip: float) -> VectorEncoder:
    """Return the encoder of vectors, with running statistics if they are normalised."""
    return VectorEncoder(shape, RunningMeanStdModel((math.prod(shape),), clip, var_clip) if normalize else None)


class MujocoFfModel(Model):
    """Separate networks of policy and value for vectors; returns `(mean, log_std, value)`.

    `log_std` is one parameter per dimension. The mean is in units in which the bounds of the actions are -1 and 1.

    Args:
        observation_shape: of one observation, which is flattened.
        action_size: A.
        hidden_sizes: of each network.
        hidden_nonlinearity: of the hidden layers.
        mu_nonlinearity: over the mean; None leaves it linear.
        init_log_std: initial `log_std`.
        normalize_observation: whether observations are normalised by running statistics.
        norm_obs_clip: bound of a normalised observation.
        norm_obs_var_clip: smallest variance to divide by.
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
        encoder = _vector_encoder(observation_shape, normalize_observation, norm_obs_clip, norm_obs_var_clip)
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
    """Linear heads over one LSTM for vectors; returns `(mean, log_std, value, next_rnn_state)`.

    `log_std` depends on the state.

    Args:
        observation_shape: see `MujocoFfModel`, also for all arguments that are not named here.
        hidden_sizes: of the layers before the LSTM.
        lstm_size: units of the LSTM.
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
        encoder = _vector_encoder(observation_shape, normalize_observation, norm_obs_clip, norm_obs_var_clip)
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
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, RnnState | None]:
        """Return mean and log_std, [..., A] each, the value [...] and the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        mean, log_std, value = self.head(x).split(self._splits, -1)
        return mean, log_std, value.squeeze(-1), next_rnn_state
