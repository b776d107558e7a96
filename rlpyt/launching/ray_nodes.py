"""Back end of a Ray cluster: the run slots of its nodes.

An actor on each node owns a process, which owns the runs there: it takes pickled calls from standard input, and answers
each. It ends with its input, and the kernel then sends SIGTERM to its runs, as to those of a launcher that dies. The
actor could not own the runs itself: Ray kills the children of a process that it ends, so they would save no checkpoint.
"""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from rlpyt.launching.affinity import quick_affinity_code
from rlpyt.launching.back_end import RunRefused, SlotLost, Started
from rlpyt.launching.grid import WAIT_SECONDS, GridRun, take_lock
from rlpyt.launching.local import LocalSlots
from rlpyt.launching.machine import Machine
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.run_records import VARIANT_FILE
from rlpyt.utils.calls import Call, CallServer, R, call
from rlpyt.utils.ray_cluster import NodeActor, RayConnection, RayNode

_ASK_SECONDS = 0.2
START_SECONDS = 60.0
"""Longest time in which a node starts its actor."""
_OF_RAY = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS")
"""Variables that Ray sets in its processes; a run is none."""

Codes: TypeAlias = dict[int, int | str]
"""Exit codes of runs that have ended, by the number of their start; a text for one that could not start."""


# ---- on a node ----


class NodeSlots(CallServer):
    """Run slots of this machine, whose runs wait for those of the same directory elsewhere.

    A run holds the file `run_<run_ID>.lock` of its variant's folder. So a run of a node that only seems lost, or of a
    launcher that was killed, has saved its work before the same run goes on here, or `wait_seconds` are over.
    """

    _slots: LocalSlots

    def __init__(self, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds = wait_seconds
        self._waiting: dict[int, tuple[int, str, GridRun, float]] = {}
        self._runs: dict[int, Started] = {}
        self._codes: Codes = {}

    def open(self, code: str | None, set_egl_device: bool, max_slots: int) -> int | str:
        """Make the slots; return their number, or why the code does not fit this machine.

        No code is that of `quick_affinity_code`, for `max_slots` at most: the cores that Ray deals.
        """
        try:
            if code is None:
                machine = Machine.of_this_process()
                code = quick_affinity_code(len(machine.devices) or min(max_slots, len(machine.cores)))
            self._slots = LocalSlots(code, set_egl_device)
        except (ValueError, OSError) as error:
            return str(error)
        return self._slots.n_slots

    def start(self, number: int, slot: int, script: str, run: GridRun) -> None:
        """Start a run, as soon as no other process holds it; no other start of the launcher has its number."""
        self._waiting[number] = slot, script, run, time.monotonic() + self._wait_seconds
        self.poll()

    def poll(self) -> Codes:
        """Return the exit codes of the runs that have ended."""
        for number in list(self._waiting):
            if (code := self._try(number, *self._waiting[number])) is not None:
                self._codes[number] = code
            if code is not None or number in self._runs:
                del self._waiting[number]
        for number, run in list(self._runs.items()):
            if (exit_code := run.poll()) is not None:
                self._codes[number] = exit_code
                del self._runs[number]
        return self._codes

    def stop(self, number: int, signum: int) -> None:
        """Send a signal to a run; one that has not started ends."""
        if number in self._runs:
            self._runs[number].stop(signum)
        elif self._waiting.pop(number, None) is not None:
            self._codes[number] = PREEMPTED

    def _try(self, number: int, slot: int, script: str, run: GridRun, end: float) -> str | None:
        """Start a run unless it is held elsewhere; return why it cannot start."""
        missing = [path for path in (Path(script), run.log_dir / VARIANT_FILE) if not path.is_file()]
        if missing:
            return f"there is no {missing[0]}; script and grid must be on a file system of all nodes"
        try:
            lock = take_lock(run.log_dir / f"run_{run.run_ID}.lock")
            if lock is None:
                held = f"another process has held the run for {self._wait_seconds:g} s; end it"
                return held if time.monotonic() > end else None
            try:
                self._runs[number] = self._slots.start(slot, run, script, lock)
            finally:
                os.close(lock)
        except (OSError, RunRefused) as error:
            return f"the run cannot start: {error}"
        return None


def main() -> None:
    """Answer calls until standard input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no reply
    server = NodeSlots()
    with suppress(EOFError):
        while True:
            pickle.dump(server(pickle.load(sys.stdin.buffer)), replies)
            replies.flush()


class SlotsActor:
    """Actor that passes requests on to the process of a node's run slots.

    The process has OMP_NUM_THREADS of the launcher, where Ray sets another, and its working directory, where the node
    has it.
    """

    def __init__(self, threads: str | None, directory: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _OF_RAY}
        environment.pop("OMP_NUM_THREADS", None)
        if threads is not None:
            environment["OMP_NUM_THREADS"] = threads
        self._process = subprocess.Popen(
            # Not by -m, which warns that the package has imported the module already.
            [sys.executable, "-c", "from rlpyt.launching.ray_nodes import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=directory if os.path.isdir(directory) else None,
        )

    def ask(self, request: Call[NodeSlots, R]) -> R:
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


# ---- at the launcher ----


class Node(NodeActor):
    """Node with run slots, as the launcher knows it, and what it has last said of its runs.

    Its actor takes the node as a whole, so that no other grid gets it. After `timeout` seconds without an answer the
    node counts as lost.
    """

    def __init__(self, connection: RayConnection, node: RayNode, timeout: float) -> None:
        arguments = os.environ.get("OMP_NUM_THREADS"), os.getcwd()
        super().__init__(connection, node, SlotsActor, *arguments, n_cores=node.n_cores, n_gpus=node.n_gpus)
        self._timeout, self._codes = timeout, Codes()

    def send(self, request: Call[NodeSlots, R]) -> Any:
        """Send a call to the run slots; return the reply to come."""
        return self.remote.ask.remote(request)

    def codes(self) -> Codes:
        """Return the exit codes of its runs that have ended."""
        if self.question is not None and not self.lost:
            self._codes = self.answer(self._timeout) or self._codes
        elif not self.lost and time.monotonic() - self.asked > _ASK_SECONDS:
            self.ask(self.send(call(NodeSlots.poll)))
        if self.lost:
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(self.remote)
            raise SlotLost(f"{self.name} was lost, and its run slots with it: it {self.lost.rstrip('.')}.")
        return self._codes


class RayRun(Started):
    """Run on a node, by the number of its start."""

    def __init__(self, node: Node, number: int) -> None:
        self._node, self._number = node, number

    def poll(self) -> int | None:
        """Return the exit code, as a `Started`; a RuntimeError says why the run cannot start there."""
        code = self._node.codes().get(self._number)
        if isinstance(code, str):
            raise RuntimeError(f"RayNodes: {self._node.name}: {code}.")
        return code

    def stop(self, signum: int) -> None:
        """Send a signal."""
        self._node.send(call(NodeSlots.stop, self._number, int(signum)))


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
        for node in nodes:
            node.ask(node.send(call(NodeSlots.open, affinity_code, set_egl_device, node.n_cores)))
        end = time.monotonic() + START_SECONDS
        n_slots = [(_n_slots(node, end), node) for node in nodes]
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
        node.send(call(NodeSlots.start, number, of_node, script, run))
        return RayRun(node, number)


def _n_slots(node: Node, end: float) -> int:
    reply = node.answer(START_SECONDS, max(0.0, end - time.monotonic()))
    if reply is None:
        raise RuntimeError(
            f"RayNodes: {node.name} has not started its run slots: it {node.lost}; expected that all its cores and "
            "GPUs are free. `ray status` shows what else runs there: end it, or wait."
        )
    if not isinstance(reply, int):
        raise ValueError(f"RayNodes: {node.name}: {reply}")
    return reply
