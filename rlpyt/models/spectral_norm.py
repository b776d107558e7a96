"""Spectral normalisation of ensembles: weights divided by their largest singular value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from rlpyt.models.ensemble import EnsembleLinear, EnsembleModel, affine, first
from rlpyt.models.utils import as_sizes


class SpectralLinear(EnsembleLinear):
    """N linear layers whose weights are divided by their largest singular value sigma, which gets a gradient.

        y = x @ weight / sigma + bias,    sigma = u^T weight v

    Every pass in training mode improves u and v, which the state contains, by one step of power iteration. torch's
    parametrisation has one sigma for all of a tensor, and a layer that has it cannot be pickled for another process.

    Source: Miyato et al. 2018, arXiv:1802.05957; in reinforcement learning Gogianu et al. 2021, arXiv:2105.05246.
    """

    v: torch.Tensor

    def __init__(self, n_models: int, in_features: int, out_features: int) -> None:
        super().__init__(n_models, in_features, out_features)
        self.register_buffer("v", F.normalize(torch.randn(n_models, out_features, 1), dim=1))
        for _ in range(15):
            self._iterate(n_models)

    @torch.no_grad()
    def _iterate(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a step of power iteration of the first n layers; return copies of u [n, in, 1] and v [n, out, 1]."""
        weight, v = first(n, self.weight, self.v)
        u = F.normalize(weight @ v, dim=1)
        if self.training:
            v.copy_(F.normalize(weight.transpose(1, 2) @ u, dim=1))
        return u, v.clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y [n, M, out_features]."""
        # In bfloat16 sigma would err by 0.4 %, and by as much from one pass to the next.
        with torch.autocast(x.device.type, enabled=False):
            u, v = self._iterate(len(x))
            weight, bias = first(len(x), self.weight, self.bias)
            weight = weight / (u.transpose(1, 2) @ weight @ v)
        return affine(x, weight, bias, self.keep_float32)


class SpectralNormModel(EnsembleModel):
    """N fully connected networks whose hidden layers are `SpectralLinear`.

    Args:
        n_models: see `EnsembleModel`, also for the next three.
        input_size: number of input features.
        hidden_sizes: of the hidden layers.
        output_size: number of outputs.
    """

    def __init__(
        self,
        n_models: int,
        input_size: int,
        hidden_sizes: int | Sequence[int] | None,
        output_size: int | None = None,
    ) -> None:
        sizes = [input_size, *as_sizes(hidden_sizes)]
        layers = [(SpectralLinear(n_models, *pair), nn.ReLU()) for pair in pairwise(sizes)]
        super().__init__(n_models, [x for pair in layers for x in pair], sizes[-1], output_size)
