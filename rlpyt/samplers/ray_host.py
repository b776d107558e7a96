"""Host of workers on one node of a Ray cluster: it relays between the master and processes on its own machine.

The processes are those of `CpuSampler`: the same server, with weights and rows in the shared memory of the node. The
host adds what another machine needs: weights come in and rows go out as arrays. It answers at least twice a second,
with the progress of the worker. So the master sees a node that hangs.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlpyt.core import Agent
from rlpyt.samplers.buffer import RowMemory, Rows
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.samplers.work import Collects
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.calls import AnyCall, Call, call
from rlpyt.utils.process_start import stop_forkserver
from rlpyt.utils.processes import Watch, Worker, WorkerError, stop_workers
from rlpyt.utils.shared_memory import dumps, dumps_by_value, shared_array


class Columns(NamedTuple):
    """Contents of some columns of the rows: one place of the ring, or only the row after its batch."""

    place: int
    is_whole: bool
    """Whether it is the whole place."""
    arrays: list[np.ndarray]

    @classmethod
    def of(cls, rows: Rows, place: int, is_whole: bool) -> Columns:
        """Return views of the contents."""
        return cls(place, is_whole, _leaves(rows.memory, place, is_whole))

    def copy_to(self, rows: Rows) -> None:
        """Write the contents into the same columns of other rows."""
        for mine, received in zip(_leaves(rows.memory, self.place, self.is_whole), self.arrays, strict=True):
            mine[...] = received


def _leaves(memory: RowMemory, place: int, is_whole: bool) -> list[np.ndarray]:
    of_place = memory._replace(resting=None, last_place=None)[place]
    batch = buffer_leaves(of_place) if is_whole else [leaf[-1:] for leaf in buffer_leaves(of_place.inputs)]
    return [*batch, memory.resting, memory.last_place]


def last_place(rows: Rows) -> int:
    """Return the place of the last whole batch."""
    return int(rows.memory.last_place.max(initial=0))


@dataclass(frozen=True)
class _Leaf:
    shape: tuple[int, ...]
    dtype: npt.DTypeLike

    def allocate(self) -> np.ndarray:
        return shared_array(self.shape, self.dtype)


class Layout(NamedTuple):
    """Shapes and types of rows, from which another machine allocates its own."""

    memory: RowMemory

    @classmethod
    def of(cls, rows: Rows) -> Layout:
        """Return the layout of rows."""
        return cls(buffer_func(rows.memory, lambda array: _Leaf(array.shape, array.dtype)))

    def allocate(self) -> Rows:
        """Return new rows in shared memory, zero at first."""
        return Rows(buffer_func(self.memory, _Leaf.allocate))


def start_of_layouts(server: Collects, check: Check, layouts: Mapping[FleetRole, Layout]) -> None:
    """Start a worker on another machine: its host makes `Collects.start` of it, with rows and agent of its own."""
    raise AssertionError("a host sends no such call on")


class First(NamedTuple):
    """Part of the messages to a new worker, until it has rows."""

    server: bytes
    """Pickled: what makes the server, and its arguments."""
    boundary: Columns | None
    """The row that the next batch begins with; None while the run has no rows."""


class Answer(NamedTuple):
    """Answer of a host: the reply or the error of a worker, or a sign of life."""

    progress: list[int]
    reply: bytes | None = None
    """Pickled; None while the worker is at work."""
    columns: Columns | None = None
    """What the worker has written since its last reply."""
    error: str | None = None


class RayHost:
    """Actor that starts workers on its node and relays between them and the master.

    Its methods run in several threads, at most one for each worker.

    Args:
        start_method: of the workers.
    """

    def __init__(self, start_method: str) -> None:
        # A worker would import the file of the main module, Ray's own, which takes a second.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._start_method = start_method
        self._workers: dict[int, Worker] = {}
        self._rows: dict[int, dict[FleetRole, Rows]] = {}  # kept: a busy worker opens this memory late
        self._agent: Agent | None = None  # which the workers are sent
        self._weights: WeightStore | None = None
        self._version = -1
        self._lock = threading.Lock()

    def ask(
        self,
        key: int,
        rank: int,
        data: bytes,
        first: First | None,
        agent: bytes | None,
        version: int,
        weights: Sequence[np.ndarray] | None,
    ) -> Answer:
        """Send a worker a request, and return the first answer.

        Args:
            key: of the worker, which no other worker of the run has.
            rank: of the worker.
            data: the pickled request.
            first: what starts the worker; None once it has rows.
            agent: pickled worker's copy; None where this host has it, or before there is one.
            version: of the weights.
            weights: published by the agent of the master; None before there is one.
        """
        if first is not None and key not in self._workers:
            serve, args = pickle.loads(first.server)
            with self._lock:
                self._workers[key] = Worker(rank, serve, args, self._start_method)
        self._publish(agent, version, weights)
        request: AnyCall[Collects] = pickle.loads(data)
        itr: int | None = None
        if request.is_of(start_of_layouts):
            request = self._start(key, request, first)
            data = dumps(request)
        elif request.is_of(Collects.collect):
            itr = request.args[0]
        try:
            self._workers[key].send_bytes(data)
        except WorkerError as error:
            return Answer(self._workers[key].progress.numbers(), error=str(error))
        return self.wait(key, itr)

    def wait(self, key: int, itr: int | None) -> Answer:
        """Return the next answer of a worker that is at work on the batch of an iteration, or on something else."""
        worker = self._workers[key]
        try:
            if not Watch([worker], math.inf).wait():
                return Answer(worker.progress.numbers())
            reply = worker.receive()
        except WorkerError as error:
            return Answer(worker.progress.numbers(), error=str(error))
        return Answer(worker.progress.numbers(), dumps_by_value(reply), self._written(key, itr))

    def _start(self, key: int, request: Call[Collects, None], first: First | None) -> Call[Collects, None]:
        """Return the start of a worker with rows of this machine in place of their layouts."""
        check, layouts = request.args
        rows: dict[FleetRole, Rows] = {role: layout.allocate() for role, layout in layouts.items()}
        if first is not None and first.boundary is not None:
            first.boundary.copy_to(rows[FleetRole.TRAIN])
        rows[FleetRole.TRAIN].turn_to(last_place(rows[FleetRole.TRAIN]))
        self._rows[key] = rows
        assert self._agent is not None, "the agent comes with the start"
        assert self._weights is not None, "which comes with its weights"
        return call(Collects.start, check, self._agent, self._weights, rows)

    def pid(self) -> int:
        """Return the process number on its node."""
        return os.getpid()

    def stop(self, keys: Sequence[int], seconds: float | None) -> None:
        """Stop workers, which close their environments; with the last one goes what Ray would leave on the disk."""
        workers = [self._workers.pop(key) for key in keys if key in self._workers]
        for key in keys:
            self._rows.pop(key, None)
        stop_workers(workers, seconds)
        if not self._workers:
            stop_forkserver()

    def _publish(self, agent: bytes | None, version: int, weights: Sequence[np.ndarray] | None) -> None:
        """Let the workers on this node have the weights; nobody acts when a new version comes."""
        with self._lock:
            if self._agent is None and agent is not None:
                self._agent = pickle.loads(agent)
                self._weights = WeightStore(self._agent)
            if self._weights is not None and weights is not None and version != self._version:
                self._weights.receive(weights)
                self._version = version

    def _written(self, key: int, itr: int | None) -> Columns | None:
        if key not in self._rows:
            return None
        rows = self._rows[key][FleetRole.TRAIN]
        place = last_place(rows) if itr is None else itr % len(rows.places)
        return Columns.of(rows, place, itr is not None)
