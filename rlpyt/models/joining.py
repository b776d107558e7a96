"""Networks among replicas: statistics of batches are those of all replicas, or refused."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from rlpyt.models.running_mean_std import RunningMeanStdModel
from rlpyt.utils.replicas import Replicas


def join_replicas(network: nn.Module, replicas: Replicas) -> None:
    """Let the running statistics of a network take in the batches of all replicas.

    Raises:
        TypeError: if another layer takes statistics of this replica's batches alone.
    """
    for name, part in network.named_modules():
        if isinstance(part, RunningMeanStdModel):
            part.join(replicas)
        elif replicas.world_size > 1 and _takes_statistics(part) and not _is_synchronised(part):
            raise TypeError(
                f"Joining {replicas.world_size} replicas: the layer {name!r} of {type(network).__name__}, a "
                f"{type(part).__name__}, takes statistics of each replica's own batches, so that the replicas would "
                "drift apart; expected a layer without such statistics. Use torch.nn.LayerNorm or GroupNorm, "
                "rlpyt.models.RunningMeanStdModel for observations, or torch.nn.SyncBatchNorm on GPUs."
            )


def _takes_statistics(part: nn.Module) -> bool:
    # An instance normalisation has them only if it tracks running ones.
    batch_norm = isinstance(part, nn.modules.batchnorm._BatchNorm)
    return batch_norm or (isinstance(part, _NormBase) and part.track_running_stats)


def _is_synchronised(part: nn.Module) -> bool:
    return isinstance(part, nn.SyncBatchNorm) and all(p.is_cuda for p in (*part.parameters(), *part.buffers()))
