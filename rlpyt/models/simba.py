"""Residual networks of SimBa (layer normalisation) and SimbaV2 (the unit sphere), as ensembles."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from rlpyt.models.ensemble import EnsembleLayerNorm, EnsembleLinear, EnsembleModel, UnitLinear, first
from rlpyt.models.utils import as_sizes


class ResidualBlock(nn.Module):
    """x + W_2 relu(W_1 norm(x)), of [n, M, size], with a hidden layer of 4 times the size."""

    def __init__(self, n_models: int, size: int) -> None:
        super().__init__()
        up, down = EnsembleLinear(n_models, size, 4 * size), EnsembleLinear(n_models, 4 * size, size)
        for layer in (up, down):  # He et al. 2015
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.weight.shape[1]))
            nn.init.zeros_(layer.bias)
        self.layers = nn.Sequential(EnsembleLayerNorm(n_models, size), up, nn.ReLU(), down)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with the block's change."""
        change: torch.Tensor = self.layers(x)
        return x + change


class SimbaModel(EnsembleModel):
    """N networks of SimBa: a linear layer, one residual block for each hidden size, and a layer normalisation.

    SimBa normalises observations by running statistics too (`normalize_observation=True`).

    Args:
        n_models: see `EnsembleModel`, also for the next three.
        input_size: number of input features.
        hidden_sizes: one for each block, all the same; the paper has 128 for policies and (512, 512) for values.
        output_size: number of outputs.

    Raises:
        ValueError: if there is no block, or the sizes differ.

    Source: Lee et al. 2024, arXiv:2410.09754.
    """

    def __init__(
        self,
        n_models: int,
        input_size: int,
        hidden_sizes: int | Sequence[int] | None,
        output_size: int | None = None,
    ) -> None:
        size, n_blocks = blocks_of(type(self), hidden_sizes)
        embedding = EnsembleLinear(n_models, input_size, size)
        layers = [embedding, *(ResidualBlock(n_models, size) for _ in range(n_blocks))]
        super().__init__(n_models, [*layers, EnsembleLayerNorm(n_models, size)], size, output_size)
        for layer in (embedding, *([self.layers[-1]] if output_size is not None else [])):
            assert isinstance(layer, EnsembleLinear)
            init_orthogonal_each(layer)


class Scaler(nn.Module):
    """Factors of [n, M, size], which begin as `start`; the parameters begin as `scale`, which sets how fast they learn.

    An optimiser such as Adam moves the parameters by steps of its learning rate.
    """

    def __init__(self, n_models: int, size: int, start: float, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((n_models, 1, size), scale))
        self._ratio = start / scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x times the factors."""
        return x * (self._ratio * first(len(x), self.weight)[0])


class SphereEmbedding(nn.Module):
    """Inputs [n, M, input_size] as points of the unit sphere, [n, M, size].

    An entry of 3 is added before an input is divided by its norm, so that its length is not lost.
    """

    def __init__(self, n_models: int, input_size: int, size: int) -> None:
        super().__init__()
        start = math.sqrt(2 / size)
        self.layers = nn.Sequential(UnitLinear(n_models, input_size + 1, size), Scaler(n_models, size, start, start))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the points."""
        return F.normalize(self.layers(F.normalize(F.pad(x, (0, 1), value=3.0), dim=-1)), dim=-1)


class SphereBlock(nn.Module):
    """Points x on the unit sphere moved towards others: unit(x + alpha (unit(W_2 relu(s W_1 x)) - x))."""

    def __init__(self, n_models: int, size: int, alpha: float) -> None:
        super().__init__()
        hidden, start = 4 * size, math.sqrt(2 / (4 * size))
        self.up, self.down = UnitLinear(n_models, size, hidden), UnitLinear(n_models, hidden, size)
        self.scaler = Scaler(n_models, hidden, start, start)
        self.alpha = Scaler(n_models, size, alpha, 1 / math.sqrt(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the points moved."""
        # Where no hidden entry is above 0 a point has no direction; the paper adds as little.
        towards = F.normalize(self.down(self.scaler(self.up(x)).relu() + 1e-8), dim=-1)
        return F.normalize(x + self.alpha(towards - x), dim=-1)


class SphereOutput(nn.Module):
    """Outputs [n, M, output_size] of points [n, M, size]: W_2 (s W_1 x) + bias, in float32."""

    def __init__(self, n_models: int, size: int, output_size: int) -> None:
        super().__init__()
        self.hidden, self.scaler = UnitLinear(n_models, size, size), Scaler(n_models, size, 1.0, 1.0)
        self.last = UnitLinear(n_models, size, output_size, keep_float32=True)
        self.bias = nn.Parameter(torch.zeros(n_models, 1, output_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        output: torch.Tensor = self.last(self.scaler(self.hidden(x)))
        return output + first(len(x), self.bias)[0]


class SimbaV2Model(EnsembleModel):
    """N networks of SimbaV2: features and weights have norm 1, the weights again after every step of the optimiser.

    Their outputs grow by `Scaler` alone, which is slow: rewards should be scaled so that returns are about 1, and no
    more than 5 (the paper's range). It normalises observations by running statistics too.

    Args:
        n_models: see `SimbaModel`, also for the next three.
        input_size: number of input features.
        hidden_sizes: one for each block, all the same.
        output_size: number of outputs; None gives the points of the sphere.

    Raises:
        ValueError: if there is no block, or the sizes differ.

    Source: Lee et al. 2025, arXiv:2502.15280.
    """

    def __init__(
        self,
        n_models: int,
        input_size: int,
        hidden_sizes: int | Sequence[int] | None,
        output_size: int | None = None,
    ) -> None:
        size, n_blocks = blocks_of(type(self), hidden_sizes)
        layers: list[nn.Module] = [SphereEmbedding(n_models, input_size, size)]
        layers += [SphereBlock(n_models, size, 1 / (n_blocks + 1)) for _ in range(n_blocks)]
        super().__init__(n_models, layers, size)
        if output_size is not None:
            self.layers.append(SphereOutput(n_models, size, output_size))
            self.output_size = output_size


def blocks_of(Cls: type, hidden_sizes: int | Sequence[int] | None) -> tuple[int, int]:
    """Return the size of all blocks, and their number."""
    sizes = as_sizes(hidden_sizes)
    if not sizes or len(set(sizes)) > 1:
        raise ValueError(
            f"{Cls.__name__}: hidden_sizes is {hidden_sizes!r}; expected one size for each block, all the same, as a "
            "block adds to what goes into it. Write hidden_sizes=(512, 512) for two blocks of 512."
        )
    return sizes[0], len(sizes)


def init_orthogonal_each(layer: EnsembleLinear) -> None:
    """Make the weights of each of N layers orthogonal, and its bias 0."""
    for weight in layer.weight:
        nn.init.orthogonal_(weight)
    nn.init.zeros_(layer.bias)
