"""Whatever happens to one replica, the run ends soon, names it, and leaves no process, connection or memory behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from rlpyt.envs import EnvError
from rlpyt.logging import load_snapshot
from rlpyt.runners import SyncRl
from rlpyt.runners.agreement import ReplicaStopped
from rlpyt.runners.replica_group import ReplicaGroup
from rlpyt.runners.training import InTurn
from rlpyt.utils import processes
from rlpyt.utils.process_group import ReplicaError
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners.runner_kit import children, is_alive, make_sampler, nightly, run, start_forkserver, status_of
from tests.toy_envs import FaultyEnv

ROOT = Path(__file__).parents[2]
SEED = 3
WHERE = r"Replica 1 of 2 \(pid \d+ on .*\), at iteration \d+ \(step \d+\), "


@pytest.fixture(scope="module", autouse=True)
def _forkserver_is_running():
    start_forkserver()


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.5)
    before, handler = children(), signal.getsignal(signal.SIGIO)
    yield
    assert children() <= before
    assert not torch.distributed.is_initialized()
    assert signal.getsignal(signal.SIGIO) == handler


class Stopping(FaultyEnv):
    """Environment that stops its process, as SIGSTOP from outside does."""

    def go_wrong(self, observation: Any, reward: float) -> tuple[Any, float]:
        os.kill(os.getpid(), signal.SIGSTOP)
        return observation, reward


class Lost(SyncRl):
    """Runner whose replica 1 is killed inside of an update, while the other waits for its gradients."""

    def go_wrong(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def startup(self) -> int:
        n_itr = super().startup()
        if self.replicas.rank == 1:
            algo: Any = self.algo
            inner, calls = algo.loss, [0]

            def loss(*args: Any) -> Any:
                calls[0] += 1
                if calls[0] == 11:
                    self.go_wrong()
                return inner(*args)

            algo.loss = loss
        return n_itr


class Stopped(Lost):
    """The same with SIGSTOP."""

    def go_wrong(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class Raising(Lost):
    """The same with an exception."""

    def go_wrong(self) -> None:
        raise ZeroDivisionError("the loss broke")


def fail(tmp_path: Path, error: type[Exception], EnvCls: Any = FaultyEnv, fault: str = "none", **kwargs: Any) -> str:
    """Train until the fault in replica 1 ends the run; return the message."""
    note = tmp_path / "note"
    env_kwargs = dict(fault=fault, at=15, bad_seed=stream_seed(SEED, Role.ENV, kwargs.pop("rank", 6)), note=str(note))
    sampler = make_sampler(kwargs.pop("kind", "serial"), EnvCls, env_kwargs=env_kwargs)
    options: dict[str, Any] = dict(n_replicas=2, n_steps=1e5, seed=SEED, log_interval_steps=40, replica_timeout=30)
    with pytest.raises(error) as info:
        run(tmp_path, "ppo", sampler, **{"Runner": SyncRl, **options, **kwargs})
    if note.exists():
        assert time.monotonic() - float(note.read_text().split()[0]) < 10
    status = status_of(tmp_path)
    assert status["status"] == "failed"
    assert status["exception"]["message"] == str(info.value)
    assert load_snapshot(tmp_path / "run_0" / "params.pkl")["itr"] >= 0
    return str(info.value)


@pytest.mark.parametrize("kind", ["serial", nightly("cpu2")])
def test_an_exception_in_a_replica_is_raised_here_with_its_traceback(kind, tmp_path):
    message = fail(tmp_path, ReplicaStopped, fault="raise", kind=kind)
    assert re.match(r"Replica 1 of 2, at step \d+: .*ZeroDivisionError: the toy broke in step", message, re.DOTALL)
    assert "in go_wrong" in message


def test_an_exception_here_stays_what_it_is(tmp_path):
    assert "ZeroDivisionError: the toy broke in step" in fail(tmp_path, EnvError, fault="raise", rank=2)


def test_a_replica_that_is_killed_is_named(tmp_path):
    assert re.match(WHERE + "was killed", fail(tmp_path, ReplicaError, fault="kill"))


def test_a_replica_that_is_stopped_is_named_after_the_timeout(tmp_path):
    assert re.match(
        WHERE + "is stopped, as by SIGSTOP. replica_timeout is 2 s",
        fail(tmp_path, ReplicaError, Stopping, replica_timeout=2),
    )


@pytest.mark.parametrize("reduction", ["flat", "ddp"])
def test_a_replica_that_is_killed_while_another_waits_for_its_gradients_is_named(reduction, tmp_path):
    message = fail(tmp_path, ReplicaError, Runner=Lost, reduction=reduction)
    assert re.match(WHERE + "was killed", message), message


def test_an_exception_in_an_update_of_a_replica_is_raised_here_with_its_traceback(tmp_path):
    message = fail(tmp_path, ReplicaError, Runner=Raising)
    assert re.match(WHERE + "raised ZeroDivisionError: the loss broke", message), message
    assert "in go_wrong" in message


@pytest.mark.nightly
def test_a_replica_that_is_stopped_in_an_update_is_named(tmp_path):
    message = fail(tmp_path, ReplicaError, Runner=Stopped, reduction="ddp", replica_timeout=4)
    assert re.match(WHERE + "is stopped, as by SIGSTOP", message), message


class Slow(FaultyEnv):
    """Environment that hangs in replica 0, while replica 1 is killed."""

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self.n_steps == self.at + 1:
            if self.bad:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3600 if self.number % 2 == 0 else 0.5)
        return result


def test_a_death_interrupts_whatever_this_replica_does(tmp_path):
    """Also a call that would take an hour, and handles each exception."""
    assert re.match(WHERE + "was killed", fail(tmp_path, ReplicaError, Slow, replica_timeout=60))


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_replica_that_ends_before_the_others_have_met_it_is_named(in_thread, tmp_path):
    class Unreachable(ReplicaGroup):
        def join(self, *args: Any) -> None:
            raise OSError("no network")

    class Unstarted(SyncRl):
        def _make_parts(self) -> Any:
            return Unreachable("Unstarted", None, self), InTurn()

    def train() -> None:
        with pytest.raises(ReplicaError, match=r"(?s)Replica 1 ended at its start.*OSError: no network"):
            run(tmp_path, "ppo", Runner=Unstarted, n_replicas=2)
        ended.append(in_thread)

    ended: list[bool] = []
    thread = threading.Thread(target=train, daemon=True)  # which gets no signal of the end
    thread.start() if in_thread else train()
    if in_thread:
        thread.join(30)
    assert ended


# ---- from outside ----

MASTERS = """
    import os, signal, sys, traceback
    from pathlib import Path

    def master(directory, kind):
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        output = os.open(directory + "/output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        processes._STOP_SECONDS = 0.5
        replica_process._START_METHOD = "fork"
        sampler = make_sampler(kind, FaultyEnv, env_kwargs={"fault": "none"}, start_method="fork")
        try:
            run(Path(directory), "ppo", sampler, Runner=SyncRl, n_replicas=2, n_steps=1e9, replica_timeout=60)
        except SystemExit as end:
            return end.code
        except BaseException:
            traceback.print_exc()
            return 1

    if __name__ == "__main__":
        import torch._dynamo
        from rlpyt.runners import SyncRl, replica_process
        from rlpyt.utils import processes
        from tests.runners.runner_kit import make_sampler, run
        from tests.toy_envs import FaultyEnv

        while line := sys.stdin.readline():
            pid = os.fork()
            if pid == 0:
                os._exit(master(*line.split()))
            print(pid, flush=True)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def masters(tmp_path_factory) -> Iterator[Any]:
    """A process that makes masters of runs, so that torch is imported once."""
    script = tmp_path_factory.mktemp("masters") / "masters.py"
    script.write_text(textwrap.dedent(MASTERS))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("signum", "kind"),
    [(signal.SIGINT, "cpu2"), (signal.SIGTERM, "gpu2"), (signal.SIGUSR1, "gpu2"), (signal.SIGKILL, "cpu2")]
    + [nightly(signal.SIGINT, "gpu2"), nightly(signal.SIGTERM, "cpu2"), nightly(signal.SIGUSR1, "cpu2")]
    + [nightly(signal.SIGKILL, "gpu2")],
    ids=lambda x: x.name if isinstance(x, signal.Signals) else x,
)
def test_a_run_that_is_stopped_from_outside_leaves_nothing(signum, kind, masters, tmp_path):
    """Ctrl-C reaches all processes of the terminal, the other signals this one alone."""
    masters.stdin.write(f"{tmp_path} {kind}\n")
    masters.stdin.flush()
    master = psutil.Process(int(masters.stdout.readline()))
    output = tmp_path / "output"
    try:
        wait_for(lambda: (tmp_path / "run_0" / "params.pkl").exists(), 60, output)
        family = [master, *master.children(recursive=True)]
        assert len(family) == 2 + 2 * 2  # two replicas with two workers each
        start = time.monotonic()
        os.killpg(master.pid, signum) if signum == signal.SIGINT else os.kill(master.pid, signum)
        wait_for(lambda: not any(is_alive(process) for process in family), 15, output)
        assert time.monotonic() - start < 10
    finally:
        with suppress(ProcessLookupError):
            os.killpg(master.pid, signal.SIGKILL)
        code = int(masters.stdout.readline())
    assert status_of(tmp_path)["status"] == ("running" if signum == signal.SIGKILL else "interrupted")
    if signum in (signal.SIGTERM, signal.SIGUSR1):
        assert code == 128 + signum
    assert output.read_text().count("Traceback (most") <= 1
    load_snapshot(tmp_path / "run_0" / "params.pkl")


def wait_for(condition: Any, seconds: float, output: Path) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)
