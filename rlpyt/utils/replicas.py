"""Replicas of a run: the numbers, decisions and gradients that all of them agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Replicas:
    """Replica that talks to no other one: whatever all would agree on is what it has itself.

    A group of processes derives from this class (`rlpyt.utils.process_group.ProcessGroup`). All of its replicas make
    the same calls in the same order; what they then return is the same in all of them.
    """

    reduction: str = "flat"
    """How gradients are averaged: as one tensor, or by torch's DistributedDataParallel ("ddp")."""

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size

    @property
    def n_on_this_machine(self) -> int:
        """Replicas that share the memory of this machine, this one included."""
        return 1

    def total(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the sums over the replicas of numbers, any shape; on the device, in their dtype."""
        return numbers

    def largest(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the largest of the replicas' numbers, any shape."""
        return numbers

    def each(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the numbers of every replica, [world_size, ...] in the order of ranks; on the device."""
        if self.world_size == 1:
            return numbers[None]
        every = numbers.new_zeros(self.world_size, *numbers.shape)
        every[self.rank] = numbers
        return self.total(every)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any replica."""
        return flag

    def gather(self, item: T) -> list[T]:
        """Return the items of all replicas, in the order of their ranks; whatever pickles."""
        return [item]

    def broadcast(self, item: T) -> T:
        """Return the item of replica 0; whatever pickles."""
        return item

    def broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copy the tensors of replica 0 into those of all others, in place."""

    def backward_pass(self, parameters: Sequence[torch.nn.Parameter]) -> Callable[[torch.Tensor], None]:
        """Return the backward pass of a scalar loss over some parameters.

        It sets their `grad` to the mean of the replicas' gradients. A parameter that no replica's loss depends on keeps
        None.

        Args:
            parameters: all of them require a gradient.
        """
        inputs = list(parameters)
        return lambda loss: loss.backward(inputs=inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of an agent in another process acts there and agrees on nothing.
        return Replicas, (self.rank, self.world_size)
