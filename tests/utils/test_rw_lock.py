from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest

from rlpyt.utils.processes import Worker, receive_all, stop_workers
from rlpyt.utils.rw_lock import LockError, RwLock
from rlpyt.utils.shared_memory import dumps, shared_array
from tests.utils.lock_servers import LockServer, Stay

ROLES = ("learner", "copier", "reader 0", "reader 1")
Start = Callable[..., Worker]


@pytest.fixture
def lock() -> RwLock:
    lock = RwLock(ROLES, timeout=30.0, what="the numbers")
    lock.join("learner")
    return lock


@pytest.fixture
def start(lock: RwLock) -> Iterator[Start]:
    """Return a function that starts a process of a role; all are stopped at the end."""
    workers: list[Worker] = []
    numbers = shared_array(20, np.int64)

    def start(role: str) -> Worker:
        workers.append(Worker(len(workers), LockServer, (lock, role, numbers), "forkserver"))
        workers[-1].send(("read", 0.0))
        receive_all(workers[-1:], 60.0)
        return workers[-1]

    yield start
    for worker in workers:
        assert worker.pid
        with suppress(ProcessLookupError):  # one that was killed
            os.kill(worker.pid, signal.SIGCONT)
    stop_workers(workers, seconds=1.0)


def copy_of(lock: RwLock, role: str, timeout: float = 30.0) -> RwLock:
    """Return the lock as another process gets it."""
    copy: RwLock = pickle.loads(dumps(lock))
    copy.timeout = timeout
    copy.join(role)
    return copy


def hold(worker: Worker, how: str, seconds: float = 60.0) -> None:
    """Let a process come in, and return when it is inside."""
    before = worker.progress.step
    worker.send((how, seconds))
    while worker.progress.step == before:
        time.sleep(1e-3)


# ---- who may be inside ----


def test_readers_are_inside_together_and_a_writer_alone(lock):
    copier, other = copy_of(lock, "copier", 0.05), copy_of(lock, "reader 0", 0.05)
    with other.reading, lock.reading, pytest.raises(LockError), copier.writing:
        pass
    with lock.writing:
        for act in (copier.reading, other.writing):
            with pytest.raises(LockError), act:
                pass
    with copier.writing:
        pass
    with lock.reading, other.reading:
        pass


def test_a_writer_that_waits_closes_the_gate(lock):
    copier, other = copy_of(lock, "copier"), copy_of(lock, "reader 0", 0.3)
    with lock.reading:
        waiting = threading.Thread(target=lambda: copier.writing.__enter__())
        waiting.start()
        time.sleep(0.05)
        with pytest.raises(LockError, match=r"the learner .* still reads and the copier .* still waits"), other.reading:
            pass
    waiting.join(5.0)
    assert not waiting.is_alive()
    copier.release(completed=True)
    with other.reading:
        pass


def test_use_that_cannot_be_meant(lock):
    with pytest.raises(ValueError, match=r"got role 'cook'; expected one of .*copier"):
        lock.join("cook")
    with pytest.raises(RuntimeError, match="joined under no role"), pickle.loads(dumps(lock)).reading:
        pass
    with lock.reading, pytest.raises(RuntimeError, match="inside already"), lock.writing:
        pass
    with lock.writing:
        pass


def test_no_descriptor_is_left():
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    lock = RwLock(ROLES)
    lock.join("learner")
    lock.join("learner")
    copy = copy_of(lock, "copier")
    del lock, copy
    assert open_files() == before


# ---- several processes ----


def test_nothing_is_torn_and_nobody_starves(start):
    acts = {"copier": "write", "learner": "write", "reader 0": "read", "reader 1": "read"}
    workers = [start(role) for role in acts]
    for worker, act in zip(workers, acts.values(), strict=True):
        worker.send((act, 1.5))
    stays: list[Stay] = receive_all(workers, 60.0)
    assert [stay.n_torn for stay in stays] == [0] * 4
    written = sum(stay.n_inside for stay, act in zip(stays, acts.values(), strict=True) if act == "write")
    workers[0].send(("read", 0.0))
    receive_all(workers[:1], 60.0)
    assert written > 0
    # Four processes share two cores, perhaps with others: a fair share is some hundreds a second.
    assert min(stay.n_inside for stay in stays) > 30, stays


@pytest.mark.parametrize("how", ["hold_to_read", "hold_to_write"])
def test_a_holder_that_is_killed_gives_the_lock_back(lock, start, how):
    worker = start("copier")
    hold(worker, how)
    os.kill(worker.pid, signal.SIGKILL)
    began = time.monotonic()
    if how == "hold_to_read":
        with lock.writing:
            pass
    else:
        for act in (lock.reading, lock.writing):
            with pytest.raises(LockError, match=rf"the copier \(pid {worker.pid}\) died or failed while it wrote"), act:
                pass
    assert time.monotonic() - began < 2.0


def test_a_holder_that_is_stopped_is_named(lock, start):
    worker = start("copier")
    hold(worker, "hold_to_write")
    os.kill(worker.pid, signal.SIGSTOP)
    lock.timeout = 0.5
    began = time.monotonic()
    expected = rf"waited for 0.5 s, and the copier \(pid {worker.pid}\) still writes"
    with pytest.raises(LockError, match=expected), lock.reading:
        pass
    assert 0.4 < time.monotonic() - began < 2.0


def test_one_that_is_stopped_while_it_waits_holds_nobody_up_for_long(lock, start):
    worker = start("reader 0")
    with lock.writing:
        worker.send(("hold_to_read", 60.0))
        time.sleep(0.2)
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(0.05)
    began = time.monotonic()
    for _ in range(20):
        with lock.reading:
            pass
    assert time.monotonic() - began < 1.0, "it is waited for once, not every time"


# ---- exceptions ----


def test_an_exception_of_a_writer_is_told_to_the_others(lock):
    copier = copy_of(lock, "copier")
    with pytest.raises(ZeroDivisionError), copier.reading:
        raise ZeroDivisionError
    with lock.reading:
        pass
    with pytest.raises(ZeroDivisionError), copier.writing:
        raise ZeroDivisionError
    with pytest.raises(LockError, match=r"Reading the numbers: the copier .* failed while it wrote"), lock.reading:
        pass


def test_a_writer_whose_wait_was_taken_back_late_has_finished_all_the_same(lock):
    copier = copy_of(lock, "copier")
    with copier.writing:
        copier._cells[copier._me + 1] = 0  # out, by one that yielded to it, and saw it wait a moment ago
    with lock.reading:
        pass


def test_ctrl_c_works_while_waiting(lock):
    other = copy_of(lock, "reader 0")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
    try:
        with other.reading:
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt), lock.writing:
                pass
    finally:
        signal.signal(signal.SIGINT, before)
    with other.writing:
        pass
    with lock.writing:
        pass
