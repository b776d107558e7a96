"""Models of DDPG, TD3 and SAC: features of any observation, and policies and action values over them.

Policies and action values have the names, arguments and defaults of rlpyt 0.1. Their argument `observation` is the
vector of features. For a Box without images this is the observation itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from gymnasium import Space
from torch import nn

from rlpyt.models.base import Model
from rlpyt.models.conv import DRQ, ConvSettings, takes_layers
from rlpyt.models.encoders import Observation, make_encoder, make_value_encoder
from rlpyt.models.layers import Layers, ensemble_of, network_of
from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.recurrent import RnnState, make_core
from rlpyt.namedarraytuple import Buffer


class FeatureModel(Model):
    """Features [..., F] of any observation space, feed-forward or recurrent, shared by policy and action values.

    Returns the features, and the next state if recurrent. The features of a vector are the vector itself, so that
    policy and action values share no weights.

    Args:
        observation_space: see `PgModel`, also for all arguments that are not named here.
        action_size: A, size of the previous action, which a recurrent model reads.
        hidden_sizes: layers over the encoder; None is no layer.
        image_feature_size: size of a last linear layer with layer normalisation and tanh. Only a model with images has
            it, as in DrQ (Yarats et al. 2021, arXiv:2004.13649).
        conv: sizes of the layers over images, by default of DrQ.
        value_only: keys of a Dict observation that the action values see and the policy does not. The agent adds the
            features of `value_encoder` to these; they pass through no layers here.

    Raises:
        ValueError: if `value_only` names another key, or all.
    """

    @takes_layers
    def __init__(
        self,
        observation_space: Space,
        action_size: int,
        *,
        hidden_sizes: int | Sequence[int] | None = None,
        nonlinearity: Nonlinearity = nn.ReLU,
        image_feature_size: int = 50,
        conv: ConvSettings = DRQ,
        recurrent: str | None = None,
        rnn_size: int = 256,
        normalize_observation: bool = False,
        value_only: Sequence[str] = (),
    ) -> None:
        value_encoder = make_value_encoder(observation_space, conv, normalize_observation, value_only)
        encoder = make_encoder(observation_space, conv, normalize_observation, without=value_only)
        trunk = MlpModel(encoder.output_size, hidden_sizes, nonlinearity=nonlinearity)
        if encoder.has_image:
            size = trunk.output_size
            trunk.extend([nn.Linear(size, image_feature_size), nn.LayerNorm(image_feature_size), nn.Tanh()])
            trunk.output_size = image_feature_size
        core = make_core(recurrent, trunk.output_size + action_size + 1, rnn_size)
        super().__init__(encoder, trunk, core, value_encoder)
        self.output_size = trunk.output_size if core is None else core.output_size

    def forward(
        self,
        observation: Observation,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, RnnState]:
        """Return features and, if recurrent, the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        return x if next_rnn_state is None else (x, next_rnn_state)


class FeatureHead(Model):
    """Base of networks over features: policies and action values.

    A declaration holds for the `forward` of the same class. A subclass with another `forward` declares what that one
    uses; by default it reads the previous action and does not take `n_models`.
    """

    uses_prev_action: bool = True

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            cls.uses_prev_action = vars(cls).get("uses_prev_action", True)
            cls.takes_n_models = vars(cls).get("takes_n_models", False)


class MuMlpModel(FeatureHead):
    """Deterministic policy; returns mu [..., action_size] in (-output_max, output_max).

    Args:
        observation_shape: of the features, flattened.
        hidden_sizes: fully connected layers.
        action_size: A.
        output_max: factor of tanh; 1 gives the bounds of the actions.
        layers: kind of the hidden layers, "mlp", "batch_norm", "spectral_norm", "simba", "simbav2", or a class; see
            `rlpyt.models.layers`.
    """

    uses_prev_action = False

    def __init__(
        self,
        observation_shape: Sequence[int],
        hidden_sizes: int | Sequence[int],
        action_size: int,
        output_max: float = 1.0,
        layers: Layers = "mlp",
    ) -> None:
        super().__init__()
        self.mlp = network_of(layers, math.prod(observation_shape), hidden_sizes, action_size)
        self.output_max = output_max

    def forward(self, observation: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return mu of features [..., F]."""
        mu = self.mlp(observation).tanh()
        return mu if self.output_max == 1.0 else self.output_max * mu


class PiMlpModel(FeatureHead):
    """Gaussian policy whose standard deviation depends on the state; returns mean and log_std, [..., A] each.

    See `MuMlpModel` for the arguments.
    """

    uses_prev_action = False

    def __init__(
        self,
        observation_shape: Sequence[int],
        hidden_sizes: int | Sequence[int],
        action_size: int,
        layers: Layers = "mlp",
    ) -> None:
        super().__init__()
        self.mlp = network_of(layers, math.prod(observation_shape), hidden_sizes, 2 * action_size)

    def forward(
        self, observation: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and log_std of features [..., F]."""
        mean, log_std = self.mlp(observation).chunk(2, dim=-1)
        return mean, log_std


class QofMuMlpModel(FeatureHead):
    """Ensemble of `n_models` networks of action values; returns [n_models, ...].

    Args:
        observation_shape: see `MuMlpModel`, also for the next two.
        n_models: number of networks, each with its own weights.
        dropout: see `EnsembleMlpModel`; DroQ has 0.01 with layer_norm.
        layer_norm: see `EnsembleMlpModel`.
        n_atoms: outputs of each network, which a value head reads; None is the value, without a dimension of its own.
        layers: see `MuMlpModel`; the networks are computed as one with every kind.
    """

    uses_prev_action = False
    takes_n_models = True

    def __init__(
        self,
        observation_shape: Sequence[int],
        hidden_sizes: int | Sequence[int],
        action_size: int,
        n_models: int = 1,
        dropout: float = 0.0,
        layer_norm: bool = False,
        n_atoms: int | None = None,
        layers: Layers = "mlp",
    ) -> None:
        super().__init__()
        self._n_atoms = n_atoms
        size = math.prod(observation_shape) + action_size
        self.mlp = ensemble_of(
            layers, n_models, size, hidden_sizes, n_atoms or 1, dropout=dropout, layer_norm=layer_norm
        )

    def forward(
        self,
        observation: torch.Tensor,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        action: torch.Tensor,
        n_models: int | None = None,
    ) -> torch.Tensor:
        """Return the values [n_models, ...] of actions [..., A], in units of the bounds, at features [..., F].

        With `n_atoms` they are [n_models, ..., n_atoms].
        With `n_models` only the first so many networks are computed.
        """
        q = self.mlp(torch.cat([observation, action], -1), n_models)
        return q.squeeze(-1) if self._n_atoms is None else q


class LogitsMlpModel(FeatureHead):
    """Policy over discrete actions; returns their logits [..., action_size]. See `MuMlpModel` for the arguments."""

    uses_prev_action = False

    def __init__(
        self,
        observation_shape: Sequence[int],
        hidden_sizes: int | Sequence[int],
        action_size: int,
        layers: Layers = "mlp",
    ) -> None:
        super().__init__()
        self.mlp = network_of(layers, math.prod(observation_shape), hidden_sizes, action_size)

    def forward(self, observation: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return logits of features [..., F]."""
        logits: torch.Tensor = self.mlp(observation)
        return logits


class AllQMlpModel(FeatureHead):
    """Ensemble of `n_models` networks of the values of all discrete actions; returns [n_models, ..., action_size].

    See `QofMuMlpModel` for the arguments; with `n_atoms` it returns [n_models, ..., action_size, n_atoms].
    """

    uses_prev_action = False

    def __init__(
        self,
        observation_shape: Sequence[int],
        hidden_sizes: int | Sequence[int],
        action_size: int,
        n_models: int = 1,
        dropout: float = 0.0,
        layer_norm: bool = False,
        n_atoms: int | None = None,
        layers: Layers = "mlp",
    ) -> None:
        super().__init__()
        self._shape = (action_size,) if n_atoms is None else (action_size, n_atoms)
        size, n_outputs = math.prod(observation_shape), math.prod(self._shape)
        self.mlp = ensemble_of(layers, n_models, size, hidden_sizes, n_outputs, dropout=dropout, layer_norm=layer_norm)

    def forward(self, observation: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return the values of features [..., F]."""
        q: torch.Tensor = self.mlp(observation)
        return q.unflatten(-1, self._shape)


class ActorModel(nn.Module):
    """Features and the policy over them: the networks that act.

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
        observation: Observation,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> Buffer:
        """Return the output of the policy and, if recurrent, the next state; see `Model`."""
        if not self.body.recurrent:
            return self.pi(self.body(observation, prev_action, prev_reward), prev_action, prev_reward)
        x, next_rnn_state = self.body(observation, prev_action, prev_reward, rnn_state, episode_start)
        return self.pi(x, prev_action, prev_reward), next_rnn_state
