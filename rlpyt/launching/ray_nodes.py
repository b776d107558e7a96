"""Back end of a Ray cluster: the run slots of its nodes."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import time
from contextlib import suppress
from typing import Generic, NamedTuple

from rlpyt.launching.back_end import SlotLost
from rlpyt.launching.grid import GridRun
from rlpyt.launching.node_slots import Codes, NodeServer, Order
from rlpyt.utils.calls import Call, R, call
from rlpyt.utils.ray_cluster import RayConnection, RayNode

_ASK_SECONDS = 0.2
START_SECONDS = 60.0
"""Longest time in which a node starts its actor."""
_OF_RAY = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS")
"""Variables that Ray sets in its processes; a run is none."""


class Reference(NamedTuple, Generic[R]):
    """Reply to a call that may not have come yet."""

    ref: object


class SlotsActor:
    """Actor that passes requests on to the process of a node's run slots.

    Args:
        threads: OMP_NUM_THREADS of the launcher; Ray sets another.
        directory: working directory of the launcher, which is that of the runs where the node has it.
    """

    def __init__(self, threads: str | None, directory: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _OF_RAY}
        environment.pop("OMP_NUM_THREADS", None)
        if threads is not None:
            environment["OMP_NUM_THREADS"] = threads
        self._process = subprocess.Popen(
            # Not by -m, which warns that the package has imported the module already.
            [sys.executable, "-c", "from rlpyt.launching.node_slots import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=directory if os.path.isdir(directory) else None,
        )

    def ask(self, request: Call[NodeServer, R]) -> R:
        """Return the reply to a call."""
        assert self._process.stdin is not None, "a pipe"
        assert self._process.stdout is not None, "a pipe"
        with suppress(BrokenPipeError):
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
        try:
            reply: R = pickle.load(self._process.stdout)
        except EOFError:
            raise RuntimeError(f"the process of its run slots has ended with code {self._process.wait()}") from None
        return reply


class Node:
    """Twin of a node: its actor, and what it has last said of its runs.

    Args:
        connection: to the cluster.
        node: which the actor takes as a whole, so that no other grid gets it.
        timeout: seconds without an answer after which the node counts as lost.
    """

    def __init__(self, connection: RayConnection, node: RayNode, timeout: float) -> None:
        self._ray, self._timeout, self.name, self.n_cores = connection.ray, timeout, node.name, node.n_cores
        threads, folder = os.environ.get("OMP_NUM_THREADS"), os.getcwd()
        self._relay = connection.start(
            node.node_id, SlotsActor, threads, folder, n_cores=node.n_cores, n_gpus=node.n_gpus
        )
        self._lost: str | None = None
        self._codes: Codes = {}
        self._pending: Reference[Codes] | None = None
        self._asked = 0.0

    def ask(self, request: Call[NodeServer, R]) -> Reference[R]:
        """Send a call, without waiting for the reply."""
        return Reference(self._relay.ask.remote(request))

    def answer(self, pending: Reference[R], seconds: float) -> R | None:
        """Return a reply; None if it has not come in time.

        Raises:
            SlotLost: if the node, its actor or its process is gone.
        """
        try:
            reply: R = self._ray.get(pending.ref, timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            return None
        except self._ray.exceptions.RayError as error:
            self._lose(f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}")
        return reply

    def codes(self) -> Codes:
        """Return the exit codes of its runs that have ended.

        Raises:
            SlotLost: if the node is lost.
        """
        if self._lost is not None:
            raise SlotLost(self._lost)
        now = time.monotonic()
        if self._pending is None:
            if now - self._asked > _ASK_SECONDS:
                self._pending, self._asked = self.ask(call(NodeServer.poll)), now
        elif (reply := self.answer(self._pending, 0)) is not None:
            self._pending, self._codes = None, reply
        elif now - self._asked > self._timeout:
            self._lose(f"it has not answered for {self._timeout:g} s")
        return self._codes

    def _lose(self, why: str) -> None:
        self._lost = f"{self.name} was lost, and its run slots with it: {why.rstrip('.')}."
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._relay)
        raise SlotLost(self._lost)


class RayRun:
    """Run on a node.

    Args:
        node: on which it is.
        number: of its start.
    """

    def __init__(self, node: Node, number: int) -> None:
        self._node, self._number = node, number

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the run goes on.

        Raises:
            SlotLost: if the node is lost.
            RuntimeError: if the run cannot start there.
        """
        code = self._node.codes().get(self._number)
        if isinstance(code, str):
            raise RuntimeError(f"RayNodes: {self._node.name}: {code}.")
        return code

    def waiting(self) -> str | None:
        """Return None: no job system has a queue here."""
        return None

    def stop(self, signum: int) -> None:
        """Send a signal; SIGKILL goes to all processes of the run."""
        self._node.ask(call(NodeServer.stop, self._number, int(signum)))


class RayNodes:
    """Run slots of the nodes of a Ray cluster, each node's like those of `run_experiments` on one machine.

    The nodes are those that live now; each is taken whole. A node that is lost takes its slots along, and its runs go
    on in others from their checkpoints. The slots are free again when this object is gone. Script, grid and library
    must be on a file system that all nodes share. Needs the extra `ray`.

    Args:
        affinity_code: of every node; None for one run on each of its GPUs, or without GPUs on each core that Ray deals.
        ray_address: the cluster, as `ray.init` takes it: "auto" is the one that runs on this machine. Not used where
            the process is connected to one.
        set_egl_device: whether a run renders on its GPU.
        node_timeout: seconds without an answer after which a node counts as lost.

    Raises:
        ImportError: if Ray is not installed.
        RuntimeError: if there is no cluster, or a node is not free.
        ValueError: if the code does not fit a node.
    """

    def __init__(
        self,
        affinity_code: str | None = None,
        ray_address: str = "auto",
        set_egl_device: bool = False,
        node_timeout: float = 30.0,
    ) -> None:
        if not node_timeout > 1:
            raise ValueError(f"RayNodes: node_timeout is {node_timeout}; expected a number of seconds above 1.")
        connection = RayConnection(type(self).__name__, ray_address)
        nodes = [Node(connection, node, node_timeout) for node in connection.nodes().values() if node.n_cores]
        opened = [
            (node, node.ask(call(NodeServer.open, affinity_code, set_egl_device, node.n_cores))) for node in nodes
        ]
        end = time.monotonic() + START_SECONDS
        n_slots = [(_n_slots(node, pending, end), node) for node, pending in opened]
        self._slots = [
            (node, i) for i in range(max((n for n, _ in n_slots), default=0)) for n, node in n_slots if i < n
        ]
        if not self._slots:
            raise RuntimeError("RayNodes: the cluster has no node with cores; expected one. Start it: `ray start`.")
        self.n_slots = len(self._slots)
        self._numbers = itertools.count()

    def start(self, slot: int, run: GridRun, script: str, inherited: int) -> RayRun:
        """Start a run in a free slot; the lock of the grid is not passed on, as a run holds one of its own."""
        node, of_node = self._slots[slot]
        number = next(self._numbers)
        order = Order(number, of_node, script, str(run.log_dir), run.run_ID, run.name, list(run.args))
        node.ask(call(NodeServer.start, order))
        return RayRun(node, number)


def _n_slots(node: Node, pending: Reference[int | str], end: float) -> int:
    try:
        reply = node.answer(pending, max(0.0, end - time.monotonic()))
    except SlotLost as error:
        raise RuntimeError(f"RayNodes: starting run slots: {error}") from error
    if reply is None:
        raise RuntimeError(
            f"RayNodes: {node.name} has not started its run slots for {START_SECONDS:g} s; expected that all its "
            "cores and GPUs are free. `ray status` shows what else runs there: end it, or wait."
        )
    if isinstance(reply, str):
        raise ValueError(f"RayNodes: {node.name}: {reply}")
    return reply
