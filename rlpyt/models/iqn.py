"""The network of implicit quantile Q-learning."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from rlpyt.functional import midpoints
from rlpyt.models.mlp import MlpModel
from rlpyt.models.noise import RandomModule
from rlpyt.models.q import QModel
from rlpyt.models.recurrent import RnnState
from rlpyt.namedarraytuple import NamedArrayTuple


class Quantiles(NamedArrayTuple):
    """Quantiles of the return of every action."""

    value: Any
    """[..., A, N] float32."""
    tau: Any
    """[..., N] float32 in [0, 1], at which fractions they are."""


class TauSource(RandomModule):
    """Gives fractions tau: random ones in [0, 1], or without a generator the midpoints of N equal parts of it.

    Args:
        n_tau: how many random ones.
        n_midpoints: how many without a generator.
        stratified: whether the random ones lie one in each of N equal parts.

    Raises:
        ValueError: if one of them is below 1.
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
        """Draw from a CPU generator at every forward pass from now on; None is the midpoints."""
        self._generator = generator

    def forward(self, like: torch.Tensor) -> torch.Tensor:
        """Return [*like.shape, N] on the device of `like`."""
        if self._generator is None:
            return midpoints(self.n_midpoints, like.device).expand(*like.shape, -1)
        u = torch.rand(*like.shape, self.n_tau, generator=self._generator)
        tau = (torch.arange(self.n_tau) + u) / self.n_tau if self.stratified else u
        return tau.to(like.device, non_blocking=True)


class IqnModel(QModel):
    """Quantiles of the return at fractions tau, which meet the features as an embedding of cosines.

        phi(tau) = relu(W [cos(pi i tau)]_{i < n_cosines} + b),    Z_tau(s, a) = head(features(s) * phi(tau))_a

    Returns `Quantiles`, or `(Quantiles, next_rnn_state)` if recurrent.

    The last of `hidden_sizes` is the head's: over vectors give two or more, or phi(tau) meets the bare observation.

    Args:
        *args: see `QModel`.
        n_tau: random fractions in updates, of the network and of its target; the next action is chosen by them too.
        n_acting_tau: fractions in acting, midpoints of equal parts. The paper draws these K = 32 at random, for the
            next action of an update too.
        n_cosines: of the embedding.
        stratified: whether the random fractions of a row lie one in each of n_tau equal parts, for less variance. Of a
            given next action the loss has the same mean; that action is chosen with less noise, and so less often a
            wrong one. The paper draws them freely.
        **kwargs: see `QModel`; `n_atoms` is not among them.

    Raises:
        TypeError: if the action space is not Discrete, or `n_atoms` is given.
        ValueError: if there are no fractions.

    Source: Dabney et al. 2018, arXiv:1806.06923, section 3; defaults of its section 4.
    """

    frequencies: torch.Tensor

    def __init__(
        self,
        *args: Any,
        n_tau: int = 64,
        n_acting_tau: int = 32,
        n_cosines: int = 64,
        stratified: bool = False,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("n_atoms") is not None:
            raise TypeError(
                f"IqnModel: got n_atoms={kwargs['n_atoms']}; expected none, as the number of quantiles is that of the "
                "fractions. Give n_tau and n_acting_tau, or take a QModel."
            )
        super().__init__(*args, **kwargs)
        self.taus = TauSource(n_tau, n_acting_tau, stratified)
        self.embedding = MlpModel(n_cosines, self.feature_size, nonlinearity=nn.ReLU)
        self.register_buffer("frequencies", math.pi * torch.arange(n_cosines).float(), persistent=False)

    def forward(
        self,
        observation: Any,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> Any:
        """Return quantiles and, if recurrent, the next state; see `Model`."""
        x, next_rnn_state = self.features(observation, prev_action, prev_reward, rnn_state, episode_start)
        tau = self.taus(prev_reward)
        phi = self.embedding(torch.cos(tau.unsqueeze(-1) * self.frequencies))
        quantiles = Quantiles(self.head(x.unsqueeze(-2) * phi).transpose(-1, -2), tau)
        return quantiles if next_rnn_state is None else (quantiles, next_rnn_state)
