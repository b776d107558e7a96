"""Ensembles: networks of equal shape, computed as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from rlpyt.models.mlp import Nonlinearity
from rlpyt.models.noise import Dropout
from rlpyt.models.utils import as_sizes
from rlpyt.utils.projection import Projection


class EnsembleLinear(nn.Module):
    """N linear layers with separate weights; [N, M, in_features] becomes [N, M, out_features].

    For [n, M, in_features] with n < N only the first n layers are computed.

    Args:
        n_models: N.
        in_features: of one layer.
        out_features: of one layer.
        keep_float32: whether to compute in float32 under autocast too, as an output layer does.
    """

    def __init__(self, n_models: int, in_features: int, out_features: int, keep_float32: bool = False) -> None:
        super().__init__()
        # The initialisation of nn.Linear; the weights have the order that baddbmm takes.
        bound = 1 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(n_models, in_features, out_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_models, 1, out_features).uniform_(-bound, bound))
        self.keep_float32 = keep_float32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x @ weight + bias, [n, M, out_features]."""
        weight, bias = first(len(x), self.weight, self.bias)
        return affine(x, weight, bias, self.keep_float32)


class UnitLinear(Projection):
    """N linear layers whose weights [N, in, out] have norm 1 over the inputs of every output.

    They start orthogonal, and are divided by their norms after every step of the optimiser.

    Args:
        n_models: N; for [n, M, in_features] with n < N only the first n are computed.
        in_features: of one layer.
        out_features: of one layer.
        keep_float32: see `EnsembleLinear`.
        bias: whether there is one, which has any size.

    Sources: Loshchilov et al. 2024, arXiv:2410.01131; Lee et al. 2025, arXiv:2502.15280.
    """

    def __init__(
        self, n_models: int, in_features: int, out_features: int, keep_float32: bool = False, bias: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_models, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(n_models, 1, out_features)) if bias else None
        for weight in self.weight:
            nn.init.orthogonal_(weight)
        self.keep_float32 = keep_float32
        with torch.no_grad():
            self.project()

    def project(self) -> None:
        """Divide the weights by their norms."""
        self.weight.div_(torch.linalg.vector_norm(self.weight, dim=1, keepdim=True).clamp(min=1e-8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x @ weight + bias, [n, M, out_features]."""
        bias = None if self.bias is None else first(len(x), self.bias)[0]
        return affine(x, first(len(x), self.weight)[0], bias, self.keep_float32)


class EnsembleLayerNorm(nn.Module):
    """Layer normalisation of [N, M, size] with N scales and shifts; for [n, M, size] the first n are used.

    Args:
        n_models: N.
        size: number of entries that are normalised together.

    Source: Ba et al. 2016, arXiv:1607.06450.
    """

    def __init__(self, n_models: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_models, 1, size))
        self.bias = nn.Parameter(torch.zeros(n_models, 1, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with mean 0 and variance 1 over its last dimension, scaled and shifted."""
        weight, bias = first(len(x), self.weight, self.bias)
        return torch.addcmul(bias, nn.functional.layer_norm(x, x.shape[-1:]), weight)


class EnsembleModel(nn.Module):
    """N networks over the same input, layer by layer computed as one: [..., input_size] becomes [N, ..., output_size].

    Args:
        n_models: N.
        layers: hidden layers; each turns [n, M, size] of the first n networks into another such tensor.
        size: of what the last of them gives.
        output_size: number of outputs of a last linear layer, in float32; None leaves it out.
    """

    def __init__(self, n_models: int, layers: Sequence[nn.Module], size: int, output_size: int | None = None) -> None:
        super().__init__()
        self.n_models, self.output_size = n_models, size if output_size is None else output_size
        last = [] if output_size is None else [EnsembleLinear(n_models, size, output_size, keep_float32=True)]
        self.layers = nn.Sequential(*layers, *last)

    def forward(self, x: torch.Tensor, n_models: int | None = None) -> torch.Tensor:
        """Return the outputs of all networks, or only of the first `n_models`."""
        n = self.n_models if n_models is None else n_models
        output = self.layers(x.reshape(-1, x.shape[-1]).expand(n, -1, -1))
        return output.reshape(n, *x.shape[:-1], output.shape[-1])


class EnsembleMlpModel(EnsembleModel):
    """N fully connected networks.

    Args:
        n_models: see `EnsembleModel`.
        input_size: number of input features.
        hidden_sizes: see `MlpModel`.
        output_size: see `EnsembleModel`.
        nonlinearity: called once per hidden layer.
        dropout: probability that a hidden entry is set to zero in training mode, before the nonlinearity.
        layer_norm: whether hidden layers are normalised, after dropout (the order of DroQ).
    """

    def __init__(
        self,
        n_models: int,
        input_size: int,
        hidden_sizes: int | Sequence[int] | None,
        output_size: int | None = None,
        nonlinearity: Nonlinearity = nn.ReLU,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        sizes = [input_size, *as_sizes(hidden_sizes)]
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            layers.append(EnsembleLinear(n_models, n_in, n_out))
            if dropout:
                layers.append(Dropout(dropout))
            if layer_norm:
                layers.append(EnsembleLayerNorm(n_models, n_out))
            layers.append(nonlinearity())
        super().__init__(n_models, layers, sizes[-1], output_size)


def affine(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, keep_float32: bool = False
) -> torch.Tensor:
    """Return x @ weight + bias for each of N, [N, M, out_features]; see `EnsembleLinear` for `keep_float32`."""
    if keep_float32 and torch.is_autocast_enabled(x.device.type):
        with torch.autocast(x.device.type, enabled=False):
            return affine(x.float(), weight, bias)
    # Batched products with one column are slow on a CPU: 540 us forward and backward for [2, 256, 256], against 215.
    if weight.shape[-1] == 1:
        y = (x * weight.transpose(1, 2)).sum(-1, keepdim=True)
        return y if bias is None else y + bias
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


def first(n: int, *parameters: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the first n of N entries, [N, ...] each."""
    return parameters if n == len(parameters[0]) else [parameter[:n] for parameter in parameters]
