"""Dueling heads: Q from a value and an advantage stream."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rlpyt.models.mlp import MlpModel, Nonlinearity, OutputLinear
from rlpyt.models.utils import scale_grad


class DuelingHeadModel(nn.Module):
    """Two streams over the same features.

        q(s, a) = v(s) + A(s, a) - mean_a' A(s, a')

    Args:
        input_size: features in.
        hidden_sizes: of each stream.
        output_size: number of actions.
        grad_scale: what the gradient into the features is multiplied by, as two streams add theirs up.
        nonlinearity: of the hidden layers.

    Source: Wang et al. 2016, arXiv:1511.06581.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: int | Sequence[int],
        output_size: int,
        grad_scale: float = 2 ** (-1 / 2),
        nonlinearity: Nonlinearity = nn.ReLU,
    ) -> None:
        super().__init__()
        self.advantage_hidden = MlpModel(input_size, hidden_sizes, nonlinearity=nonlinearity)
        # A bias shared by all actions, as rlpyt 0.1 had it, falls out with the mean.
        self.advantage = OutputLinear(self.advantage_hidden.output_size, output_size, bias=False)
        self.value = MlpModel(input_size, hidden_sizes, 1, nonlinearity)
        self.grad_scale = grad_scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return q [..., output_size] of features [..., input_size]."""
        x = scale_grad(x, self.grad_scale)
        advantage = self.advantage(self.advantage_hidden(x))
        return self.value(x) + (advantage - advantage.mean(-1, keepdim=True))
