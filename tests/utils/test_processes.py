"""Workers: their errors come home, nothing waits for ever, and none is left behind."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from threadpoolctl import threadpool_limits

from rlpyt.utils import process_start, processes, worker_main
from rlpyt.utils.process_start import short_temporaries
from rlpyt.utils.processes import (
    START_METHODS,
    Worker,
    WorkerError,
    available_cores,
    receive_all,
    stop_workers,
)
from rlpyt.utils.shared_memory import dumps, shared_array
from tests.pairs import others_nightly
from tests.utils.worker_servers import BrokenServer, ExitingServer, Server

ROOT = Path(__file__).parents[2]
QUICK = others_nightly(START_METHODS, ("forkserver", "fork"))
"""A worker by `spawn` imports torch for 4 s: where the suite needs none."""


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch):
    # Many tests leave a worker asleep, which is killed only when its time to close is over.
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.5)


@contextmanager
def workers(n: int = 1, server: Any = Server, args: tuple[Any, ...] = (), method: str = "forkserver") -> Iterator[Any]:
    made = [Worker(rank, server, args, method) for rank in range(n)]
    try:
        yield made
    finally:
        stop_workers(made)
        assert not any(is_alive(w.pid or 0) for w in made)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ask(made: list[Worker], *request: Any, timeout: float = 30.0) -> list[Any]:
    for worker in made:
        worker.send(request)
    return receive_all(made, timeout)


@pytest.mark.parametrize("method", QUICK)
def test_replies_come_in_the_order_of_the_workers(method):
    with workers(2, method=method) as made:
        made[0].send(("sleep", 0.2))
        made[1].send(("echo", {"a": np.arange(3)}))
        slept, echoed = receive_all(made, 30)
        assert slept == "slept"
        assert echoed["a"].tolist() == [0, 1, 2]
        assert ask(made, "threads") == [1, 1]


def test_what_a_worker_is_sent_stays_until_it_has_it():
    array = shared_array(2, np.int64)
    array[:] = 7
    worker = Worker(0, Server, (array,), "forkserver")
    del array
    others = [shared_array(2, np.int64) for _ in range(3)]  # the first would get the descriptor of one that is gone
    try:
        worker.send(("add", 1))
        assert receive_all([worker], 30) == [[([8, 8], (2,), "int64")]]
        assert not any(other.any() for other in others)
    finally:
        stop_workers([worker])


@pytest.mark.parametrize("method", START_METHODS)
def test_every_pool_of_threads_in_a_worker_has_one(method, monkeypatch):
    pytest.importorskip("cv2").setNumThreads(2)  # which a forked worker finds as it is here
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with threadpool_limits(2), workers(1, method=method) as made:
        pools, environment = ask(made, "pools")[0]
    assert pools
    assert set(pools.values()) == {1}, pools
    assert {environment[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL")} == {"1"}
    assert dict(os.environ) == before


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_an_exception_comes_home_with_its_traceback(method):
    with workers(2, method=method) as made:
        ask(made, "echo", 1)
        made[0].send(("sleep", 60))
        made[1].send(("raise_error", "the simulator says no"))
        start = time.monotonic()
        with pytest.raises(WorkerError) as info:
            receive_all(made, 30)
        assert time.monotonic() - start < 2
        text = str(info.value)
        assert re.search(
            r"Worker 1 \(pid \d+\), .*environment 3, step 17.* raised ValueError: the simulator says", text
        )
        assert "Traceback" in text
        assert "in raise_error" in text


def test_what_cannot_be_made_or_sent_back_says_why():
    with workers(1, server=BrokenServer) as made, pytest.raises(WorkerError, match="raised OSError: no display"):
        ask(made, "echo", 1)
    with workers(1) as made, pytest.raises(WorkerError, match=r"raised TypeError.*lock"):
        ask(made, "unpicklable")
    with workers(1) as made, pytest.raises(WorkerError, match="raised SystemExit: enough"):
        ask(made, "system_exit")
    with workers(1) as made, pytest.raises(WorkerError, match="has no attribute 'unknown'"):
        ask(made, "unknown")


def test_a_request_to_a_worker_that_has_raised_tells_what_it_raised():
    with workers(1, server=BrokenServer) as made:
        made[0]._process.join(timeout=30)
        with pytest.raises(WorkerError, match=r"Worker 0 .* raised OSError: no display"):
            made[0].send(("echo", 1))


def test_a_worker_that_exits_says_its_code():
    with workers(1) as made, pytest.raises(WorkerError, match="exited with code 3"):
        ask(made, "exit", 3)
    # Before any progress it may be the script that is at fault.
    with workers(1, server=ExitingServer) as made, pytest.raises(WorkerError, match=r"code 4.*if __name__ =="):
        ask(made, "echo", 1)


def test_a_forkserver_that_is_killed_is_named_by_its_workers():
    with workers(1) as made:
        ask(made, "echo", 1)
        process = psutil.Process(made[0].pid)
        process.parent().kill()
        process.wait(10)
        with pytest.raises(WorkerError, match=r"exited with code 255 \(or its forkserver was killed\)"):
            ask(made, "echo", 1)


@pytest.mark.parametrize(
    ("number", "text"), [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGSTOP, "the rest of its")]
)
def test_a_worker_lost_in_the_middle_of_its_reply_is_an_error(number, text):
    """A large reply, such as the state of many games, does not fit into the pipe."""
    with workers(1) as made:
        made[0].send(("zeros", 50_000_000))
        made[0]._has_reply.poll(10_000)
        time.sleep(0.3)  # the pipe is full
        os.kill(made[0].pid, number)
        start = time.monotonic()
        with pytest.raises(WorkerError, match=text):
            receive_all(made, timeout=0.5)
        assert time.monotonic() - start < 3


def test_a_worker_that_does_not_read_is_an_error():
    with workers(1) as made:
        ask(made, "echo", 1)
        os.kill(made[0].pid, signal.SIGSTOP)
        with pytest.raises(WorkerError, match=r"Worker 0 .* made no progress for 0.5 s: it does not read"):
            made[0].send_bytes(dumps(("echo", np.zeros(1_000_000))), timeout=0.5)


def test_there_may_be_no_limit_of_time():
    with workers(1) as made:
        made[0].send_bytes(dumps(("echo", 1)), timeout=float("inf"))
        assert receive_all(made, timeout=float("inf")) == [1]


def test_stopping_closes_the_server_and_may_be_repeated(monkeypatch):
    monkeypatch.setattr(processes, "_STOP_SECONDS", 10.0)
    closed = shared_array(1, np.int64)
    made = [Worker(0, Server, (closed,), "forkserver")]
    ask(made, "echo", 1)
    stop_workers(made)
    assert closed[0] == -1
    stop_workers(made)
    stop_workers([])
    assert not is_alive(made[0].pid or 0)


def test_an_error_closes_the_server_too():
    closed = shared_array(1, np.int64)
    with workers(1, args=(closed,)) as made:
        with pytest.raises(WorkerError):
            ask(made, "raise_error", "x")
        made[0]._process.join(10)
        assert closed[0] == -1


@pytest.mark.parametrize("method", QUICK)
def test_signals_that_stop_a_run_are_left_to_the_master(method):
    """Also those that come before the first line of a worker, which multiprocessing starts by importing much."""
    made = [Worker(0, Server, (), method)]
    early = [*worker_main.STOP_SIGNALS]
    for number in early:
        os.kill(made[0].pid or 0, number)
    try:
        assert ask(made, "echo", 1) == [1]
        for number in (*early, *early):
            os.kill(made[0].pid or 0, number)
        assert ask(made, "echo", 2) == [2]
        assert ask(made, "signals_of_children") == [({"SIGINT", "SIGHUP", "SIGUSR1"}, set(), str(signal.SIG_DFL))]
    finally:
        stop_workers(made)


def test_a_worker_that_obeys_sigterm_ends_by_it():
    made = [Worker(0, Server, (), "forkserver", obeys_sigterm=True)]
    try:
        ask(made, "echo", 1)
        os.kill(made[0].pid or 0, signal.SIGTERM)
        with pytest.raises(WorkerError, match="was killed by SIGTERM"):
            ask(made, "echo", 1)
    finally:
        stop_workers(made)


def other_code(connection: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a fork has the handlers of all that ran here before, as Ray's
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    time.sleep(3600)


@pytest.mark.parametrize("method", QUICK)
def test_processes_of_other_code_are_stopped_as_ever(method):
    """Those of the forkserver, too, which blocks the signals."""
    context: Any = multiprocessing.get_context(method)
    with workers(1, method=method):
        ours, theirs = context.Pipe()
        process = context.Process(target=other_code, args=(theirs,))
        process.start()
        try:
            assert ours.poll(60)
            assert not ours.recv() & worker_main.STOP_SIGNALS
            process.terminate()
            process.join(10)
            assert process.exitcode == -signal.SIGTERM
        finally:
            process.kill()


def test_a_start_keeps_the_signals_of_this_process():
    handled: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: handled.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        for method in START_METHODS:
            with workers(1, method=method):
                assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask | {signal.SIGUSR2}
        with process_start._blocked_signals():
            # To this thread: another one, as libraries have some, could take it at once.
            signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
            assert not handled
        assert handled == [signal.SIGHUP], "kept for the handler"
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with workers(1, method="fork"):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("method", QUICK)
def test_workers_outlive_the_thread_that_started_them(method):
    made: list[Worker] = []

    def start() -> None:
        made.append(Worker(0, Server, (), method))
        ask(made, "echo", 1)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    try:
        # A signal at the thread's end may come a little after the join.
        assert [ask(made, "sleep", 0.1) for _ in range(3)] == [["slept"]] * 3
    finally:
        stop_workers(made)


@pytest.mark.nightly
def test_a_script_on_standard_input_starts_workers_and_modules_of_the_forkserver_do_nothing_elsewhere():
    """Tools that import every module of a package must not block the signals of their process."""
    script = """
        import signal
        import rlpyt.utils.forkserver
        from rlpyt.utils.processes import Worker, receive_all, stop_workers
        from tests.utils.worker_servers import Server

        class Local(Server):
            def more(self, x):
                return x + 1

        made = [Worker(0, Local, (), "forkserver")]
        made[0].send(("more", 4))
        print(receive_all(made, 60), __file__, signal.pthread_sigmask(signal.SIG_BLOCK, []))
        stop_workers(made)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT) + os.pathsep + os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        [sys.executable, "-"], input=textwrap.dedent(script), capture_output=True, text=True, env=environment
    )
    assert done.stdout == "[5] <stdin> set()\n", done.stderr


@pytest.mark.parametrize("method", QUICK)
def test_a_worker_is_told_how_many_cores_it_may_keep_busy(method):
    """Also one of a forkserver that began when there was another number, or none."""
    with processes.cores_limited_to(1), workers(1, method=method) as made:
        assert ask(made, "pools")[0][1][worker_main.CORES] == "1"
    with workers(1, method=method) as made:
        assert worker_main.CORES not in ask(made, "pools")[0][1]


@pytest.mark.parametrize(
    ("n_cpus", "quota", "job", "told", "openmp", "n_cores", "n_threads"),
    [
        (2, inf, inf, None, None, 2, 2),
        *((64, quota, inf, None, None, n, n) for quota, n in ((0.2, 1), (1.0, 1), (1.5, 2), (99.0, 64))),
        (128, inf, 4, None, None, 4, 4),  # of SLURM with TaskPlugin=task/none
        (1, inf, 4, None, None, 1, 1),  # a run of a launcher in the job, which has pinned it
        (8, inf, inf, "5", None, 5, 5),
        (8, inf, inf, "", None, 8, 8),
        *((2, inf, inf, None, openmp, 2, n) for openmp, n in (("", 2), ("1", 1), ("64", 2), ("1,4", 1), (" 1 ", 1))),
        *((2, inf, inf, None, openmp, 2, 2) for openmp in ("0", "many", "-3")),
    ],
)
def test_cores_and_threads_are_what_every_limit_leaves(
    n_cpus, quota, job, told, openmp, n_cores, n_threads, monkeypatch
):
    monkeypatch.setattr(processes, "available_cpus", lambda: [*range(n_cpus)])
    monkeypatch.setattr(processes, "cpu_quota", lambda: quota)
    monkeypatch.setattr(processes, "job_cpus", lambda: job)
    for name, value in ((worker_main.CORES, told), ("OMP_NUM_THREADS", openmp)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert (available_cores(), processes.available_threads()) == (n_cores, n_threads)
    assert processes.has_own_cores() == (n_cores == n_cpus)
    with processes.cores_limited_to(1):
        assert available_cores() == 1
    assert available_cores() == n_cores


@pytest.mark.parametrize("given", ["none", "0", "1.5", "-2"])
def test_a_number_of_cores_that_is_none_is_refused(monkeypatch, given):
    """Ignored, it would let a run take all cores of a node that it shares."""
    monkeypatch.setenv(worker_main.CORES, given)
    with pytest.raises(ValueError, match=f"RLPYT_CORES is '{given}'; expected a whole number from 1"):
        available_cores()


def test_an_unknown_start_method_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"start_method is 'threads'; expected one of .*forkserver.*spawn.*fork"):
        Worker(0, Server, (), "threads")


def test_cores_that_this_process_may_not_use_are_named(monkeypatch):
    monkeypatch.setattr(processes, "available_cpus", lambda: [4, 7])
    with pytest.warns(UserWarning, match=r"^workers: this process may not run on the cores \[5\] of .* \[7\] are used"):
        assert processes.allowed_cpus([5, 7], "workers") == [7]
    with pytest.warns(UserWarning, match=r"may not run on the cores \[5\]"):
        assert processes.allowed_cpus(5, "workers") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert processes.allowed_cpus([7, 4], "workers") == [7, 4]


def named_memory(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}/map_files")
    return [str(file) for file in folder.iterdir() if os.readlink(file).startswith("/dev/shm")]


MASTER = """
    import sys, threading, time
    from rlpyt.utils.processes import Worker, receive_all
    from tests.utils.worker_servers import Server

    if __name__ == "__main__":
        methods = ["forkserver", "fork", "forkserver", "fork", "fork", "fork"]
        made = [Worker(i, Server, (), method) for i, method in enumerate(methods[:4])]
        # The kernel takes no notice when these lose their parent.
        thread = threading.Thread(target=lambda: made.extend(Worker(i, Server, (), methods[i]) for i in (4, 5)))
        thread.start()
        thread.join()
        for worker in made:
            worker.send(("echo", 1))
        receive_all(made, 60)
        for worker in made[:2]:  # the others are idle
            worker.send(("sleep_in_c", 3600))
        print(*[worker.pid for worker in made], flush=True)
        time.sleep(3600)
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """Folder for temporary files whose path leaves room for a socket, of at most 107 characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def start_script(folder: Path, text: str) -> subprocess.Popen[str]:
    """Start a script as a master of workers, whose temporary files are in a folder."""
    script = folder / "master.py"
    script.write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, str(script)], stdin=pipe, stdout=pipe, text=True, env=environment)


def test_workers_die_with_a_master_that_is_killed(short):
    master = start_script(short, MASTER)
    try:
        assert master.stdout is not None
        pids = [int(pid) for pid in master.stdout.readline().split()]
        assert len(pids) == 6
        assert list(short.glob("pymp-*"))  # of the forkserver
        descendants = {child.pid for child in psutil.Process(master.pid).children(recursive=True)}
        assert set(pids) <= descendants
        assert not any(named_memory(pid) for pid in descendants)  # which nobody would be left to unlink
    finally:
        master.kill()
        master.wait()
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in descendants) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [psutil.Process(pid).cmdline()[:6] for pid in descendants if is_alive(pid)]
    assert not left, left
    assert not list(short.glob("pymp-*"))


ENDS = """
    from rlpyt.utils.processes import Worker, receive_all, stop_workers
    from tests.utils.worker_servers import Server

    if __name__ == "__main__":
        made = [Worker(0, Server, (), "forkserver")]
        made[0].send(("echo", 1))
        print(receive_all(made, 60))
        stop_workers(made)
"""


@pytest.mark.nightly
def test_a_path_of_temporary_files_may_be_too_long_for_a_socket(tmp_path):
    long = tmp_path / ("a" * 60) / ("b" * 60)
    long.mkdir(parents=True)
    master = start_script(long, ENDS)
    out, _ = master.communicate(timeout=100)
    assert (out, master.returncode) == ("[1]\n", 0)
    assert [path.name for path in long.iterdir()] == ["master.py"]


def test_no_short_folder_of_temporary_files_is_named_with_its_variable(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/" + "a" * 130)
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(OSError, match=r"of 131 letters; expected at most 74, .* Set TMPDIR"), short_temporaries():
        pass


def _forget_a_worker() -> None:
    """Begin a worker that may have workers, and end without stopping it."""
    _FORGOTTEN.append(Worker(0, Server, (), "fork"))
    _FORGOTTEN[0].send(("echo", 1))
    assert receive_all(_FORGOTTEN, 10) == [1]


_FORGOTTEN: list[Worker] = []


def test_a_program_ends_that_has_forgotten_a_worker_with_workers():
    """Python waits for such a process at the end, as it is no daemon, and it waits for requests."""
    program = multiprocessing.get_context("fork").Process(target=_forget_a_worker)
    program.start()
    program.join(10)
    ended = program.exitcode
    program.kill()
    assert ended == 0
