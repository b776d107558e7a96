"""Arrays in shared memory: seen by every process, gone with the last of them."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt import namedarraytuple
from rlpyt.utils import cgroups
from rlpyt.utils.processes import START_METHODS, Worker, receive_all, stop_workers
from rlpyt.utils.shared_memory import dumps, free_memory, shared_array, total_memory, unsendable
from tests.pairs import others_nightly
from tests.utils.worker_servers import Server

Pair: Any = namedarraytuple("Pair", ["ale.lives", "nested"])


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(params=others_nightly(START_METHODS, ("forkserver", "fork")))
def start_method(request):
    return request.param


def views(a: np.ndarray) -> list[np.ndarray]:
    parts = [a[1:3], a[:, 0], a[::2, ::3], a.T, a[::-1, ::-2], a[2:2], a.reshape(2, 2, 6)[1], a[3, 5:].reshape(())]
    assert all(np.shares_memory(part, a) for part in parts if part.size)
    return parts


def test_every_view_is_the_same_memory_in_every_process(start_method):
    base = shared_array((4, 6), np.int64)
    base[:] = np.arange(24).reshape(4, 6)
    first, column, grid, *others = views(base)
    buffer: Any = Pair(first, (column, grid, None))
    private = np.zeros(2, np.int64)
    expected = base.copy()
    worker = Worker(0, Server, (buffer, *others, private), start_method)
    try:
        worker.send(("add", 100))
        answers = receive_all([worker], 60)[0]
    finally:
        stop_workers([worker])
    assert [shape for _, shape, _ in answers] == [view.shape for view in (*views(base), private)]
    # Every view has added 100 to its part of the one array; closing has written -1 to the first.
    for view in views(expected):
        view += 100
    expected[1:3] = -1
    assert np.array_equal(base, expected)
    assert not private.any(), "an array of its own goes by value"


def test_an_array_may_be_sent_at_any_time_and_is_let_go_of_again():
    worker = Worker(0, Server, (), "forkserver")
    try:
        counts = []
        for value in range(4):
            array = shared_array((100, 100), np.float32)
            worker.send(("write", array[::2], value + 1))
            counts += receive_all([worker], 60)
            assert (array[::2] == value + 1).all()
            assert not array[1::2].any()
        assert counts[1:] == counts[:-1], "descriptors stay open in the worker"
    finally:
        stop_workers([worker])


def test_memory_has_no_name_and_is_freed_with_the_array():
    names, descriptors = set(os.listdir("/dev/shm")), open_descriptors()
    arrays = [shared_array((1000, 1000), np.uint8) for _ in range(5)]
    views = [a[10:20] for a in arrays]
    assert set(os.listdir("/dev/shm")) <= names
    assert open_descriptors() > descriptors
    del arrays
    assert open_descriptors() > descriptors, "a view keeps its memory"
    assert views[0].sum() == 0
    del views
    assert open_descriptors() == descriptors


def test_a_reference_costs_nothing_but_a_copy_costs_its_bytes():
    assert len(dumps(shared_array((1000, 1000), np.float64)[5:])) < 2000
    assert len(dumps(np.zeros(1000))) > 8000


@pytest.mark.parametrize("shape", [(2**20, 2**20, 2**20), (2**40, 2**40), 2**50, (2**62, 1)])
def test_more_than_there_is_is_an_error_and_not_a_killed_process(shape):
    before = open_descriptors()
    with pytest.raises(MemoryError, match=r"bytes were asked for, and this process can have [\d,]+\. Lower batch_T"):
        shared_array(shape, np.float32)
    assert open_descriptors() == before


def test_the_limit_of_a_container_counts(monkeypatch):
    monkeypatch.setattr(cgroups, "free_memory", lambda: 1050)
    assert free_memory() == 1050
    with pytest.raises(MemoryError, match="2,000 bytes were asked for, and this process can have 1,050"):
        shared_array(500, np.float32)
    monkeypatch.setattr(cgroups, "free_memory", lambda: -50)
    assert free_memory() == 0
    assert total_memory() > 2**20
    monkeypatch.setattr(cgroups, "memory_limit", lambda: 1050)
    assert total_memory() == 1050


def test_the_limit_of_open_files_is_raised_as_far_as_may_be(door):
    """And no further: then the error says what to raise."""
    door(
        """
        import os, resource
        from rlpyt.utils.shared_memory import shared_array

        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 5, used + 45))
        arrays = [shared_array(1, "int64") for _ in range(20)]
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == used + 45
        try:
            arrays += [shared_array(1, "int64") for _ in range(20)]
        except OSError as error:
            assert "Raise the hard limit (ulimit -Hn" in str(error), error
        else:
            raise AssertionError("no error")
        """
    )


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float32])
def test_a_tensor_of_every_dtype_arrives(dtype):
    # The state of a generator of numpy is of uint32, and a checkpoint makes a tensor of it.
    tensor = torch.arange(6).to(dtype).reshape(2, 3)
    arrived = pickle.loads(dumps({"key": tensor}))["key"]
    assert arrived.dtype == dtype
    assert arrived.tolist() == tensor.tolist()


def test_an_array_that_lives_as_long_as_the_process_is_freed_in_silence():
    # So does what the frames of an uncaught exception hold. The modules are empty by then.
    script = "import sys; from rlpyt.utils import shared_memory as m; sys.excepthook = m, m.shared_array(4, int)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    assert done.stderr == ""


class Holder:
    """Object with any attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def test_what_cannot_be_sent_is_named():
    lock = threading.Lock()
    assert unsendable((1, Holder(agent=Holder(name="a", lock=lock)))) == "Holder.agent.lock"
    assert unsendable((Holder(kwargs={"a": 1, "disk": lock}),)) == "Holder.kwargs.disk"
    assert unsendable((Holder(EnvCls=lambda: lock),)) == "Holder.EnvCls"
    itself = Holder(lock=lock)
    vars(itself)["me"] = itself
    assert unsendable(itself, "it") == "it.lock"
