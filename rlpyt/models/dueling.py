"""Heads of Q networks: a single stream, or separate streams of value and advantage."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rlpyt.models.mlp import MlpModel, Nonlinearity, output_layer
from rlpyt.models.utils import scale_grad


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
    ) -> None:
        super().__init__()
        self._n_atoms, n = n_atoms, n_atoms or 1
        self.advantage_hidden = MlpModel(input_size, hidden_sizes, nonlinearity=nonlinearity, noisy=noisy)
        # Without the bias of rlpyt 0.1, which all actions shared: subtracting the mean removes it.
        self.advantage = output_layer(self.advantage_hidden.output_size, output_size * n, noisy=noisy, bias=False)
        self.value = MlpModel(input_size, hidden_sizes, n, nonlinearity, noisy)
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
    """Head with a single stream, for the same outputs as `DuelingHeadModel`.

    Args:
        input_size: number of features.
        hidden_sizes: of the stream.
        output_size: number of actions.
        nonlinearity: of the hidden layers.
        noisy: whether the layers are `NoisyLinear`.
        n_atoms: outputs per action, such as atoms of a distribution; None is one output without a dimension of its own.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: int | Sequence[int],
        output_size: int,
        nonlinearity: Nonlinearity = nn.ReLU,
        noisy: bool = False,
        n_atoms: int | None = None,
    ) -> None:
        super().__init__()
        self._n_atoms = n_atoms
        self.q = MlpModel(input_size, hidden_sizes, output_size * (n_atoms or 1), nonlinearity, noisy)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return q [..., output_size], or [..., output_size, n_atoms], of features [..., input_size]."""
        q = self.q(x)
        return q if self._n_atoms is None else q.unflatten(-1, (-1, self._n_atoms))
