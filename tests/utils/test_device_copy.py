"""Copies to and from a device: what is asked of CUDA and in which order, by doubles, as there is no GPU here."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from rlpyt.types import Places
from rlpyt.utils import device_copy
from rlpyt.utils.device_copy import CopyToCpu, CopyToDevice

CUDA = torch.device("cuda:0")


class Leaf:
    """Double of a tensor, which notes what becomes of it."""

    def __init__(self, log: list[Any], name: str = "pageable", is_cuda: bool = False, index: int = 0) -> None:
        self.log, self.name, self.is_cuda, self.device = log, name, is_cuda, torch.device("cuda", index)

    def pin_memory(self) -> Leaf:
        self.log.append(f"pin {self.name}")
        return Leaf(self.log, "pinned")

    def to(self, device: Any, non_blocking: bool, copy: bool = False) -> Leaf:
        if torch.device(device) == self.device and self.is_cuda:
            return self
        self.log.append(f"copy {self.name} to {device}{' later' if non_blocking else ''}")
        return Leaf(self.log, f"on {device}", torch.device(device).type == "cuda")

    def record_stream(self, stream: Stream) -> None:
        self.log.append(f"{self.name} used by {stream.name}")


class Stream:
    """Double of a stream, and of an event recorded there."""

    def __init__(self, log: list[Any], name: str) -> None:
        self.log, self.name = log, name

    def record_event(self) -> Stream:
        self.log.append(f"event of {self.name}")
        return self

    def wait_event(self, event: Stream) -> None:
        self.log.append(f"{self.name} waits for {event.name}")


class Event:
    """Double of an event that the CPU waits for."""

    log: list[Any]

    def __init__(self, blocking: bool) -> None:
        assert blocking, "a thread that waits awake takes a core"

    def record(self, stream: Stream) -> None:
        self.log.append(f"event of {stream.name}")

    def synchronize(self) -> None:
        self.log.append("wait for event")


@pytest.fixture
def log(monkeypatch):
    """What CUDA is asked."""
    log: list[Any] = []

    @contextmanager
    def on_stream(stream: Stream) -> Any:
        log.append(f"on {stream.name}")
        yield
        log.append(f"off {stream.name}")

    @contextmanager
    def with_device(device: Any) -> Any:
        log.append(f"to {device}")
        yield
        log.append(f"from {device}")

    monkeypatch.setattr(torch.cuda, "device", with_device)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(log, "copies"))
    monkeypatch.setattr(torch.cuda, "stream", on_stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(log, "updates"))
    monkeypatch.setattr(Event, "log", log, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    device_copy._copy_stream.cache_clear()
    yield log
    device_copy._copy_stream.cache_clear()


def test_a_copy_to_cuda_is_pinned_goes_beside_and_is_waited_for_by_the_stream_that_reads(log):
    copy = CopyToDevice(Places(Leaf(log), None), CUDA)
    on, off = ["to cuda:0", "on copies"], ["off copies", "from cuda:0"]  # the device first, and back to it last
    begun = [*on, "pin pageable", "copy pinned to cuda:0 later", "event of copies", *off]
    assert log == begun
    assert copy.arrived().start.name == "on cuda:0"
    assert log == [*begun, "updates waits for copies", "on cuda:0 used by updates"]


def test_what_is_made_of_a_copy_is_made_on_the_stream_of_the_copies(log):
    def make(leaves: Any) -> Any:
        log.append(f"make of {leaves[0].name}")
        return (Leaf(log, "made", is_cuda=True),)

    copy = CopyToDevice((Leaf(log),), CUDA, make)
    copied, made = log.index("copy pinned to cuda:0 later"), log.index("make of on cuda:0")
    assert copied < made < log.index("event of copies") < log.index("off copies")
    assert copy.arrived()[0].name == "made"
    assert log[-1] == "made used by updates"


def test_what_is_on_cuda_already_is_not_copied_and_all_copies_share_a_stream(log):
    leaf = Leaf(log, "there", is_cuda=True)
    assert CopyToDevice((leaf,), CUDA).arrived()[0] is leaf
    assert not any("copy" in entry.split() for entry in log)
    assert device_copy._copy_stream(CUDA) is device_copy._copy_stream(torch.device("cuda:0"))


def test_a_copy_to_the_cpu_does_not_change_with_the_tensor():
    x = torch.arange(3)
    copy = CopyToCpu(x)
    x[:] = 7
    assert copy.arrived().tolist() == [0, 1, 2]


def test_a_copy_from_cuda_is_waited_for_when_it_is_read(log):
    copy: Any = CopyToCpu(Leaf(log, "priorities", is_cuda=True))  # type: ignore[arg-type]
    assert log == ["copy priorities to cpu later", "event of updates"]
    assert copy.arrived().name == "on cpu"
    assert log[2:] == ["to cuda:0", "wait for event", "from cuda:0"]
