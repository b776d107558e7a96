"""Runs of replicas in threads of one process, which may end with errors of their own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tests.replica_kit import Table, ThreadReplicas

__all__ = ["ThreadReplicas", "in_threads"]

T = TypeVar("T")
_SECONDS = 60.0


def in_threads(work: Callable[[ThreadReplicas], T], world_size: int = 2) -> list[T | BaseException]:
    """Return what a function returns, or raises, in each of some replicas; a deadlock breaks their table."""
    table = Table(world_size)
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
        thread.join(timeout=_SECONDS)
        assert not thread.is_alive(), "a replica hangs"
    return results
