"""The sampler of `CpuSampler`'s workers on the nodes of a Ray cluster, and what the master knows of these workers.

A worker is an actor of Ray with the server of a worker. It works in its main thread, as environments may need that one.
Weights come in, and rows go out, as arrays. Beside the workers of a node a watch holds their progress in shared memory:
so the master sees a worker that stands still, even one that holds Python's lock, and a node that does not answer.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rlpyt.core import Agent
from rlpyt.samplers.buffer import RowMemory, Rows
from rlpyt.samplers.cpu import CpuSampler
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.samplers.work import Collects, RemoteCollectors
from rlpyt.samplers.workers import Workers, check_n_workers
from rlpyt.types import Kwargs
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.calls import AnyCall
from rlpyt.utils.processes import START_METHODS, WorkerError
from rlpyt.utils.progress import Progress
from rlpyt.utils.ray_cluster import NodeActor, RayConnection, RayNode
from rlpyt.utils.shared_memory import dumps, dumps_by_value, shared_array, unsendable
from rlpyt.utils.watched import Picklable, receive_asking
from rlpyt.utils.worker_main import Failure, keep_to_one_thread, leave_stop_signals_to_master
from rlpyt.utils.workers_here import Server

_CLOSE_SECONDS = 5.0  # for the environments of a worker to close in order
START_SECONDS = 300.0
"""Longest time until an actor has started: Ray waits without end for cores that others have."""

Columns: TypeAlias = tuple[int, bool, list[np.ndarray]]
"""Place in the ring, whether all of it is there or only the row after its batch, and the arrays."""


def columns_of(memory: RowMemory, is_whole: bool) -> Columns:
    """Return views of the last whole batch, or only of the row after it."""
    place = int(memory.last_place.max(initial=0))
    return place, is_whole, _leaves(memory, place, is_whole)


def write_columns(memory: RowMemory, columns: Columns) -> None:
    """Write what `columns_of` returned of the same columns on another machine."""
    place, is_whole, arrays = columns
    for mine, received in zip(_leaves(memory, place, is_whole), arrays, strict=True):
        mine[...] = received


def _leaves(memory: RowMemory, place: int, is_whole: bool) -> list[np.ndarray]:
    at = memory._replace(resting=None, last_place=None)[place]
    batch = buffer_leaves(at) if is_whole else [leaf[-1:] for leaf in buffer_leaves(at.inputs)]
    return [*batch, memory.resting, memory.last_place]


class RayServer:
    """Actor that is a worker; `server` is what makes its server, and the arguments, pickled."""

    def __init__(self, rank: int, server: bytes) -> None:
        leave_stop_signals_to_master(obeys_sigterm=True)
        keep_to_one_thread()
        self._progress = Progress()
        self._rank, self._made_by = rank, server
        self._server: Server | None = None
        self._weights: WeightStore | None = None
        self._memory: RowMemory | None = None

    def note(self, progress: bytes) -> None:
        """Note the progress where the watch reads it."""
        self._progress = pickle.loads(progress)

    def answer(
        self, data: bytes, shared: bytes | None, weights: Sequence[np.ndarray] | None
    ) -> tuple[list[int], bytes, Columns | None]:
        """Answer a request; return the progress, the pickled reply or `Failure`, and what was written into the rows.

        Args:
            data: the pickled request; that to start lacks what all workers share.
            shared: pickled, where the request is to start: agent and store of weights.
            weights: published by the agent of the master; None before there is one.
        """
        try:
            request: AnyCall[Collects] = pickle.loads(data)
            if (server := self._server) is None:
                serve, args = pickle.loads(self._made_by)
                server = self._server = serve(self._rank, self._progress, *args)
            if shared is not None:
                check, rows = request.args
                agent, self._weights = pickle.loads(shared)
                request = request._replace(args=(check, agent, self._weights, rows))
                self._memory = rows[FleetRole.TRAIN].memory
            if self._weights is not None and weights is not None:
                self._weights.receive(weights)
            reply = dumps_by_value(server(request))
        except BaseException as error:  # also an environment that exits
            failure = Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
            return self._progress.numbers(), dumps(failure), None
        is_whole = request.is_of(Collects.collect)
        return self._progress.numbers(), reply, None if self._memory is None else columns_of(self._memory, is_whole)

    def close(self) -> None:
        """Close the environments."""
        if self._server is not None:
            self._server.close()


class RayWatch:
    """Actor that holds what the workers on its node note, also when they have ended."""

    def __init__(self) -> None:
        self._progress: dict[int, Progress] = {}

    def allot(self, rank: int) -> bytes:
        """Return the memory in which a new worker notes its progress."""
        self._progress[rank] = Progress(shared_array(Progress.SIZE, np.int64))
        return dumps(self._progress[rank])

    def look(self) -> dict[int, list[int]]:
        """Return the numbers of every worker's progress, by rank."""
        return {rank: progress.numbers() for rank, progress in self._progress.items()}


class Node(NodeActor):
    """Node with workers of the run, and its watch, as the master knows it."""

    def __init__(self, connection: RayConnection, node: RayNode) -> None:
        super().__init__(connection, node, RayWatch)
        self._has_answered = False

    def look(self, workers: Sequence[RayWorker], timeout: float, wait: float = 0.0) -> None:
        """Note what workers on this node are at, as far as that is known by now, and whether the node is lost.

        Args:
            workers: on this node.
            timeout: seconds that the node may go without an answer, once it has given the first.
            wait: seconds to wait for an answer of now; 0 takes one that was asked for before.
        """
        if self.question is None or wait:
            self.ask(self.remote.look.remote())
        numbers = self.answer(timeout if self._has_answered else START_SECONDS, wait)
        if numbers is None:
            return
        self._has_answered = True
        for worker in workers:
            if worker.heard < self.asked:  # else its reply, or its start, is newer
                worker.progress.array[:] = numbers.get(worker.rank, worker.progress.array)


class RayWorker:
    """Worker on another machine, as the master knows it; it takes `n_cores` of those that Ray deals."""

    pid = None  # which means nothing on this machine

    def __init__(self, rank: int, node: Node, n_cores: int, server: bytes, kind: RayWorkers) -> None:
        self.rank, self.node, self.progress, self._kind = rank, node, Progress(), kind
        self.remote = kind.connection.start(node.node_id, RayServer, rank, server, n_cores=n_cores)
        self._start, self._asked = self.remote.note.remote(node.remote.allot.remote(rank)), time.monotonic()
        self.heard = self._asked
        """When its last reply came, or it was started."""
        self.pending: object = None

    def seen_at(self) -> str:
        """Return the name of the worker and where it was last seen, for messages."""
        at = self.progress
        seen = f", last seen at environment {at.env_rank}, step {at.step}," if any(at.numbers()) else ""
        return f"Worker {self.rank} on {self.node.name}{seen}"

    def send_bytes(self, data: bytes, timeout: float = 300.0) -> None:
        """Send a pickled request, and the weights."""
        shared, request = None, pickle.loads(data)
        if request.is_of(Collects.start):
            check, agent, store, rows = request.args
            request, shared = request._replace(args=(check, rows)), self._kind.shared(agent, store)
        self.pending = self.remote.answer.remote(dumps_by_value(request), shared, self._kind.newest_weights())

    def why_lost(self) -> str:
        """Return why no answer will come; empty if one may."""
        late = time.monotonic() - self._asked > START_SECONDS
        if late and not self._kind.connection.ray.wait([self._start], timeout=0)[0]:
            return (
                f"cannot start: Ray has not started it for {START_SECONDS:g} s. Its cores may be taken: `ray status` "
                "shows by how much work. End that, lower n_workers, or add nodes."
            )
        if not (lost := self.node.lost):
            return ""
        hint = " If its network may be silent for that long, raise the sampler's node_timeout."
        return f"was lost: its node {lost.rstrip('.')}.{hint if 'answered' in lost else ''}"

    def receive(self, timeout: float = 300.0) -> Picklable:
        """Return the reply that has arrived, after its rows were copied; or raise the error in its place."""
        connection = self._kind.connection
        if not connection.ray.wait([self.pending], timeout=0)[0]:
            raise WorkerError(f"{self.seen_at()} {self.why_lost()}", self.rank)
        try:
            numbers, data, columns = connection.ray.get(self.pending)
        except connection.ray.exceptions.RayError as error:
            self.node.look([self], self._kind.node_timeout, wait=1.0)
            how = f"was lost with its process or its node: {type(error).__name__}: {' '.join(str(error).split())}"
            # The first is what Ray raises where the node has not told it within a second how the process ended.
            unknown = isinstance(error, connection.ray.exceptions.ActorUnavailableError)
            if unknown or self.node.node_id not in connection.nodes():
                self.node.lost = f"was lost: {type(error).__name__}"
            raise WorkerError(f"{self.seen_at()} {how}", self.rank) from None
        self.progress.array[:], self.heard = numbers, time.monotonic()
        if columns is not None:
            write_columns(self._kind.rows[self.rank].memory, columns)
        reply = pickle.loads(data)
        if isinstance(reply, Failure):
            text = f"{self.seen_at()} raised {reply.error}\n\nIts traceback:\n{reply.traceback}"
            raise WorkerError(text, self.rank)
        return reply


class RayWorkers:
    """Workers on the nodes of a cluster, with what all of them are sent: the agent and its weights."""

    own_generators = True

    def __init__(self, connection: RayConnection, serve: Callable[..., object], node_timeout: float) -> None:
        self.connection, self._serve, self.node_timeout = connection, serve, node_timeout
        self.rows: Sequence[Rows] = []
        """Every worker's columns of the batch."""
        self._shared: object = None
        self._store: WeightStore | None = None
        self._weights: tuple[int, object] = -1, None  # with their version
        self._nodes: list[Node] = []
        self._node_of: list[Node] = []
        self._moved: set[int] = set()

    def deal(self, n_workers: int) -> None:
        """Deal workers to the nodes, each to the one with the most cores left, first of those that nobody has taken."""
        nodes, free, dealt = self.connection.nodes(), self.connection.free_cores(), list[str]()

        def room(node_id: str) -> tuple[bool, int]:
            n_here = dealt.count(node_id)
            return free.get(node_id, 0) > n_here, nodes[node_id].n_cores - n_here

        for _ in range(n_workers):
            dealt.append(max(nodes, key=room))
        twins = {node_id: Node(self.connection, nodes[node_id]) for node_id in set(dealt)}
        self._nodes, self._node_of = list(twins.values()), [twins[node_id] for node_id in dealt]

    def shared(self, agent: Agent, store: WeightStore) -> object:
        """Return agent and store as they are sent to all workers, which act by the store's weights from now on."""
        if self._store is None:
            self._shared, self._store = self.connection.ray.put(dumps_by_value((agent, store))), store
        return self._shared

    def newest_weights(self) -> object:
        """Return the weights that were published last, as they are sent to all workers; None before the first."""
        if self._store is not None and self._store.newest != self._weights[0]:
            self._weights = self._store.newest, self.connection.ray.put(self._store.arrays)
        return self._weights[1]

    def start(self, rank: int, args: tuple[object, ...]) -> RayWorker:
        """Start a worker, on the node that it had; if that is lost, on another, whose cores it shares."""
        try:
            server = dumps_by_value((self._serve, args))
        except Exception as error:
            raise TypeError(
                f"Starting worker {rank}: {unsendable(args)} cannot be sent to another machine: {error}. Let the class "
                "that has it make it there (open the file, connect, take the lock) from plain arguments."
            ) from error
        if self._node_of[rank].lost:
            self._node_of[rank] = self._another(rank)
            self._moved.add(rank)
        return RayWorker(rank, self._node_of[rank], int(rank not in self._moved), server, self)

    def _another(self, rank: int) -> Node:
        """Return the living node of the run with the fewest workers for its cores; without any, another one."""
        living = [node for node in self._nodes if not node.lost]
        if not living:
            others = self.connection.nodes().values()
            if not others:
                raise WorkerError(f"Starting worker {rank}: the Ray cluster has no living node left.", rank)
            living = [Node(self.connection, max(others, key=lambda node: node.n_cores))]
            self._nodes += living
        return min(living, key=lambda node: self._node_of.count(node) / node.n_cores)

    def receive(
        self,
        workers: Sequence[RayWorker],
        timeout: float,
        replace: Callable[[WorkerError], RayWorker] | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> list[Picklable]:
        """Return one reply of every worker; a node that does not answer counts as lost."""
        return receive_asking(self._ready, workers, timeout, replace, on_wait)

    def _ready(self, workers: Sequence[RayWorker], seconds: float) -> list[RayWorker]:
        worker_of = {worker.pending: worker for worker in workers}
        done, _ = self.connection.ray.wait(list(worker_of), num_returns=1, timeout=seconds)
        if done:
            return [worker_of[ref] for ref in done]
        for node in {worker.node for worker in workers}:
            node.look([worker for worker in workers if worker.node is node], self.node_timeout)
        return [worker for worker in workers if worker.why_lost()]

    def stop(self, workers: Sequence[RayWorker], seconds: float | None = None) -> None:
        """Close the environments of workers, and end them."""
        ray = self.connection.ray
        closing = [worker.remote.close.remote() for worker in workers if not worker.node.lost]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS if seconds is None else seconds)
        for worker in workers:
            ray.kill(worker.remote)

    def close(self) -> None:
        """End what is left on the nodes, and disconnect."""
        for node in self._nodes:
            self.connection.ray.kill(node.remote)
        self._shared, self._store, self._weights = None, None, (-1, None)
        self.connection.close()


@dataclass(kw_only=True, eq=False)
class RaySampler(CpuSampler):
    """Sampler that deals the environments to workers on the nodes of a Ray cluster.

    One message a batch goes each way: a worker gets the weights, and sends its columns of the batch. The rows are those
    of `CpuSampler`. Needs the extra `ray`, and the same versions of Python, torch and the environments on every node.
    """

    ray_address: str = "auto"
    """The cluster, as `ray.init` takes it: "auto" is the one that runs on this machine, "local" starts one with this
    machine alone, which ends with the run and listens on its loopback interface, while other clusters listen on all
    network interfaces. Not used where the process is connected to a cluster."""
    node_timeout: float = 30.0
    """Seconds that a node with a worker at work may go without an answer before it counts as lost; it is asked twice a
    second. Ray itself sees the end of a process within two seconds or so."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.node_timeout > 1:
            raise ValueError(
                f"{type(self).__name__}: node_timeout is {self.node_timeout}; expected a number of seconds above 1, as "
                "a node is asked twice a second."
            )
        for name in ("worker_kind", "start_method"):
            if getattr(self, name) not in (None, *START_METHODS):
                raise ValueError(
                    f"{type(self).__name__}: {name} is {getattr(self, name)!r:.100}; expected its default: the workers "
                    "are actors on the nodes of the cluster. Give it to CpuSampler, whose rows are the same."
                )
        self._kind: RayWorkers | None = None

    def start(self, specs: Specs, affinity: Kwargs) -> Check:
        """Connect to the cluster, and start the workers; return the result of the check."""
        connection = RayConnection(type(self).__name__, self.ray_address)
        self._kind = kind = RayWorkers(connection, self.server, self.node_timeout)
        try:
            n_cores = sum(node.n_cores for node in connection.nodes().values())
            n_workers = self.n_workers or max(1, min(n_cores, self.batch_spec.B))
            if n_workers > n_cores:
                raise ValueError(
                    f"{type(self).__name__}: n_workers is {n_workers}; expected at most {n_cores}, the cores of the "
                    "Ray cluster: every worker takes one. Lower it, add nodes, or start them with a higher --num-cpus."
                )
            check_n_workers(self, n_workers, self.batch_spec.B, "n_workers is")
            kind.deal(n_workers)
            no_cores = (None,)  # Ray deals them
            self._workers = Workers(self, kind, specs, [no_cores] * n_workers, _on_loss)
        except BaseException:
            self.shutdown()
            raise
        return self._workers.check_and_build()

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> RemoteCollectors:
        """Collect and evaluate in the workers, whose columns are copied into the rows with every reply."""
        assert self._workers is not None, "start comes first"
        assert self._kind is not None, "it has started the workers"
        self._kind.rows = [some[FleetRole.TRAIN] for some in self._workers.rows_of_each(rows)]
        return super().build(agent, check, rows)

    def shutdown(self) -> None:
        """Stop the workers, which close their environments, and disconnect from the cluster."""
        try:
            super().shutdown()
        finally:
            kind, self._kind = self._kind, None
            if kind is not None:
                kind.close()


def _on_loss(progress: Progress, request: AnyCall[Collects]) -> AnyCall[Collects]:
    """Begin the worker's share of the batch or of an evaluation again: what it had done is lost with its node."""
    return request.but(after_loss=True) if request.is_of(Collects.evaluate) else request
