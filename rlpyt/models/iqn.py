"""Network of implicit quantile Q-learning (IQN)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from gymnasium import Space
from torch import nn

from rlpyt.functional import midpoints
from rlpyt.models.conv import NATURE, ConvSettings, takes_layers
from rlpyt.models.encoders import Observation
from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.noise import RandomModule
from rlpyt.models.q import QModel
from rlpyt.models.recurrent import RnnState
from rlpyt.namedarraytuple import NamedArrayTuple


class Quantiles(NamedArrayTuple):
    """Quantiles of the return of every action."""

    value: torch.Tensor
    """[..., A, N] float32, quantiles."""
    tau: torch.Tensor
    """[..., N] float32 in [0, 1], fractions of the quantiles."""


class TauSource(RandomModule):
    """Source of fractions tau in [0, 1]: random ones, or without a generator the midpoints of equal parts.

    Args:
        n_tau: number of random fractions.
        n_midpoints: number of midpoints, without a generator.
        stratified: whether each of n_tau equal parts of [0, 1] has one of the random fractions.

    Raises:
        ValueError: if a number is below 1.
    """

    def __init__(self, n_tau: int, n_midpoints: int, stratified: bool = False) -> None:
        super().__init__()
        if min(n_tau, n_midpoints) < 1:
            raise ValueError(
                f"TauSource: got {n_tau} random fractions and {n_midpoints} midpoints; expected at least 1 of each. "
                "Correct n_tau and n_acting_tau in model_kwargs."
            )
        self.n_tau, self.n_midpoints, self.stratified = n_tau, n_midpoints, stratified
        self._generator: torch.Generator | None = None

    def draw(self, generator: torch.Generator | None) -> None:
        """Draw from a CPU generator at every forward pass from now on; None gives the midpoints."""
        self._generator = generator

    def forward(self, like: torch.Tensor) -> torch.Tensor:
        """Return fractions [*like.shape, N] float32 on the device of `like`."""
        if self._generator is None:
            return midpoints(self.n_midpoints, like.device).expand(*like.shape, -1)
        u = torch.rand(*like.shape, self.n_tau, generator=self._generator)
        tau = (torch.arange(self.n_tau) + u) / self.n_tau if self.stratified else u
        return tau.to(like.device, non_blocking=True)


class IqnModel(QModel):
    """Q network that returns quantiles of the return at fractions tau, given to it as an embedding of cosines.

        phi(tau) = relu(W [cos(pi i tau)]_{i < n_cosines} + b),    Z_tau(s, a) = head(features(s) * phi(tau))_a

    Returns `Quantiles`, or `(Quantiles, next_rnn_state)` if recurrent.

    The last of `hidden_sizes` belongs to the head. For vectors give at least two: with one, phi(tau) is multiplied with
    the observation itself.

    Args:
        observation_space: see `QModel`, also for all arguments up to `normalize_observation`.
        n_tau: number of random fractions in updates, of the network and of its target. They also choose the next
            action.
        n_acting_tau: number of fractions in acting, the midpoints of equal parts. The paper draws K = 32 at random,
            also to choose the next action of an update.
        n_cosines: size of the embedding.
        stratified: whether each of n_tau equal parts of [0, 1] has one random fraction, for less variance. For a given
            next action the loss has the same mean, and the next action is chosen with less noise. The paper draws the
            fractions independently.

    Raises:
        TypeError: if the action space is not Discrete.
        ValueError: if n_tau or n_acting_tau is below 1.

    Source: Dabney et al. 2018, arXiv:1806.06923, section 3; defaults of its section 4.
    """

    frequencies: torch.Tensor

    @takes_layers
    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        hidden_sizes: int | Sequence[int] = (128, 128),
        nonlinearity: Nonlinearity = nn.ReLU,
        conv: ConvSettings = NATURE,
        head_sizes: int | Sequence[int] | None = None,
        dueling: bool = False,
        noisy: bool = False,
        recurrent: str | None = None,
        rnn_size: int = 512,
        normalize_observation: bool = False,
        n_tau: int = 64,
        n_acting_tau: int = 32,
        n_cosines: int = 64,
        stratified: bool = False,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            hidden_sizes=hidden_sizes,
            nonlinearity=nonlinearity,
            conv=conv,
            head_sizes=head_sizes,
            dueling=dueling,
            noisy=noisy,
            recurrent=recurrent,
            rnn_size=rnn_size,
            normalize_observation=normalize_observation,
        )
        self.taus = TauSource(n_tau, n_acting_tau, stratified)
        self.embedding = MlpModel(n_cosines, self.feature_size, nonlinearity=nn.ReLU)
        self.register_buffer("frequencies", math.pi * torch.arange(n_cosines).float(), persistent=False)

    def forward(
        self,
        observation: Observation,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> Quantiles | tuple[Quantiles, RnnState]:
        """Return quantiles and, if recurrent, the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        tau = self.taus(prev_reward)
        phi = self.embedding(torch.cos(tau.unsqueeze(-1) * self.frequencies))
        quantiles = Quantiles(self.head(x.unsqueeze(-2) * phi).transpose(-1, -2), tau)
        return quantiles if next_rnn_state is None else (quantiles, next_rnn_state)
