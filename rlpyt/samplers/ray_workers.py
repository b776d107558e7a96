"""Workers on the nodes of a Ray cluster, on the master's side: a twin of each, and the hosts that start them."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from rlpyt.core import Agent
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.ray_host import Answer, Columns, First, RayHost, last_place
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.samplers.work import Collects
from rlpyt.utils.calls import AnyCall
from rlpyt.utils.processes import WorkerError
from rlpyt.utils.progress import Progress
from rlpyt.utils.ray_cluster import RayConnection, RayNode
from rlpyt.utils.shared_memory import dumps_by_value, unsendable
from rlpyt.utils.watched import Picklable, receive_asking

_CLOSE_SECONDS = 5.0  # for the environments of a worker to close in order
START_SECONDS = 300.0
"""Longest time until a host gives its first answer: Ray waits without end for cores that others have."""
_LOOK_SECONDS = 0.5  # between two looks at what the workers are at


class Host:
    """Twin of a `RayHost` on a node.

    Args:
        connection: to the cluster.
        node: on which it is.
        n_workers: workers that it begins with, one core of Ray's each.
        max_workers: workers that it may have at once.
        start_method: of the workers.
    """

    def __init__(
        self, connection: RayConnection, node: RayNode, n_workers: int, max_workers: int, start_method: str
    ) -> None:
        self.node_id, self.name = node.node_id, node.name
        self.places = n_workers
        self.is_lost = self.has_answered = False
        strategy = connection.on_node(node.node_id)
        options = {"num_cpus": n_workers, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": strategy}
        # A call for every worker, and one that still waits for a worker that was replaced.
        options["max_concurrency"] = 2 * max_workers + 2
        self.actor = connection.ray.remote(RayHost).options(**options).remote(start_method)


class RayWorker:
    """Twin of a worker on another machine.

    Args:
        rank: of the worker.
        key: which no other worker of the run has.
        host: that starts it.
        server: pickled: what makes its server, and the arguments.
        cluster: the workers that it is one of.
    """

    def __init__(self, rank: int, key: int, host: Host, server: bytes, cluster: RayWorkers) -> None:
        self.rank, self.key, self.host = rank, key, host
        self.progress = Progress()
        self._server, self._cluster = server, cluster
        self._itr: int | None = None  # of the batch at hand
        self._has_rows = False
        self._answer: Answer | None = None
        self._error: WorkerError | None = None
        self.pending: object = None
        self.heard = time.monotonic()

    @property
    def pid(self) -> None:
        """Process number, which means nothing on this machine."""
        return

    def seen_at(self) -> str:
        """Return the name of the worker and where it was last seen, for messages."""
        at = self.progress
        seen = f", last seen at environment {at.env_rank}, step {at.step}," if any(at.numbers()) else ""
        return f"Worker {self.rank} on {self.host.name}{seen}"

    def send_bytes(self, data: bytes, timeout: float = 300.0) -> None:
        """Send a pickled request, with what the worker lacks."""
        cluster, first, agent = self._cluster, None, None
        rows = cluster.rows.get(self.rank)
        if not self._has_rows:
            boundary = None if rows is None else Columns.of(rows, last_place(rows), is_whole=False)
            first = First(self._server, boundary)
            agent = cluster.agent_sent
        request: AnyCall[Collects] = pickle.loads(data)
        self._itr = request.args[0] if request.is_of(Collects.collect) else None
        self._answer, self._error, self.heard = None, None, time.monotonic()
        self.pending = self.host.actor.ask.remote(
            self.key, self.rank, data, first, agent, cluster.version, cluster.weights
        )

    def fetch(self) -> bool:
        """Take the answer that has arrived; return whether it can be received as reply or error."""
        ray = self._cluster.ray
        try:
            answer: Answer = ray.get(self.pending, timeout=self._cluster.node_timeout)
        except ray.exceptions.RayTaskError as error:
            self._error = WorkerError(f"{self.seen_at()}: its host raised {error}", self.rank)
            return True
        except ray.exceptions.RayError as error:
            self.lose(f"was lost with its node or its host: {type(error).__name__}: {str(error).splitlines()[0]}")
            return True
        self.heard, self.host.has_answered = time.monotonic(), True
        self.progress.array[:] = answer.progress
        if answer.error is not None:
            self._error = WorkerError(f"On {self.host.name}: {answer.error}", self.rank)
        elif answer.reply is None:
            self.pending = self.host.actor.wait.remote(self.key, self._itr)
            return False
        self._answer = answer
        return True

    def lose(self, how: str) -> None:
        """Give up the host, which no worker is started on any more, and note the error."""
        self._error = WorkerError(f"{self.seen_at()} {how}", self.rank)
        self._cluster.give_up(self.host)

    def receive(self, timeout: float = 300.0) -> Picklable:
        """Return the reply that has arrived, after its rows were copied; or raise the error in its place."""
        if self._error is not None:
            raise self._error
        answer, self._answer = self._answer, None
        assert answer is not None, "fetch comes first"
        assert answer.reply is not None, "an answer without a reply is not kept"
        if answer.columns is not None:
            self._has_rows = True
            answer.columns.copy_to(self._cluster.rows[self.rank])
        return pickle.loads(answer.reply)


class RayWorkers:
    """Workers on the nodes of a cluster, with what all of them are sent: the agent and its weights.

    Every node that has workers has one host for all of them. A host stays, so a lost worker is replaced within the time
    that its environments take, also where its node is lost: on the host with the fewest workers for its cores.

    Args:
        connection: to the cluster.
        serve: makes the server in a worker; called with rank, progress and the worker's arguments.
        start_method: of the workers, on their nodes.
        n_workers: number of workers.
        node_timeout: seconds that a node may go without an answer.
    """

    own_generators = True

    def __init__(
        self,
        connection: RayConnection,
        serve: Callable[..., object],
        start_method: str,
        n_workers: int,
        node_timeout: float,
    ) -> None:
        self.ray, self._connection, self.node_timeout = connection.ray, connection, node_timeout
        self._serve, self._start_method, self._n_workers = serve, start_method, n_workers
        self.rows: Mapping[int, Rows] = {}
        """Every worker's columns of the batch."""
        self.agent_sent: object = None
        self.weights: object = None
        self.version = 0
        self._keys = itertools.count()
        self._load: dict[int, Host] = {}  # host of every worker
        self.hosts = self._start_hosts()

    def _start_hosts(self) -> list[Host]:
        nodes, free = self._connection.nodes(), self._connection.free_cores()
        n_of = dict.fromkeys(nodes, 0)

        def room(node_id: str) -> tuple[bool, int]:  # first where another run has left a core
            return free.get(node_id, 0) > n_of[node_id], nodes[node_id].n_cores - n_of[node_id]

        for _ in range(self._n_workers):
            n_of[max(nodes, key=room)] += 1
        return [self._start_host(node_id, n) for node_id, n in n_of.items() if n]

    def _start_host(self, node_id: str, n: int) -> Host:
        return Host(self._connection, self._connection.nodes()[node_id], n, self._n_workers, self._start_method)

    def share_agent(self, copy: Agent) -> None:
        """Let workers that start from now on have a worker's copy of the agent."""
        self.agent_sent = self.ray.put(dumps_by_value(copy))

    def share_weights(self, weights: WeightStore) -> None:
        """Let the workers act by the weights that were published, from their next request on."""
        self.weights, self.version = self.ray.put(weights.arrays), self.version + 1

    def start(self, rank: int, args: tuple[object, ...]) -> RayWorker:
        """Start a worker with its first request, on the host with the most cores for a worker."""
        try:
            server = dumps_by_value((self._serve, args))
        except Exception as error:
            raise TypeError(
                f"Starting worker {rank}: {unsendable(args)} cannot be sent to another machine: {error}. Let the class "
                "that has it make it there (open the file, connect, take the lock) from plain arguments."
            ) from error
        self._load.pop(rank, None)
        host = min(self._living_hosts(rank), key=lambda host: (self._n_on(host) + 1) / host.places)
        self._load[rank] = host
        return RayWorker(rank, next(self._keys), host, server, self)

    def _n_on(self, host: Host) -> int:
        return sum(other is host for other in self._load.values())

    def _living_hosts(self, rank: int) -> list[Host]:
        living = [host for host in self.hosts if not host.is_lost]
        if living:
            return living
        nodes = self._connection.nodes()
        if not nodes:
            raise WorkerError(f"Starting worker {rank}: the Ray cluster has no living node left.", rank)
        self.hosts.append(self._start_host(max(nodes, key=lambda node_id: nodes[node_id].n_cores), 1))
        return self.hosts[-1:]

    def give_up(self, host: Host) -> None:
        """Start no worker on a host any more, and end it where it still runs."""
        if not host.is_lost:
            host.is_lost = True
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(host.actor)

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
        done, _ = self.ray.wait(list(worker_of), num_returns=1, timeout=seconds)
        ready = [worker_of[ref] for ref in done if worker_of[ref].fetch()]
        return ready or [worker for worker in workers if self._is_lost(worker)]

    def _is_lost(self, worker: RayWorker) -> bool:
        """Return whether the host of a worker has been silent for too long; if so, note the error."""
        silent = time.monotonic() - worker.heard
        if not worker.host.has_answered and silent > START_SECONDS:
            worker.lose(
                f"cannot start: Ray has not started its host for {START_SECONDS:g} s. Its cores may be taken: "
                "`ray status` shows by how much work. End that, lower n_workers, or add nodes."
            )
            return True
        if worker.host.has_answered and silent > self.node_timeout:
            worker.lose(
                f"was lost: its node has not answered for {self.node_timeout:g} s. If its network may be silent for "
                "that long, raise the sampler's node_timeout."
            )
            return True
        return False

    def stop(self, workers: Sequence[RayWorker], seconds: float | None = None) -> None:
        """Stop workers, and give up hosts that do not answer."""
        seconds = _CLOSE_SECONDS if seconds is None else seconds
        keys: dict[Host, list[int]] = {}
        for worker in workers:
            if not worker.host.is_lost:
                keys.setdefault(worker.host, []).append(worker.key)
        calls = {host.actor.stop.remote(some, seconds): host for host, some in keys.items()}
        if not calls:
            return
        done, late = self.ray.wait(list(calls), num_returns=len(calls), timeout=seconds + _LOOK_SECONDS + 1.0)
        for ref in done:
            with suppress(self.ray.exceptions.RayError):
                self.ray.get(ref)
        for ref in late:
            self.give_up(calls[ref])

    def close(self) -> None:
        """End the hosts, and disconnect."""
        for host in self.hosts:
            self.give_up(host)
        self.agent_sent = self.weights = None
        self._connection.close()
