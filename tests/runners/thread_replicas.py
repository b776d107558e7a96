"""Replicas in threads of one process: what runners, algorithms and replays ask of a group, without processes."""

from __future__ import annotations

import contextvars
import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from rlpyt.utils.replicas import Replicas

T = TypeVar("T")
_SECONDS = 20.0


class _Table:
    """Places of all replicas, at which they lay down what they exchange."""

    def __init__(self, world_size: int) -> None:
        self.items: list[Any] = [None] * world_size
        self.barrier = threading.Barrier(world_size, timeout=_SECONDS)


class ThreadReplicas(Replicas):
    """Replica in a thread, which exchanges items with others of the same table."""

    def __init__(self, rank: int, table: _Table) -> None:
        super().__init__(rank, len(table.items))
        self._table = table
        self.calls: list[str] = []

    def _exchange(self, call: str, item: T) -> list[T]:
        self.calls.append(call)
        self._table.items[self.rank] = (call, item)
        self._table.barrier.wait()
        everything = list(self._table.items)
        self._table.barrier.wait()
        assert {name for name, _ in everything} == {call}, f"the replicas made other calls: {everything}"
        return [item for _, item in everything]

    def total(self, numbers: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._exchange("total", numbers.detach().clone())).sum(0, dtype=numbers.dtype)

    def largest(self, numbers: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._exchange("largest", numbers.detach().clone())).amax(0)

    def any(self, flag: bool) -> bool:
        return any(self._exchange("any", flag))

    def gather(self, item: T) -> list[T]:
        return self._exchange("gather", copy.deepcopy(item))

    def broadcast(self, item: T) -> T:
        return self._exchange("broadcast", copy.deepcopy(item))[0]

    def broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            first = self._exchange("broadcast_tensors", [x.detach().clone() for x in tensors])[0]
            for tensor, value in zip(tensors, first, strict=True):
                tensor.copy_(value)

    def backward_pass(self, parameters: Sequence[torch.nn.Parameter]) -> Callable[[torch.Tensor], None]:
        backward = super().backward_pass(parameters)

        def run(loss: torch.Tensor) -> None:
            backward(loss)
            every = self._exchange("backward", [None if x.grad is None else x.grad.clone() for x in parameters])
            for parameter, grads in zip(parameters, zip(*every, strict=True), strict=True):
                known = [grad for grad in grads if grad is not None]
                parameter.grad = torch.stack(known).sum(0) / self.world_size if known else None

        return run


def in_threads(work: Callable[[ThreadReplicas], T], world_size: int = 2) -> list[T | BaseException]:
    """Return what a function returns, or raises, in each of some replicas; a deadlock breaks their table."""
    table = _Table(world_size)
    results: list[Any] = [None] * world_size

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadReplicas(rank, table))
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(run, rank)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=3 * _SECONDS)
        assert not thread.is_alive(), "a replica hangs"
    return results
