"""Groups of processes: what they agree on, their gradients, and which replica they name when one is lost."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rlpyt.utils import process_group
from rlpyt.utils.board import Board, Peer
from rlpyt.utils.process_group import ProcessGroup, ReplicaError
from rlpyt.utils.processes import Worker, receive_all, stop_workers
from rlpyt.utils.replicas import Replicas
from tests.pairs import others_nightly
from tests.utils.group_checks import Member, Net, data

Ask = Callable[..., list[Any]]


@contextmanager
def members(world_size: int, **settings: Any) -> Iterator[tuple[list[Worker], Ask]]:
    """Start a group of processes; yield them, and a function that asks all of them."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    args = (world_size, store.port, {"timeout": 60.0, **settings})
    workers = [Worker(rank, Member, args, "forkserver") for rank in range(world_size)]

    def ask(name: str, *arguments: Any, of: Any = None) -> list[Any]:
        for worker in workers:
            worker.send((name, arguments))
        return receive_all([workers[rank] for rank in of or range(world_size)], 60.0)

    try:
        yield workers, ask
    finally:
        stop_workers(workers, 0.5)


@pytest.fixture(
    scope="module", params=[pytest.param(("flat", 2), marks=pytest.mark.nightly), ("ddp", 2), ("flat", 3)], ids=str
)
def group(request) -> Iterator[tuple[str, int, Ask]]:
    reduction, world_size = request.param
    with members(world_size, reduction=reduction) as (_, ask):
        yield reduction, world_size, ask


def test_numbers(group):
    _, n, ask = group
    sums, most = [[n * (n + 1) / 2, -n * (n - 1) / 2]], [[float(n), 0.0]]
    kinds = [(f"torch.{name}", n * (n + 1) / 2) for name in ("float64", "bfloat16", "int64")]
    each = [[r, 7] for r in range(n)]
    expected: Any = [[sums, most, [[r + 1.0, -r]], kinds, [False, True, True], False, each] for r in range(n)]
    assert ask("numbers") == expected


def test_items(group):
    _, n, ask = group
    expected = [["x" * 1000 * r for r in range(n)], [*range(n)], {"rank": 0}, [0] * 5, [None] * n]
    assert ask("items") == [expected] * n


def test_tensors_of_replica_0(group):
    _, n, ask = group
    first = [
        [[0.0, 0.0]] * 2,
        torch.arange(6).reshape(2, 3).t().tolist(),
        [0, 2, 4, 6],
        0,
        [[[[0.0] * 2] * 2] * 2],
        [True],
    ]
    assert ask("tensors") == [first] * n


@pytest.mark.parametrize("heads", ["all", "one", "own"])
def test_gradients_are_the_mean_of_those_of_single_processes(group, heads):
    """Also where the loss of each replica depends on another head; where none depends on one, there is no gradient."""
    _, n, ask = group
    heads_of = {"all": [[0, 1]] * n, "one": [[1]] * n, "own": [[0], [1], [0, 1]][:n]}[heads]
    alone = []
    for rank in range(n):
        net = Net()
        Replicas().backward_pass(list(net.parameters()))(net(data(rank, 1), heads_of[rank]))
        alone.append([p.grad for p in net.parameters()])
    for replica in ask("gradients", heads_of):
        for found in replica:  # of both networks
            for mean, *grads in zip(found, *alone, strict=True):
                there = [grad for grad in grads if grad is not None]
                assert (mean is None) == (not there)
                if there:
                    torch.testing.assert_close(mean, sum(there) / n)


def test_errors_of_the_user_stay_what_they_are(group):
    _, _, ask = group
    for message in ask("own_error"):
        assert message.startswith("RuntimeError: grad can be implicitly created only for scalar outputs")


def test_replicas_with_other_parameters_are_named(group):
    _, n, ask = group
    messages = ask("other_shapes")
    for rank in range(n):
        other, n_parameters = (0, 1) if rank == 1 else (1, 2)
        assert messages[rank].startswith(f"ReplicaError: Replica {other} has {n_parameters} parameters to optimise")


def test_ctrl_c_ends_a_wait_for_the_others(group):
    _, _, ask = group
    assert 0 < max(ask("interrupt")) < 1.2


def test_replicas_that_have_made_other_calls_are_refused_with_the_numbers():
    with members(2) as (_, ask):
        for message in ask("astray"):
            assert "ReplicaError: The replicas have made [" in message
            assert "expected the same number" in message


def test_a_group_leaves_no_connection_and_no_thread_and_another_may_follow():
    with members(2) as (_, ask):
        for gone, answer, n_connections, n_threads, names in ask("left"):
            assert "has left its group" in gone
            assert answer is True
            assert n_connections == 0
            assert n_threads == 1, names


@pytest.mark.parametrize("how", others_nightly(["killed", "stopped", "raised", "late", "left"], ["killed", "raised"]))
def test_the_replica_that_is_lost_is_named(how, monkeypatch):
    timeout = 1.0 if how in ("stopped", "late") else 60.0
    with members(3, timeout=timeout) as (workers, ask):
        answers = ask("lose", how, of=[0, 2])
        for rank, (message, seconds) in zip((0, 2), answers, strict=True):
            place = 1 if how in ("raised", "left", "late") else rank
            where = f"ReplicaError: Replica 1 of 3 (pid {workers[1].pid} on "
            assert message.startswith(where), message
            assert f"at iteration {place}, " in message
            assert {
                "killed": "was killed",
                "stopped": "is stopped, as by SIGSTOP",
                "raised": "raised ZeroDivisionError: of the user",
                "late": "was later than the others would wait. replica_timeout is 1 s",
                "left": "has left the run while others go on",
            }[how] in message
            assert timeout * (how in ("stopped", "late")) <= seconds < 10


def test_a_reduction_that_is_none_is_refused():
    with pytest.raises(ValueError, match="ProcessGroup: reduction is 'sum'; expected one of"):
        ProcessGroup(dist.HashStore(), 0, 1, reduction="sum")  # type: ignore[arg-type]


def test_a_replica_that_does_not_come_is_named():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"Starting 3 replicas: replica 1, 2 did not come within 0\.1 s"):
        ProcessGroup(dist.HashStore(), 0, 3, timeout=0.1)
    assert time.monotonic() - start < 5


def test_a_replica_that_dies_before_it_has_connected_is_named_soon(monkeypatch):
    monkeypatch.setattr(process_group, "_CONNECT_SECONDS", 0.5)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with subprocess.Popen(["true"]) as gone:
        Board(store, 1, 2).write("peer", Peer(socket.gethostname(), gone.pid, "cpu", []))
    start = time.monotonic()
    with pytest.raises(ReplicaError, match=rf"Replica 1 of 2 \(pid {gone.pid} on .*\), at the start, was killed"):
        ProcessGroup(store, 0, 2, timeout=20.0)
    assert time.monotonic() - start < 10
    assert not dist.is_initialized()


def test_a_replica_that_connects_soon_may_be_late_afterwards(monkeypatch):
    monkeypatch.setattr(process_group, "_CONNECT_SECONDS", 0.5)
    group = ProcessGroup(dist.HashStore(), 0, 1, timeout=7.0)
    try:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
        assert backend.options._timeout.total_seconds() == 7.0
    finally:
        group.leave()


@pytest.mark.parametrize("error", ["", "Connection closed by peer"])
def test_a_collective_that_ends_just_after_its_time_was_over_is_done(error):
    """gloo takes a while to say that the time is over, in which the others may come."""
    waits = []

    class LateWork:
        def wait(self, *timeout: Any) -> bool:
            waits.append(timeout)
            if timeout or error:
                raise RuntimeError("Operation timed out!" if timeout else error)
            return True

        def is_completed(self) -> bool:
            return True

    work: Any = LateWork()
    if error:
        with pytest.raises(RuntimeError, match=error):
            process_group._completed(work)
    else:
        assert process_group._completed(work)
    assert len(waits) == 2


def test_replicas_that_share_a_machine_are_counted():
    group = ProcessGroup.__new__(ProcessGroup)
    group.peers = [Peer(host, pid, "cpu", [0]) for pid, host in enumerate(["a", "b", "a"])]
    for rank, n in enumerate([2, 1, 2]):
        group.rank = rank
        assert group.n_on_this_machine == n
    assert Replicas(1, 3).n_on_this_machine == 1
