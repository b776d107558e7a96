"""What each process of a group does in the tests of `rlpyt.utils.process_group`; importable there."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import nn

from rlpyt.utils.process_group import ProcessGroup, ReplicaError
from rlpyt.utils.progress import Progress


class Member:
    """Server of one process of a group: it does what a request says.

    Args:
        rank: of the replica.
        progress: of the process.
        world_size: replicas.
        port: of the store.
        settings: of the group.
    """

    def __init__(self, rank: int, progress: Progress, world_size: int, port: int, settings: dict[str, Any]) -> None:
        self.store = dist.TCPStore("127.0.0.1", port, is_master=False)
        self.group: Any = ProcessGroup(self.store, rank, world_size, **settings)

    def __call__(self, request: tuple[str, tuple[Any, ...]]) -> Any:
        name, arguments = request
        return self.left() if name == "left" else CHECKS[name](self.group, *arguments)

    def left(self) -> list[Any]:
        """Return what the group leaves behind: threads, connections, and whether another one may follow."""
        self.group.leave()
        self.group.leave()
        gone = message_of(lambda: self.group.any(True))
        rank, world_size = self.group.rank, self.group.world_size
        again = ProcessGroup(dist.PrefixStore("again", self.store), rank, world_size)
        answer = again.any(rank == 0)
        again.leave()
        del again, self.group, self.store
        gc.collect()
        me = psutil.Process()
        deadline = time.monotonic() + 5.0  # torch joins its threads after the group is gone
        while me.num_threads() > 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        names = [Path(f"/proc/self/task/{thread.id}/comm").read_text().strip() for thread in me.threads()]
        self.group = Left()
        return [gone, answer, len(me.net_connections("inet")), len(names), names]

    def close(self) -> None:
        self.group.leave()


class Left:
    """Group that was left."""

    def leave(self) -> None:
        pass


def numbers(group: ProcessGroup) -> list[Any]:
    """Return what the replicas agree on of numbers that follow from the rank."""
    r = group.rank
    own = torch.tensor([[r + 1.0, -r]])
    found: list[Any] = [group.total(own).tolist(), group.largest(own).tolist(), own.tolist()]
    kinds = (torch.float64, torch.bfloat16, torch.int64)
    found.append([(str(x.dtype), x.item()) for x in (group.total(torch.tensor(r + 1, dtype=d)) for d in kinds)])
    found.append([group.any(False), group.any(r == group.world_size - 1), group.any(True)])
    grown = torch.tensor([float(r)], requires_grad=True)
    found.append(group.total(2 * grown).requires_grad)
    found.append(group.each(torch.tensor([r, 7])).tolist())
    return found


def items(group: ProcessGroup) -> list[Any]:
    """Return what comes of objects, equal in size and not, one of them of a class that only this function knows."""

    class Local:
        def __init__(self, n: int) -> None:
            self.n = n

    r = group.rank
    local = [item.n for item in group.gather(Local(r))]
    return [
        group.gather("x" * 1000 * r),
        local,
        group.broadcast({"rank": r}),
        group.broadcast([r] * 5),
        group.gather(None),
    ]


def tensors(group: ProcessGroup) -> list[Any]:
    """Return what the tensors of replica 0 become in all, in several orders of memory."""
    own = [
        torch.full((2, 2), float(group.rank)),
        (torch.arange(6).reshape(2, 3) + 10 * group.rank).t(),
        torch.arange(8)[::2] + group.rank,
        torch.tensor(group.rank),
        nn.Parameter(torch.full((1, 2, 2, 2), float(group.rank)).to(memory_format=torch.channels_last)),
        torch.tensor([group.rank == 0]),
    ]
    addresses = [x.data_ptr() for x in own]
    group.broadcast_tensors(own)
    assert addresses == [x.data_ptr() for x in own]
    return [x.tolist() for x in own]


class Net(nn.Module):
    """Two heads on one trunk, of which a loss may use one; convolution in channels-last order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk: nn.Module = nn.Conv2d(2, 3, 2)
        self.trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.heads = nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 1)])
        self.never = nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor, heads: list[int]) -> torch.Tensor:
        features = self.trunk(x).mean((2, 3))
        return sum((self.heads[i](features).square().sum() for i in heads), torch.zeros(()))


def gradients(group: ProcessGroup, heads_of: list[list[int]], n_passes: int = 2) -> list[Any]:
    """Return the mean gradients of two networks, or None where there are none, after some passes over each.

    Args:
        group: of the replica.
        heads_of: heads that the loss of each replica uses.
        n_passes: passes, each with other data; the last one counts.
    """
    nets = [Net(), Net()]
    parameters = [list(net.parameters()) for net in nets]
    passes = [group.backward_pass(some) for some in parameters]
    for number in range(n_passes):
        for net, some, backward in zip(nets, parameters, passes, strict=True):
            for parameter in some:
                parameter.grad = None
            backward(net(data(group.rank, number), heads_of[group.rank]))
    for parameter in parameters[0]:
        if parameter.grad is not None:
            assert parameter.grad.stride() == parameter.stride()
    return [[None if p.grad is None else p.grad.clone() for p in some] for some in parameters]


def data(rank: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + number)
    return torch.randn(5, 2, 4, 4, generator=generator)


def other_shapes(group: ProcessGroup) -> str:
    """Return the message where replica 1 has one parameter more."""
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(1 + (group.rank == 1))]
    return message_of(lambda: group.backward_pass(parameters))


def own_error(group: ProcessGroup) -> str:
    """Return what an error of the user's loss becomes in a backward pass, which is itself."""
    backward = group.backward_pass([nn.Parameter(torch.zeros(2))])
    return message_of(lambda: backward(torch.zeros(2, requires_grad=True)), RuntimeError)


def lose(group: ProcessGroup, how: str) -> tuple[str, float]:
    """Return what the others say when replica 1 is lost, and after how many seconds they do."""
    group.place = f"iteration {group.rank}"
    group.any(False)
    start = time.monotonic()
    if group.rank != 1:
        return message_of(lambda: group.total(torch.ones(3))), time.monotonic() - start
    match how:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raised":
            group.report(ZeroDivisionError("of the user"))
        case "late":
            time.sleep(group.timeout + 0.5)
            return message_of(lambda: group.total(torch.ones(3))), 0.0
    group.leave()
    return "", 0.0


def astray(group: ProcessGroup) -> str:
    """Return the message where replica 1 has made one call more, of which the others do not know."""
    group._calls += group.rank == 1
    return message_of(lambda: group.gather("x"))


def interrupt(group: ProcessGroup) -> float:
    """Return how long Ctrl-C takes in a collective that replica 0 alone has begun."""
    if group.rank:
        time.sleep(1.5)
        group.any(False)
        return 0.0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    start = time.monotonic()
    try:
        group.any(False)
    except KeyboardInterrupt:
        return time.monotonic() - start
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return -1.0


def message_of(call: Callable[[], object], kind: type[Exception] = ReplicaError) -> str:
    try:
        call()
    except kind as error:
        return f"{type(error).__name__}: {error}"
    return ""


CHECKS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (numbers, items, tensors, gradients, other_shapes, own_error, lose, astray, interrupt)
}
