"""Ray cluster of two nodes on this machine, which all tests of a session share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

SMALL: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


class TwoNodes:
    """Cluster of a head and another node with a core each, to which this process is connected."""

    def __init__(self) -> None:
        import ray
        from ray.cluster_utils import Cluster

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self._cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
        self._other: Any = None
        self.address: str = self._cluster.address
        self._ray = ray
        self.make_whole()

    def make_whole(self) -> None:
        """Start the other node again if a test has removed it, and connect."""
        if self._other is None:
            self._other = self._cluster.add_node(**SMALL)
            self._cluster.wait_for_nodes()  # also until the cluster knows that the former one is gone
        if not self._ray.is_initialized():
            self._ray.init(address=self.address, logging_level=logging.ERROR, log_to_driver=False)

    def disconnect(self) -> None:
        """Disconnect: other tests send this process signals, and look at its threads."""
        self._ray.shutdown()

    @property
    def other_id(self) -> str:
        """Identifier of the other node."""
        node_id: str = self._other.node_id
        return node_id

    def remove_other(self) -> None:
        """Kill the processes of the other node; those that these have started end by themselves."""
        node, self._other = self._other, None
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """End the cluster."""
        self._ray.shutdown()
        self._cluster.shutdown()


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """Yield a cluster of two nodes until the block ends."""
    nodes = TwoNodes()
    try:
        yield nodes
    finally:
        nodes.close()


def below(*names: str) -> set[psutil.Process]:
    """Return the living processes that have all these texts in their command lines, or in those of their parents."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended meanwhile
            lines = [" ".join(one.cmdline()) for one in (process, *process.parents())]
            if names[0] in lines[0] and all(any(name in line for line in lines) for name in names[1:]):
                found.add(process)
    return found
