"""Normalisation by running mean and variance, and networks among replicas: statistics are those of all, or refused."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from rlpyt.functional import batch_moments, pooled_moments
from rlpyt.utils.arrays import buffer_to
from rlpyt.utils.replicas import Replicas


class RunningMeanStdModel(nn.Module):
    """Normalisation by running statistics, which the state_dict contains and only `update` and `merge` change.

        clip((x - mean) / sqrt(max(var, var_clip)), -clip, clip)

    Args:
        shape: of one x; every entry has its own statistics.
        clip: bound of the result.
        var_clip: smallest variance to divide by.
    """

    mean: torch.Tensor
    var: torch.Tensor
    count: torch.Tensor

    def __init__(self, shape: Sequence[int], clip: float = 10.0, var_clip: float = 1e-6) -> None:
        super().__init__()
        self.clip, self.var_clip = clip, var_clip
        # Not passed on to copies: a copy of an agent in another process has no statistics to agree on.
        self._replicas = Replicas()
        # float64, because in float32 the count would stop growing in a long run.
        self.register_buffer("mean", torch.zeros(tuple(shape), dtype=torch.float64))
        self.register_buffer("var", torch.ones(tuple(shape), dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [..., *shape] normalised, float32."""
        scale = self.var.clamp(min=self.var_clip).rsqrt()
        return ((x - self.mean) * scale).clamp(-self.clip, self.clip).float()

    def join(self, replicas: Replicas) -> None:
        """Take in the batches of all replicas with every `update` from now on, which all of them call together."""
        self._replicas = replicas

    @torch.no_grad()
    def update(self, x: torch.Tensor, valid: torch.Tensor | None = None) -> None:
        """Add a batch to the statistics.

        Args:
            x: [..., *shape], any dtype and device.
            valid: [...] bool, True for the entries to add; None adds all.
        """
        x = buffer_to(x, self.mean.device)  # a replay's rows are on the CPU
        x = x.to(self.mean.dtype).reshape(-1, *self.mean.shape)
        moments = batch_moments(x, None if valid is None else buffer_to(valid, x.device).reshape(-1))
        if self._replicas.world_size > 1:
            # Before they are merged: sums of statistics that were merged would count old batches again.
            moments = pooled_moments(moments, self._replicas.each)
        self.merge(*moments)

    @torch.no_grad()
    def merge(self, mean: torch.Tensor, var: torch.Tensor, count: torch.Tensor) -> None:
        """Add the moments of a batch, of this or another replica, to the statistics.

            delta = mean_b - mean,    n = count + count_b
            mean <- mean + delta * count_b / n
            var  <- (count * var + count_b * var_b + delta^2 * count * count_b / n) / n

        Args:
            mean: *shape float64.
            var: *shape float64, divided by the count.
            count: scalar float64.

        Source: Chan et al. 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
        """
        total = (self.count + count).clamp(min=1)
        share = count / total
        delta = mean - self.mean
        # Without any entry, old or new, the initial variance of 1 stays.
        kept = torch.where(self.count + count > 0, self.count / total, 1.0)
        self.mean += delta * share
        self.var.mul_(kept).add_(share * (var + delta.square() * kept))
        self.count += count


class BatchStatistics(nn.Module):
    """Base of layers of one's own that take statistics of the rows of a pass in training mode."""


def join_replicas(network: nn.Module, replicas: Replicas) -> None:
    """Let the running statistics of a network take in the batches of all replicas.

    Raises:
        TypeError: if another layer takes statistics of this replica's batches alone.
    """
    for name, part in network.named_modules():
        if isinstance(part, RunningMeanStdModel):
            part.join(replicas)
        elif replicas.world_size > 1 and takes_statistics(part) and not _is_synchronised(part):
            raise TypeError(
                f"Joining {replicas.world_size} replicas: the layer {name!r} of {type(network).__name__}, a "
                f"{type(part).__name__}, takes statistics of each replica's own batches, so that the replicas would "
                "drift apart; expected a layer without such statistics. Use torch.nn.LayerNorm or GroupNorm, "
                "rlpyt.models.RunningMeanStdModel for observations, or torch.nn.SyncBatchNorm on GPUs."
            )


def takes_statistics(part: nn.Module) -> bool:
    """Return whether a layer normalises by the rows at hand in training, and otherwise by what it has seen."""
    # An instance normalisation has them only if it tracks running ones.
    batch_norm = isinstance(part, nn.modules.batchnorm._BatchNorm | BatchStatistics)
    return batch_norm or (isinstance(part, _NormBase) and part.track_running_stats)


def _is_synchronised(part: nn.Module) -> bool:
    return isinstance(part, nn.SyncBatchNorm) and all(p.is_cuda for p in (*part.parameters(), *part.buffers()))
