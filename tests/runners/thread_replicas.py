"""Replicas in threads, each of which may raise an error of its own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tests.replica_kit import Table, ThreadReplicas

T = TypeVar("T")


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
    threads = [threading.Thread(target=contexts[rank].run, args=(run, rank)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
        assert not thread.is_alive(), "a replica hangs"
    return results
