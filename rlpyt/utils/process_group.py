"""Group of replicas in several processes, over torch.distributed.

A collective that fails ends the group with a `ReplicaError`, which names the replica that was lost. Each replica leaves
a note of its own end in the group's store. So the others can tell the one that raised, and the one that says nothing
more, from those that merely lost contact.
"""

from __future__ import annotations

import os
import re
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Literal, TypeVar, get_args

import cloudpickle
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported in a group, its default arguments would hold on to that group

from rlpyt.utils.board import Board, Note, Peer, whose_fault
from rlpyt.utils.process_start import variables_set
from rlpyt.utils.processes import available_cpus
from rlpyt.utils.reductions import DdpPass, FlatPass
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.slurm_job import task_name

T = TypeVar("T")
Reduction = Literal["ddp", "flat"]
"""Way of averaging gradients: "ddp" is DistributedDataParallel during the backward pass, "flat" one tensor after it."""

_POLL = timedelta(seconds=0.5)  # a wait in C++ that is no longer lets Ctrl-C through
_CONNECT_SECONDS = 30.0  # how long the others may take to connect, once all have come
_ANSWER_SECONDS = 10.0  # how long the others may take to leave a note or to be gone, once a collective has failed
_LEAVE_SECONDS = 3.0  # how long the others may take to leave, too


class ReplicaError(RuntimeError):
    """Error of a group that cannot go on; the message names the replica and where it was."""

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank  # of the replica that was lost; -1 where none is known


class ProcessGroup(Replicas):
    """Group of replicas, one in each process, that agree over torch.distributed: gloo, or nccl between GPUs.

    A process is in one group at a time. `leave` closes its connections and ends its threads.

    Args:
        store: that all replicas reach.
        rank: number of this replica, from 0.
        world_size: replicas.
        reduction: how gradients are averaged.
        timeout: seconds that a replica may be late for the others before it counts as lost.
        device: on which this replica computes.
        role: what its members are called in messages.
        on_wait: called from time to time until all have come; it may raise.

    Raises:
        ReplicaError: if a replica does not come, here and in every call.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        world_size: int,
        *,
        reduction: Reduction = "flat",
        timeout: float = 300.0,
        device: str = "cpu",
        role: str = "replica",
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(rank, world_size)
        check_reduction(type(self).__name__, reduction)
        if dist.is_initialized():
            raise RuntimeError(
                "Process group: this process is in a group of torch.distributed already, and it can be in one only. "
                "Leave that group first (torch.distributed.destroy_process_group)."
            )
        self.place = "the start"
        self.reduction, self.timeout, self.role = reduction, timeout, role
        self.failed = False
        self._board: Board | None = Board(store, rank, world_size)
        self._calls = 0
        self._passes: list[Callable[[torch.Tensor], None]] = []
        own = Peer(socket.gethostname(), os.getpid(), device, available_cpus(), task_name())
        self.peers = self._meet(own, on_wait)
        backend = _backend(self.peers)
        self._nccl = "nccl" in backend
        try:
            self._connect(store, backend)
        except BaseException as error:  # Ctrl-C too, which is raised when the connections are there
            self.report(error)
            self.leave()
            raise

    @property
    def n_on_this_machine(self) -> int:
        """Replicas that share the memory of this machine, this one included."""
        return sum(peer.host == self.peers[self.rank].host for peer in self.peers)

    def _connect(self, store: dist.Store, backend: str) -> None:
        """Connect with the others, which have all come: nothing else keeps them, and no signal ends this wait."""
        # On one machine gloo listens on the loopback interface alone, unless the user has named another.
        alone = len({peer.host for peer in self.peers}) == 1 and "GLOO_SOCKET_IFNAME" not in os.environ
        with variables_set({"GLOO_SOCKET_IFNAME": "lo"} if alone else {}):
            try:
                dist.init_process_group(
                    backend,
                    store=dist.PrefixStore("group", store),
                    rank=self.rank,
                    world_size=self.world_size,
                    timeout=timedelta(seconds=min(self.timeout, _CONNECT_SECONDS)),
                )
            except RuntimeError as error:
                raise self.lost(error) from error
        self.wait_at_most(self.timeout)

    def wait_at_most(self, seconds: float) -> None:
        """Set how long a replica may be late from now on, as many steps of a start take longer than any later one."""
        self.timeout = seconds
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), dist.group.WORLD)

    def _meet(self, own: Peer, on_wait: Callable[[], None] | None) -> list[Peer]:
        """Tell the others what this replica is, and return what all are."""
        assert self._board is not None
        self._board.write("peer", own)
        deadline = time.monotonic() + self.timeout
        while len(peers := self._board.read_all("peer", Peer)) < self.world_size:
            if time.monotonic() > deadline:
                missing = ", ".join(str(r) for r in range(self.world_size) if r not in peers)
                self.failed = True
                raise ReplicaError(
                    f"Starting {self.world_size} {self.role}s: {self.role} {missing} did not come within "
                    f"{self.timeout:g} s. Look for its own message, or raise replica_timeout.",
                    min(set(range(self.world_size)) - set(peers)),
                )
            if on_wait is not None:
                on_wait()
            time.sleep(0.01)
        return [peers[r] for r in range(self.world_size)]

    # ---- agreement ----

    def total(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the sums over the replicas of numbers, any shape; on the device, in their dtype."""
        return self._all_reduce(numbers.detach().clone(), dist.ReduceOp.SUM)

    def largest(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the largest of the replicas' numbers, any shape."""
        return self._all_reduce(numbers.detach().clone(), dist.ReduceOp.MAX)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any replica."""
        return bool(self.largest(torch.tensor(int(flag))))

    def gather(self, item: T) -> list[T]:
        """Return the items of all replicas, in the order of their ranks; whatever pickles."""
        data = _as_bytes(item)
        sizes = self._gather_sizes(data.numel())
        every = [torch.empty(max(sizes), dtype=torch.uint8) for _ in sizes]
        own = torch.zeros(max(sizes), dtype=torch.uint8)
        own[: data.numel()] = data
        self._run(lambda: dist.all_gather(every, own, async_op=True))
        return [cloudpickle.loads(row[:size].numpy().tobytes()) for row, size in zip(every, sizes, strict=True)]

    def broadcast(self, item: T) -> T:
        """Return the item of replica 0; whatever pickles."""
        data = _as_bytes(item) if self.rank == 0 else torch.empty(0, dtype=torch.uint8)
        size = self._gather_sizes(data.numel())[0]
        if self.rank != 0:
            data = torch.empty(size, dtype=torch.uint8)
        self._run(lambda: dist.broadcast(data, 0, async_op=True))
        received: T = item if self.rank == 0 else cloudpickle.loads(data.numpy().tobytes())
        return received

    def broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copy the tensors of replica 0 into those of all others, in place."""
        for tensor in tensors:
            values = tensor.detach()
            # A view with gaps, or in another order of memory, is sent as it would be printed.
            sent = values if values.is_contiguous() else values.contiguous()
            start = partial(dist.broadcast, sent, 0, async_op=True)
            self._run(start, self._nccl and sent.is_cuda)
            if sent is not values:
                values.copy_(sent)

    def _gather_sizes(self, size: int) -> list[int]:
        """Return the sizes of all replicas; refuse replicas that have made another number of calls."""
        every = [torch.empty(2, dtype=torch.int64) for _ in range(self.world_size)]
        own = torch.tensor([size, self._calls])
        self._run(lambda: dist.all_gather(every, own, async_op=True))
        calls = [int(row[1]) for row in every]
        if len(set(calls)) > 1:
            raise ReplicaError(
                f"The {self.role}s have made {calls} calls of their group until {self.place}; expected the same "
                "number of each. One of them has left a loop earlier, or has asked only there. Every replica must "
                "make the same calls in the same order."
            )
        return [int(row[0]) for row in every]

    def _all_reduce(self, numbers: torch.Tensor, op: dist.ReduceOp.RedOpType) -> torch.Tensor:
        self._run(lambda: dist.all_reduce(numbers, op, async_op=True), self._nccl and numbers.is_cuda)
        return numbers

    def _run(self, start: Callable[[], dist.Work | None], in_stream: bool = False) -> None:
        """Start a collective and wait for it. Ctrl-C ends the wait.

        Args:
            start: starts it, and returns the work under way.
            in_stream: whether the GPU's stream waits for it, and this process does not.
        """
        if self.failed:
            raise self.lost("")
        self._calls += 1
        try:
            work = start()
            if work is not None and in_stream:
                work.wait()
            while work is not None and not in_stream and not _completed(work):
                pass
        except ReplicaError:
            raise
        except RuntimeError as error:
            raise self.lost(error) from error

    # ---- gradients ----

    def backward_pass(self, parameters: Sequence[torch.nn.Parameter]) -> Callable[[torch.Tensor], None]:
        """Return the backward pass of a scalar loss over some parameters; see `Replicas.backward_pass`.

        The gradients may be views of memory that the next pass overwrites.

        Raises:
            ReplicaError: if the replicas have other parameters than replica 0.
        """
        shapes = [(tuple(x.shape), str(x.dtype)) for x in parameters]
        for rank, others in enumerate(self.gather(shapes)):
            if others != shapes:
                raise ReplicaError(
                    f"{self.role.capitalize()} {rank} has {len(others)} parameters to optimise, {self.role} "
                    f"{self.rank} has {len(shapes)}, or they have other shapes; expected the same in all. Do the "
                    "environments of all replicas have the same spaces, and does the model depend on nothing else?",
                    rank,
                )
        if not shapes:
            return super().backward_pass(parameters)
        run = DdpPass(parameters) if self.reduction == "ddp" else FlatPass(parameters, self._add_up, self.world_size)
        self._passes.append(run)
        number = len(self._passes) - 1

        def backward(loss: torch.Tensor) -> None:
            try:
                self._passes[number](loss)
            except RuntimeError as error:
                if isinstance(error, ReplicaError) or not _is_of_a_connection(error):
                    raise
                raise self.lost(error) from error

        return backward

    def _add_up(self, flat: torch.Tensor) -> None:
        self._all_reduce(flat, dist.ReduceOp.SUM)

    # ---- the end ----

    def report(self, error: BaseException) -> None:
        """Tell the others of the error that ends this replica, unless it has told them of one."""
        if not self.failed and self._board is not None:
            self.failed = True
            text = "".join(traceback.format_exception(error))
            self._board.exchange_last_words(Note(self.place, f"{type(error).__name__}: {error}", text))

    def lost(self, error: object) -> ReplicaError:
        """Return the error that says which replica is lost, after a collective has failed."""
        reason = _reason(error)
        own = f"{self.role.capitalize()} {self.rank}"
        if self.failed or self._board is None:
            return ReplicaError(f"{own} has left its group and can agree on nothing. {reason}")
        self.failed = True
        notes = self._board.exchange_last_words(
            Note(self.place, lost_contact=True, timed_out=_timed_out(reason)),
            _ANSWER_SECONDS,
            lambda notes: whose_fault(notes, self.peers) is not None,
        )
        silent = [rank for rank in range(self.world_size) if notes is not None and rank not in notes]
        if notes is None:
            rank, how = 0, "which has the store of the group, does not answer"
        elif (fault := whose_fault(notes, self.peers)) is not None:
            rank, how = fault
        elif silent:
            rank, how = silent[0], "does not answer: it hangs, or is late"
        else:
            return ReplicaError(f"{own} has lost contact at {self.place}, and so have all others. {reason}")
        place = notes[rank].place if notes is not None and rank in notes else self.place
        peer = self.peers[rank]
        where = f"{self.role.capitalize()} {rank} of {self.world_size} (pid {peer.pid} on {peer.host}), at {place},"
        waited = f" replica_timeout is {self.timeout:g} s." if _timed_out(reason) else ""
        return ReplicaError(f"{where} {how}.{waited}\n{own} noticed at {self.place}: {reason}", rank)

    def leave(self) -> None:
        """Leave the group, in order or after a failure; it may be called again."""
        if not self.failed and self._board is not None:
            self.failed = True
            # Whoever closes a connection early would break the last collective of a slower one.
            self._board.exchange_last_words(Note(self.place), _LEAVE_SECONDS)
        self._passes.clear()
        if dist.is_initialized():
            dist.destroy_process_group()
        self._board = None  # the backward passes of an algorithm may outlive the run, and the store is a connection


def check_reduction(what: str, reduction: str) -> None:
    """Refuse a reduction that is none.

    Raises:
        ValueError: if it is none.
    """
    if reduction not in get_args(Reduction):
        raise ValueError(f"{what}: reduction is {reduction!r}; expected one of {get_args(Reduction)}.")


def _backend(peers: Sequence[Peer]) -> str:
    """Return gloo, with nccl for GPUs where each replica has one of its own."""
    devices = [(peer.host, peer.device) for peer in peers]
    gpus = all(device.startswith("cuda") for _, device in devices) and len(set(devices)) == len(devices)
    return "cpu:gloo,cuda:nccl" if gpus else "gloo"


def _completed(work: dist.Work) -> bool:
    """Wait a while; return whether the work is done. An error of the work is raised."""
    try:
        work.wait(_POLL)
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()  # it was perhaps done just after the time was over: only an error of its own counts
    return True


def _as_bytes(item: object) -> torch.Tensor:
    # By value where a class is not importable: classes of a script are other ones in another process.
    return torch.frombuffer(bytearray(cloudpickle.dumps(item)), dtype=torch.uint8)


def _is_of_a_connection(error: RuntimeError) -> bool:
    """Return whether an error of a backward pass comes from the reduction in it."""
    return isinstance(error, dist.DistError) or re.search(r"gloo|NCCL|pair closure", str(error)) is not None


def _timed_out(reason: str) -> bool:
    return re.search(r"[Tt]imed out|timeout", reason) is not None


def _reason(error: object) -> str:
    """Return the first sentence of an error of gloo or nccl, without the place in their source."""
    line = str(error).split("\n", 1)[0]
    return re.sub(r"^\[[^\]]*\] ", "", line).split(" This is typically")[0][:300]
