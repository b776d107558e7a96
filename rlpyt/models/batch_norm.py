"""Batch normalisation and batch renormalisation of ensembles, and networks that have it between their layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from rlpyt.models.ensemble import EnsembleLinear, EnsembleModel, UnitLinear, first
from rlpyt.models.running_mean_std import BatchStatistics
from rlpyt.models.utils import as_sizes


class EnsembleBatchNorm(BatchStatistics):
    """Batch normalisation of [N, M, size] over its M rows, for each of N networks; of [n, M, size] for the first n.

        training:    y = weight * ((x - mean_B) / std_B * r + d) + bias
        evaluation:  y = weight * (x - mean) / std + bias,            std^2 = var + eps

    mean_B and std_B are of the rows at hand; mean and var follow them by the fraction `momentum` in every pass in
    training mode. For the first `warmup` passes r = 1 and d = 0, which is batch normalisation. Then r and d let
    training give what evaluation gives, within bounds, and get no gradient:

        r = clip(std_B / std, 1 / r_max, r_max),    d = clip((mean_B - mean) / std, -d_max, d_max)

    Args:
        n_models: N.
        size: number of entries of a row, each with statistics of its own.
        momentum: fraction by which the running statistics move.
        eps: is added to the variances.
        warmup: passes in training mode before r and d; None never has them.
        r_max: largest r.
        d_max: largest size of d.
        shift: whether the bias is learned; it stays 0 where another norm would take it away.

    Sources: Ioffe and Szegedy 2015, arXiv:1502.03167; renormalisation Ioffe 2017, arXiv:1702.03275; the defaults Bhatt
    et al. 2024, arXiv:1902.05605.
    """

    bias: torch.Tensor
    mean: torch.Tensor
    var: torch.Tensor
    n_passes: torch.Tensor

    def __init__(
        self,
        n_models: int,
        size: int,
        momentum: float = 0.01,
        eps: float = 1e-3,
        warmup: int | None = 100_000,
        r_max: float = 3.0,
        d_max: float = 5.0,
        shift: bool = True,
    ) -> None:
        super().__init__()
        self.momentum, self.eps, self.warmup, self.r_max, self.d_max = momentum, eps, warmup, r_max, d_max
        self.weight, zeros = nn.Parameter(torch.ones(n_models, size)), torch.zeros(n_models, size)
        if shift:
            self.bias = nn.Parameter(zeros)
        else:
            self.register_buffer("bias", zeros)
        self.register_buffer("mean", torch.zeros(n_models, size))
        self.register_buffer("var", torch.ones(n_models, size))
        self.register_buffer("n_passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y [n, M, size].

        Raises:
            ValueError: if there is one row in training mode, which has no variance.
        """
        n, M, size = x.shape
        weight, bias = (x.flatten() for x in first(n, self.weight, self.bias))
        # torch's function normalises columns: side by side those of all networks are one call.
        columns = x.transpose(0, 1).reshape(M, n * size)
        if self.training:
            if M < 2:
                raise ValueError(
                    "EnsembleBatchNorm: was given one row in training mode; expected at least two, over which it takes "
                    "mean and variance. Give the algorithm a larger batch_size, or put the network into evaluation "
                    "mode."
                )
            r, d = self._take_in(columns.detach().float(), n)
            y = F.batch_norm(columns, None, None, weight * r, bias + weight * d, training=True, eps=self.eps)
        else:
            mean, var = (x.flatten() for x in first(n, self.mean, self.var))
            y = F.batch_norm(columns, mean, var, weight, bias, eps=self.eps)
        return y.view(M, n, size).transpose(0, 1)

    @torch.no_grad()
    def _take_in(self, columns: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Take rows [M, n * size] into the running statistics; return r and d by those of before."""
        mean, var = first(n, self.mean, self.var)
        new_var, new_mean = (x.view_as(var) for x in torch.var_mean(columns, 0, correction=0))
        r, d = torch.ones_like(mean), torch.zeros_like(mean)
        if self.warmup is not None:
            std, is_on = (var + self.eps).sqrt(), self.n_passes >= self.warmup
            bounded = ((new_var + self.eps).sqrt() / std).clamp(1 / self.r_max, self.r_max)
            r = torch.where(is_on, bounded, r)
            d = torch.where(is_on, ((new_mean - mean) / std).clamp(-self.d_max, self.d_max), d)
        mean.lerp_(new_mean, self.momentum)
        var.lerp_(new_var, self.momentum)
        self.n_passes += 1
        return r.flatten(), d.flatten()


class BatchNormModel(EnsembleModel):
    """N networks whose inputs and hidden layers are normalised over the rows of a pass.

    The order is: norm, then linear, nonlinearity and norm for every hidden layer, then the last linear layer.

    Args:
        n_models: see `EnsembleModel`, also for the next three.
        input_size: number of input features.
        hidden_sizes: of the hidden layers.
        output_size: number of outputs.
        momentum: see `EnsembleBatchNorm`.
        warmup: see `EnsembleBatchNorm`; None is plain batch normalisation.

    Source: Bhatt et al. 2024, arXiv:1902.05605.
    """

    def __init__(
        self,
        n_models: int,
        input_size: int,
        hidden_sizes: int | Sequence[int] | None,
        output_size: int | None = None,
        momentum: float = 0.01,
        warmup: int | None = 100_000,
    ) -> None:
        sizes = [input_size, *as_sizes(hidden_sizes)]
        norms = [EnsembleBatchNorm(n_models, size, momentum, warmup=warmup) for size in sizes]
        layers: list[nn.Module] = [norms[0]]
        for (n_in, n_out), norm in zip(pairwise(sizes), norms[1:], strict=True):
            layers += [EnsembleLinear(n_models, n_in, n_out), nn.ReLU(), norm]
        super().__init__(n_models, layers, sizes[-1], output_size)


class XqcModel(EnsembleModel):
    """N networks of XQC: a norm of the inputs, then linear, norm and nonlinearity for every hidden layer, and outputs.

    The norms are `EnsembleBatchNorm`, without renormalisation; that of the inputs has no bias, as the next one would
    take it away, and Adam would move it by the rounding of its gradient. The linear layers have no bias but the last,
    and the weights of every output have norm 1 again after each step of the optimiser (`UnitLinear`). Where action
    values have targets, SAC needs `joint_pass=True`, so that the statistics are of both rows of a transition.

    Args:
        n_models: see `EnsembleModel`, also for the next three.
        input_size: number of input features.
        hidden_sizes: of the hidden layers; the paper has four, of 256 for policies and of 512 for values.
        output_size: number of outputs.
        momentum: see `EnsembleBatchNorm`.

    Source: Palenicek et al. 2025, arXiv:2509.25174.
    """

    def __init__(
        self,
        n_models: int,
        input_size: int,
        hidden_sizes: int | Sequence[int] | None,
        output_size: int | None = None,
        momentum: float = 0.01,
    ) -> None:
        sizes = [input_size, *as_sizes(hidden_sizes)]
        layers: list[nn.Module] = [EnsembleBatchNorm(n_models, input_size, momentum, warmup=None, shift=False)]
        for n_in, n_out in pairwise(sizes):
            norm = EnsembleBatchNorm(n_models, n_out, momentum, warmup=None)
            layers += [UnitLinear(n_models, n_in, n_out), norm, nn.ReLU()]
        super().__init__(n_models, layers, sizes[-1])
        if output_size is not None:
            self.layers.append(UnitLinear(n_models, sizes[-1], output_size, keep_float32=True, bias=True))
            self.output_size = output_size
