"""Connection of this process to a Ray cluster. Ray is optional."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from rlpyt.utils.packages import optional_package
from rlpyt.utils.processes import available_cores
from rlpyt.utils.worker_main import STOP_SIGNALS

Ray: TypeAlias = Any
"""The module, or an actor of it, which has no types where it is not installed."""
_LONGEST_TEMPORARY = 39


class RayNode(NamedTuple):
    """Living node of a cluster."""

    node_id: str
    address: str
    n_cores: int
    """Cores that Ray deals; 0 for a node that gets no work."""
    n_gpus: float

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"node {self.address} ({self.node_id[:8]})"


def import_ray(owner: str) -> Ray:
    """Return the module of Ray, which a class needs; refuse where it is not installed."""
    return optional_package("ray", owner, "ray")


class RayConnection:
    """Connection of this process to a cluster, which is closed at the end if it was made here.

    Args:
        owner: class that needs it, for messages.
        address: of the cluster, as `ray.init` takes it; not used where the process is connected.

    Raises:
        RuntimeError: if there is no cluster.
    """

    def __init__(self, owner: str, address: str) -> None:
        self.ray = import_ray(owner)
        self._is_own = not self.ray.is_initialized()
        if not self._is_own:
            return
        is_here = address == "local"
        # By this switch Ray's processes listen on the loopback interface alone, as they do on macOS and Windows.
        constants = self.ray._private.ray_constants
        before = constants.ENABLE_RAY_CLUSTER
        constants.ENABLE_RAY_CLUSTER = before and not is_here
        try:
            with _kept_handlers():
                self.ray.init(address=address, logging_level="WARNING", **(own_cluster() if is_here else {}))
        except ConnectionError as error:
            raise RuntimeError(
                f"{owner}: connecting to a Ray cluster at {address!r}: {error}. Start one with `ray start --head` "
                "on this machine and `ray start --address=...` on the others, give its ray_address, or give "
                'ray_address="local" for one of this machine alone that ends with the run.'
            ) from error
        finally:
            constants.ENABLE_RAY_CLUSTER = before

    def nodes(self) -> dict[str, RayNode]:
        """Return every living node, by its identifier."""
        found: dict[str, RayNode] = {}
        for node in self.ray.nodes():
            if node["Alive"]:
                cores, gpus = (node["Resources"].get(name, 0.0) for name in ("CPU", "GPU"))
                found[node["NodeID"]] = RayNode(node["NodeID"], node["NodeManagerAddress"], int(cores), gpus)
        return found

    def free_cores(self) -> dict[str, float]:
        """Return the cores of every node that no actor or task has; those of one that has just ended may be missing."""
        per_node = self.ray._private.state.available_resources_per_node()  # Ray's public call has the total alone
        return {node_id: resources.get("CPU", 0.0) for node_id, resources in per_node.items()}

    def start(self, node_id: str, Actor: type, *args: object, n_cores: int = 0, n_gpus: float = 0.0) -> Ray:
        """Start an actor on this node and on no other; it takes so many cores and GPUs of those that Ray deals."""
        strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
        resources = {"num_cpus": n_cores, "num_gpus": n_gpus, "scheduling_strategy": strategy}
        return self.ray.remote(Actor).options(**resources, max_restarts=0, max_task_retries=0).remote(*args)

    def close(self) -> None:
        """Disconnect, if the connection was made here."""
        if self._is_own and self.ray.is_initialized():
            with _kept_handlers():
                self.ray.shutdown()


class NodeActor:
    """Actor of this process on a node, which is asked one question at a time, and whether the node is lost.

    The arguments are those of `RayConnection.start`.
    """

    def __init__(self, connection: RayConnection, node: RayNode, Actor: type, *args: object, **resources: Any) -> None:
        self.ray, self.node_id, self.name, self.n_cores = connection.ray, node.node_id, node.name, node.n_cores
        self.remote = connection.start(node.node_id, Actor, *args, **resources)
        self.lost = ""
        """How the node was lost, after "it"; empty while it lives."""
        self.asked = 0.0
        """When the last question was asked."""
        self.question: Any = None
        """Its reply to come; None once it has come."""

    def ask(self, question: Any) -> None:
        """Ask: the question is what a method of the actor has returned."""
        self.question, self.asked = question, time.monotonic()

    def answer(self, patience: float, seconds: float = 0.0) -> Any:
        """Return the reply, None where it does not come within some seconds.

        A node is lost that does not reply with patience, or whose actor is gone.
        """
        try:
            reply = self.ray.get(self.question, timeout=seconds)
        except self.ray.exceptions.GetTimeoutError:
            if time.monotonic() - self.asked > patience:
                self.lost = f"has not answered for {patience:g} s"
            return None
        except self.ray.exceptions.RayError as error:
            self.lost = f"has lost its actor: {type(error).__name__}: {str(error).strip().splitlines()[-1]}"
            return None
        self.question = None
        return reply


def own_cluster() -> dict[str, object]:
    """Return the options of a cluster that is started here.

    Ray would count all cores of the machine, also those that this process may not use. The kernel takes 107 letters for
    the path of a socket, and Ray's own names have up to 68 of them.
    """
    folder = os.environ.get("RAY_TMPDIR", tempfile.gettempdir())
    is_long = len(os.fsencode(folder)) > _LONGEST_TEMPORARY
    folder_option = {"_temp_dir": f"/tmp/ray_{os.getuid()}"} if is_long else {}
    return {"num_cpus": available_cores(), "include_dashboard": False, **folder_option}


@contextmanager
def _kept_handlers() -> Iterator[None]:
    """Keep the handlers of the signals that end a run: Ray sets one of its own for SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
