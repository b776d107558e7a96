"""Backward passes over several replicas, which set the gradients of parameters to their mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch.nn.parallel import DistributedDataParallel


class _Loss(torch.nn.Module):
    """Module whose output is the loss that it is given, and whose parameters are those of an optimiser."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        super().__init__()
        self.parameters_of_optimizer = torch.nn.ParameterList(parameters)

    def forward(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return loss


class DdpPass:
    """Backward pass during which DistributedDataParallel averages the gradients, bucket by bucket."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._module = DistributedDataParallel(
            _Loss(parameters),
            find_unused_parameters=True,
            gradient_as_bucket_view=True,
            init_sync=False,
        )

    def __call__(self, loss: torch.Tensor) -> None:
        """Set the gradients of a loss."""
        self._module(loss).backward(inputs=self._parameters)


class FlatPass:
    """Backward pass after which all gradients are averaged as one tensor for each device and type.

    The tensor has a place for every parameter. So replicas whose losses depend on different parameters send equally
    much. A last element for each parameter counts the replicas that have a gradient.
    """

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], total: Callable[[torch.Tensor], object], world_size: int
    ) -> None:
        self._parameters, self._total, self._world_size = list(parameters), total, world_size
        groups: dict[tuple[torch.device, torch.dtype], list[torch.nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            groups[parameter.device, parameter.dtype].append(parameter)
        self._groups = [_Group(members) for members in groups.values()]

    def __call__(self, loss: torch.Tensor) -> None:
        """Set the gradients of a loss."""
        # The loss is divided, as the gradients would have to be read and written once more.
        (loss / self._world_size).backward(inputs=self._parameters)
        for group in self._groups:
            group.fill()
            self._total(group.flat)
            group.spread()


class _Group:
    """Parameters of one device and type, and one tensor with a place for the gradient of each."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = parameters
        n = sum(parameter.numel() for parameter in parameters)
        self.flat = parameters[0].new_zeros(n + len(parameters))
        pieces = self.flat.detach()[:n].split([parameter.numel() for parameter in parameters])
        # In the parameter's own order of memory: fused optimisers read both side by side.
        self._places = [_like(piece, parameter) for piece, parameter in zip(pieces, parameters, strict=True)]
        self._counts = self.flat[n:]
        self._ones = torch.ones_like(self._counts)

    @torch.no_grad()
    def fill(self) -> None:
        """Copy the gradients to their places."""
        there = {i: p.grad for i, p in enumerate(self._parameters) if p.grad is not None}
        torch._foreach_copy_([self._places[i] for i in there], list(there.values()))
        if len(there) == len(self._parameters):
            self._counts.copy_(self._ones)
            return
        self._counts.zero_()
        self._counts[list(there)] = 1
        for i in set(range(len(self._parameters))) - set(there):
            self._places[i].zero_()

    @torch.no_grad()
    def spread(self) -> None:
        """Make the places the gradients, where any replica has one."""
        for parameter, place, count in zip(self._parameters, self._places, self._counts.tolist(), strict=True):
            parameter.grad = place if count > 0 else None


def _like(piece: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a view of as many elements in the shape of a parameter, in its order of memory if that has no gaps."""
    dense = torch.empty_like(parameter).stride() == parameter.stride()
    return (
        piece.as_strided(parameter.shape, parameter.stride(), piece.storage_offset())
        if dense
        else piece.view(parameter.shape)
    )
