"""Replicas in threads of one process, and what one process with the whole batch draws as the union of theirs.

`run_replicas` runs a function in every replica; any `Replicas` with the same calls serves instead of `ThreadReplicas`.
"""

from __future__ import annotations

import contextvars
import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import torch

from rlpyt.core import Replay
from rlpyt.types import Places, StateDict
from rlpyt.utils.arrays import buffer_func
from rlpyt.utils.reductions import FlatPass
from rlpyt.utils.replicas import Replicas

T = TypeVar("T")
_SECONDS = 100.0  # of a wait for the others, one of whom may compile


class Table:
    """Table at which replicas lay down what they exchange."""

    def __init__(self, world_size: int) -> None:
        self.items: list[Any] = [None] * world_size
        self.barrier = threading.Barrier(world_size, timeout=_SECONDS)


class ThreadReplicas(Replicas):
    """Replica in a thread, which talks to those at the same table. It fails where they make other calls.

    Args:
        rank: number of this replica, from 0.
        table: of all of them.
    """

    def __init__(self, rank: int, table: Table) -> None:
        super().__init__(rank, len(table.items))
        self._table = table
        self.calls: list[str] = []

    def exchange(self, call: str, item: T) -> list[T]:
        """Return the items of all replicas, which must make the same call."""
        self.calls.append(call)
        self._table.items[self.rank] = (call, item)
        self._table.barrier.wait()
        calls, items = zip(*self._table.items, strict=True)
        self._table.barrier.wait()
        assert len(set(calls)) == 1, f"the replicas make different calls: {calls}"
        return list(items)

    def total(self, numbers: torch.Tensor) -> torch.Tensor:
        of_all = self.exchange(f"total {list(numbers.shape)} {numbers.dtype}", numbers.detach().clone())
        return torch.stack(of_all).sum(0, dtype=numbers.dtype)

    def largest(self, numbers: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.exchange(f"largest {list(numbers.shape)}", numbers.detach().clone())).amax(0)

    def any(self, flag: bool) -> bool:
        return any(self.exchange("any", flag))

    def gather(self, item: T) -> list[T]:
        return self.exchange("gather", copy.deepcopy(item))

    def broadcast(self, item: T) -> T:
        return self.exchange("broadcast", copy.deepcopy(item))[0]

    def broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        first = self.exchange("broadcast_tensors", [x.detach().clone() for x in tensors])[0]
        with torch.no_grad():
            for tensor, value in zip(tensors, first, strict=True):
                tensor.copy_(value)

    def backward_pass(self, parameters: Sequence[torch.nn.Parameter]) -> Callable[[torch.Tensor], None]:
        return FlatPass(parameters, lambda flat: flat.copy_(self.total(flat)), self.world_size)


def in_threads(work: Callable[[ThreadReplicas], T], world_size: int = 2) -> list[Any]:
    """Return what a function returns, or raises, in each of some replicas; the table of a deadlock breaks."""
    table = Table(world_size)
    results: list[Any] = [None] * world_size

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadReplicas(rank, table))
        except BaseException as error:
            results[rank] = error

    contexts = [contextvars.copy_context() for _ in range(world_size)]
    threads = [threading.Thread(target=contexts[rank].run, args=(run, rank), daemon=True) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10 * _SECONDS)
        assert not thread.is_alive(), "a replica hangs"
    return results


def run_replicas(world_size: int, work: Callable[[Replicas], T]) -> list[T]:
    """Return what a function returns in each of some replicas.

    Raises:
        BaseException: the first error of one of them that is no consequence of another's.
    """

    def to_the_end(replicas: ThreadReplicas) -> T:
        try:
            result = work(replicas)
            replicas.exchange("end", None)
        except BaseException:
            replicas._table.barrier.abort()  # the others do not wait for it
            raise
        return result

    results = in_threads(to_the_end, world_size)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return results


# ---- shares, and their union ----


def columns_of(rank: int, world_size: int, B: int) -> slice:
    """Return the environments of a replica among those of all."""
    return slice(rank * B // world_size, (rank + 1) * B // world_size)


def share(buffer: Any, rank: int, world_size: int) -> Any:
    """Return a replica's columns of a batch [T, B], in memory of its own."""
    return buffer_func(buffer, lambda x: x[:, columns_of(rank, world_size, x.shape[1])].clone())


class UnionGenerator(torch.Generator):
    """Generator that draws for every row what the generator of the row's replica draws; see `union_draws`."""

    def __new__(cls, generators: Sequence[torch.Generator]) -> UnionGenerator:
        union = super().__new__(cls)
        union.generators = list(generators)
        return union

    generators: list[torch.Generator]


@contextmanager
def union_draws() -> Iterator[None]:
    """Let `torch.rand` and `torch.randn` draw [..., M, N] from a `UnionGenerator` as its generators do, each M / k."""

    def drawing(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def drawn(*size: Any, generator: torch.Generator | None = None, **kwargs: Any) -> torch.Tensor:
            if not isinstance(generator, UnionGenerator):
                return draw(*size, generator=generator, **kwargs)
            shape = list(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
            shape[-2] //= len(generator.generators)
            return torch.cat([draw(*shape, generator=own, **kwargs) for own in generator.generators], -2)

        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", drawing(torch.rand))
        patch.setattr(torch, "randn", drawing(torch.randn))
        yield


class DealtReplay(Replay):
    """Replay double that gives the batches it was dealt, and keeps the priorities that it is given.

    Args:
        batches: one after the other.
    """

    takes_priorities = True
    size = nbytes = least_rows = interval = n_priorities_dropped = 1

    def __init__(self, batches: Sequence[Any]) -> None:
        self.batches, self.priorities, self.n_drawn = list(batches), list[torch.Tensor](), 0

    def set_hyper(self, **hyper: Any) -> None:
        pass

    def append_samples(self, samples: Any, td_abs_error: Any = None) -> None:
        pass

    def sample_batch(self, batch_size: int) -> Any:
        batch = self.batches[self.n_drawn]
        assert len(batch.places.start) == batch_size
        self.n_drawn += 1
        return batch

    def update_priorities(self, places: Places, priorities: torch.Tensor) -> None:
        self.priorities.append(priorities)

    def check_valid(self) -> tuple[bool, str]:
        return True, ""

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        pass


def dealt(batch: Any, rank: int, world_size: int) -> Any:
    """Return a replica's share of a batch of transitions [M] or sequences [T, M]."""

    def rows(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.tensor_split(world_size, dim)[rank].clone()

    of_draws = ("places", "is_weights", "init_rnn_state")  # [M]
    dim = 1 if "episode_start" in batch._fields else 0
    fields = {
        name: buffer_func(value, rows, 0 if name in of_draws else dim)
        for name, value in zip(batch._fields, batch, strict=True)
    }
    return type(batch)(**fields)
