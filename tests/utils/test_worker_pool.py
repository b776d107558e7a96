"""A pool of workers: one request under way each, and another worker in the place of a lost one."""

from __future__ import annotations

import gc
import re
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import psutil
import pytest

from rlpyt.utils import processes
from rlpyt.utils.calls import Call, call
from rlpyt.utils.processes import WorkerError
from rlpyt.utils.progress import Progress
from rlpyt.utils.shared_memory import shared_array
from rlpyt.utils.worker_pool import LocalWorkers, Message, WorkerPool
from tests.pairs import others_nightly
from tests.runners.runner_kit import start_forkserver
from tests.utils.worker_servers import ReplaceableServer as Server


@pytest.fixture(scope="module", autouse=True)
def _forkserver_is_running():
    start_forkserver()


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch):
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.5)


@contextmanager
def pool_of(
    n: int, restarts: int = 0, broken: Sequence[int] = (), slow: float = 0.0, timeout: float = 30.0, **calls: Any
) -> Iterator[WorkerPool[Server]]:
    """Yield a pool; all processes that it ever had must be gone at its end."""
    pids: set[int] = set()
    kind = LocalWorkers(Server, "forkserver")
    pool: WorkerPool[Server] = WorkerPool(kind, lambda rank, k: (k, tuple(broken), slow), n, restarts, **calls)
    pool.timeout = timeout
    try:
        pids.update(w.pid or 0 for w in pool.workers)
        yield pool
        pids.update(w.pid or 0 for w in pool.workers)
    finally:
        pool.stop()
        pool.stop()
        assert pool.workers == []
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).is_running() for pid in pids)


def process_of(worker: Any) -> BaseProcess:
    process: BaseProcess = worker._process
    return process


def to(ranks: Sequence[int], request: Call[Server, Any]) -> dict[int, Message[Server, Any]]:
    return dict.fromkeys(ranks, Message.of(request))


# ---- requests and replies ----


def test_a_worker_has_one_request_under_way_and_a_late_reply_is_dropped():
    with pool_of(2) as pool:
        start = time.monotonic()
        pool.post(to([0], call(Server.sleep, 0.3)))
        pool.post(to([0], call(Server.echo, 1)))  # waits for the reply before
        assert time.monotonic() - start > 0.25
        pool.post(to([1], call(Server.echo, 2)))
        assert pool.receive([0, 1]) == [1, 2]


def test_a_pool_whose_worker_was_lost_is_gone_with_its_last_reference():
    gc.collect()
    gc.disable()
    try:
        with pool_of(1) as pool, pytest.raises(WorkerError, match="raised ValueError: lost"):
            pool.ask({0: call(Server.raise_error, "lost")})
        gone = weakref.ref(pool)
        del pool
        assert gone() is None, "its shared memory would stay until the garbage collector comes"
    finally:
        gc.enable()


def test_messages_of_any_size_go_both_ways():
    big = np.random.default_rng(0).random(2_000_000)
    with pool_of(2, restarts=1) as pool:
        pool.post(to([0, 1], call(Server.echo, big)))  # both replies are on their way before the first is read
        for reply in pool.receive([0, 1]):
            assert np.array_equal(reply, big)
        # A request that is larger than the pipe is sent to a replacement as well.
        (reply, _) = pool.ask({0: call(Server.unless_new, "kill"), 1: call(Server.echo, big)})
        assert reply == (0, 1)


def test_waiting_lets_the_caller_look_around():
    calls: list[float] = []
    with pool_of(1) as pool:
        assert pool.ask({0: call(Server.sleep, 1.3)}, on_wait=lambda: calls.append(time.monotonic())) == ["slept"]
    assert 1 <= len(calls) <= 3


# ---- losses ----

LOSSES: dict[str, tuple[Call[Server, Any], str]] = {
    "kill": (call(Server.kill), "environment 5, step 23, was killed by SIGKILL (out of memory, if nobody"),
    "exit": (call(Server.exit, 3), "exited with code 3"),
    "raise": (call(Server.raise_error, "no"), "environment 3, step 17, raised ValueError: no"),
    "hang": (call(Server.sleep, 3600), "has made no progress for"),
    "hang in C": (call(Server.sleep_in_c, 3600), "has made no progress for"),
}


@pytest.mark.parametrize("loss", ["kill", "hang"])
def test_a_loss_is_raised_where_none_may_be_replaced(loss):
    request, message = LOSSES[loss]
    start = time.monotonic()
    with pool_of(2, timeout=0.5) as pool, pytest.raises(WorkerError, match=rf"Worker 1 .*{re.escape(message)}") as info:
        pool.ask({0: call(Server.echo, 1), 1: request})
    assert info.value.rank == 1
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("loss", others_nightly(LOSSES, ("kill", "exit", "raise", "hang in C")))
def test_a_lost_worker_is_replaced_and_takes_up_the_request(loss):
    lost, message = LOSSES[loss]
    seen: list[Any] = []
    told: list[tuple[str, int]] = []

    def on_loss(progress: Progress, request: Any) -> Any:
        seen.append((progress, request))
        return request

    def tell(error: WorkerError, restarts_left: int) -> None:
        told.append((str(error), restarts_left))

    # The start of the new worker must not take as long, on a busy machine either.
    with pool_of(3, restarts=2, on_loss=on_loss, tell=tell, timeout=2.0 if "hang" in loss else 60.0) as pool:
        pool.ask({1: call(Server.note, 7)})
        request: Call[Server, Any] = call(Server.unless_new, lost.method.__name__, *lost.args)
        assert pool.ask({0: call(Server.which), 1: request, 2: call(Server.which)}) == [(0, 0), (1, 1), (2, 0)]
        assert (pool.n_restarts, pool.restarts_left) == (1, 1)
        ((progress, under_way),) = seen
        ((text, restarts_left),) = told
        assert (under_way, restarts_left) == (request, 1)
        # As the lost worker left it; the new one has made progress of its own since.
        assert (progress.env_rank, progress.step) == {"kill": (5, 23), "raise": (3, 17)}.get(loss, (10, 7))
        assert "Worker 1 (pid" in text
        assert message in text
        assert pool.ask(dict.fromkeys(range(3), call(Server.which))) == [(0, 0), (1, 1), (2, 0)]


# ---- set-up ----


def test_a_new_worker_is_set_up_as_the_lost_one_was_in_the_same_order():
    accepted: list[Any] = []
    with pool_of(2, restarts=2) as pool:
        array = shared_array(2, np.int64)
        assert pool.set_up({0: call(Server.remember, "a"), 1: call(Server.remember, "b")}, accepted.append) == [
            ["a"],
            ["b"],
        ]
        assert pool.set_up({0: call(Server.remember, "c")}, accepted.append) == [["a", "c"]]
        assert pool.ask({0: call(Server.remember, "of no set-up")}) == [["a", "c", "of no set-up"]]
        pool.set_up({0: call(Server.keep, array)})
        for restart in (1, 2):
            assert pool.ask({0: call(Server.unless_replaced, restart, "kill")}) == [(0, restart)]
            assert pool.ask({0: call(Server.remember, "d")}) == [["a", "c", "d"]]
            pool.ask({0: call(Server.write_kept, restart)})
            assert array.tolist() == [restart] * 2
        assert pool.ask({1: call(Server.remember, "d")}) == [["b", "d"]]
        assert accepted == [["a"], ["b"], ["a", "c"], *[["a"], ["a", "c"]] * 2]


def test_a_worker_that_is_lost_while_it_is_set_up_is_set_up_again():
    with pool_of(2, restarts=1) as pool:
        pool.set_up(dict.fromkeys(range(2), call(Server.remember, "a")))
        assert pool.set_up({0: call(Server.which), 1: call(Server.unless_replaced, 1, "kill")}) == [(0, 0), (1, 1)]
        assert pool.ask(dict.fromkeys(range(2), call(Server.remember, "b"))) == [["a", "b"]] * 2
        # The request that it was lost in is one of those that set up the next.
        assert [len(pool._set_up[rank]) for rank in range(2)] == [2, 2]


def test_a_reply_that_is_not_accepted_ends_it_whenever_it_comes():
    def accept(reply: Any) -> None:
        if reply[1] > limit:
            raise ValueError(f"not {reply}")

    limit = 0
    with pool_of(1, restarts=5) as pool:
        pool.set_up({0: call(Server.which)}, accept)
        with pytest.raises(ValueError, match=r"not \(0, 1\)"):
            pool.ask({0: call(Server.kill)})
    limit = -1
    with pool_of(1, restarts=5) as pool, pytest.raises(ValueError, match=r"not \(0, 0\)"):
        pool.set_up({0: call(Server.which)}, accept)


# ---- how many ----


def test_only_the_restarts_of_the_last_seconds_count():
    with pool_of(1, restarts=1, restart_seconds=60) as pool:
        pool.count_restarts(3)  # of an earlier process: long ago, so that they only change the seeds
        assert (pool.n_restarts, pool.restarts_left) == (3, 1)
        assert pool.ask({0: call(Server.unless_new, "kill")}) == [(0, 4)]
        pool._restarted_at[-1] -= 61  # time goes by
        assert pool.restarts_left == 1
        pool._restarted_at[-1] = time.monotonic()
        with pytest.raises(WorkerError, match=r"Worker 0 .*was killed by SIGKILL"):
            pool.ask({0: call(Server.kill)})


def test_several_may_be_lost_at_once():
    with pool_of(3, restarts=3) as pool:
        replies = pool.ask(dict.fromkeys(range(3), call(Server.unless_new, "kill")))
        assert [rank for rank, _ in replies] == [0, 1, 2]
        assert sorted(k for _, k in replies) == [1, 2, 3]


def test_a_replacement_that_cannot_be_made_counts_and_the_next_one_hears_of_the_first_loss():
    seen: list[Any] = []

    def on_loss(progress: Progress, request: Any) -> Any:
        seen.append(([progress.env_rank, progress.step], request))
        return request

    def tell(error: WorkerError, restarts_left: int) -> None:
        told.append((str(error).partition(", last seen")[2].split(", ", 2)[2].split("\n")[0], restarts_left))

    told: list[tuple[str, int]] = []
    with pool_of(2, restarts=4, on_loss=on_loss, tell=tell, broken=[1, 2]) as pool:
        pool.set_up({1: call(Server.which)})
        request: Call[Server, Any] = call(Server.unless_new, "kill")
        assert pool.ask({0: call(Server.which), 1: request}) == [(0, 0), (1, 3)]
        assert (pool.n_restarts, pool.restarts_left) == (3, 1)
        assert seen == [([5, 23], request)], "what was lost is taken up by the one that could be set up"
        raised = [f"raised OSError: no display for restart {k}" for k in (1, 2)]
        assert [left for _, left in told] == [3, 2, 1]
        assert [text for text, _ in told[1:]] == raised


def test_what_goes_wrong_in_recovering_is_raised_as_it_is():
    def on_loss(*args: Any) -> Any:
        raise KeyError("a bug of the master")

    with pool_of(2, restarts=5, on_loss=on_loss) as pool, pytest.raises(KeyError, match="a bug of the master"):
        pool.ask({0: call(Server.echo, 1), 1: call(Server.kill)})


def test_a_replacement_has_the_time_to_be_built_that_the_first_had():
    with pool_of(1, restarts=1, slow=1.5, timeout=30) as pool:
        pool.set_up({0: call(Server.which)})
        pool.timeout = 0.5
        assert pool.ask({0: call(Server.unless_new, "kill")}) == [(0, 1)]


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_worker_that_dies_after_its_reply_is_missed_at_its_next_request(restarts):
    with pool_of(2, restarts=restarts) as pool:
        assert pool.ask({0: call(Server.die_soon), 1: call(Server.which)}) == ["farewell", (1, 0)]
        deadline = time.monotonic() + 5
        while process_of(pool.workers[0]).is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        pool.settle([0, 1])
        assert pool.ask({1: call(Server.which)}) == [(1, 0)]
        assert pool.n_restarts == 0
        if restarts:
            assert pool.ask({0: call(Server.which)}) == [(0, 1)]
        else:
            with pytest.raises(WorkerError, match=r"Worker 0 .*was killed by SIGKILL"):
                pool.ask({0: call(Server.which)})


# ---- time, start and stop ----


def test_slow_progress_is_no_loss():
    with pool_of(2, restarts=1, timeout=0.8) as pool:
        assert pool.ask({0: call(Server.work, 12, 0.1), 1: call(Server.echo, 1)}) == ["worked", 1]
        assert pool.n_restarts == 0


def test_a_pool_that_cannot_be_started_leaves_nothing():
    before = set(psutil.Process().children())

    def args_of(rank: int, restarts: int) -> tuple[Any, ...]:
        if rank == 2:
            raise ZeroDivisionError("no plan for the third")
        return (restarts,)

    with pytest.raises(ZeroDivisionError, match="no plan for the third"):
        WorkerPool(LocalWorkers(Server, "forkserver"), args_of, 3)
    assert not set(psutil.Process().children()) - before
