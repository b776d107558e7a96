"""Whatever breaks in a run, it ends soon, says what it was, and leaves no process behind."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch

from rlpyt.envs import EnvError
from rlpyt.logging import load_snapshot
from rlpyt.runners import Hook, MinibatchRl, MinibatchRlEval
from rlpyt.utils import processes
from rlpyt.utils.processes import WorkerError
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners.runner_kit import (
    children,
    is_alive,
    make_algo,
    make_sampler,
    nightly,
    rows_of,
    run,
    start_forkserver,
    status_of,
)
from tests.toy_envs import CountingEnv, FaultyEnv
from tests.vector_toy_envs import FaultyVectorEnv

ROOT = Path(__file__).parents[2]
SEED, BAD_RANK = 3, 2  # the first environment of the second of two workers
BAD_SEED, EVAL_SEED = stream_seed(SEED, Role.ENV, BAD_RANK), stream_seed(SEED, Role.EVAL_ENV, 1)

WHERE = rf"Worker 1 \(pid \d+\), last seen at environment {BAD_RANK}, step (?P<step>\d+), "
ENV = rf"FaultyEnv \(rank {BAD_RANK}, seed {BAD_SEED}\), its step \d+: "
MESSAGES = {
    "raise": ENV + r"step with action .*: ZeroDivisionError: the toy broke in step",
    "reset": ENV + r"reset: ZeroDivisionError: the toy broke in reset",
    "nan": ENV + r"step with action .*reward: expected a finite number, got nan",
    "shape": ENV + r"step with action .*observation: expected shape \(3,\), got \(2,\)",
    "constructor": r"Making environment [02]: FaultyEnv\(fault='constructor'.*OSError: no licence for the simulator",
}


PARALLEL = ("cpu2", "gpu2", "alternating2", "no_overlap2")
EVERY_FAULT = ("cpu2", "gpu2")
"""Samplers that go through every fault; `PARALLEL` go through one of each sort."""


@pytest.fixture(scope="module", autouse=True)
def _forkserver_is_running():
    start_forkserver()


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch):
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.5)
    processes_before, blocks_before = children(), anonymous_memory()
    named_before = set(named_memory(os.getpid()))  # of vector environments of gymnasium, in tests of other files
    yield
    assert children() <= processes_before
    assert set(named_memory(os.getpid())) <= named_before
    gc.collect()  # a traceback holds the frames, and they hold the rows
    assert anonymous_memory() <= blocks_before


def anonymous_memory() -> int:
    """Return how many blocks of shared memory this process holds."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("/memfd:rlpyt") for link in links if os.path.islink(link))


def fail(
    directory: Path,
    kind: str,
    fault: str,
    error: type[Exception],
    at: int = 12,
    evaluation: bool = False,
    **kwargs: Any,
) -> str:
    """Run until the fault happens, and 10 s longer at most; return the message."""
    note = directory / "when_it_happened"
    faulty = {"fault": fault, "at": at, "bad_seed": EVAL_SEED if evaluation else BAD_SEED, "note": str(note)}
    Runner: Any = MinibatchRl
    if evaluation:
        Runner = MinibatchRlEval
        kwargs.update(eval_env_kwargs=faulty, eval_n_envs=2, eval_max_trajectories=20)
    env_kwargs = {"fault": "none"} if evaluation else faulty
    with pytest.raises(error) as info:
        run(
            directory,
            "ppo",
            make_sampler(kind, FaultyEnv, env_kwargs=env_kwargs, **kwargs),
            Runner,
            n_steps=1e4,
            seed=SEED,
        )
    assert time.monotonic() - float(note.read_text().split()[0]) < 10
    status = status_of(directory)
    assert status["status"] == "failed"
    assert status["exception"]["type"] == error.__name__
    assert status["exception"]["message"] == str(info.value)
    return str(info.value)


def pairs(faults: Iterable[str], of_all: str) -> list[Any]:
    """Return (kind, fault): every fault through two samplers, and one through all.

    A worker that hangs is waited for, and every one but the first is nightly.
    """
    chosen = [(k, f) for k in PARALLEL for f in faults if k in EVERY_FAULT or f == of_all]
    return [nightly(k, f) if f == "hang" and k != PARALLEL[0] else (k, f) for k, f in chosen]


@pytest.mark.parametrize(("kind", "fault"), [("serial", fault) for fault in MESSAGES] + pairs(MESSAGES, "raise"))
def test_an_environment_that_breaks_is_named(kind, fault, tmp_path):
    at = 4 if fault == "reset" else 12
    message = fail(tmp_path, kind, fault, EnvError if kind == "serial" else WorkerError, at)
    assert re.search(MESSAGES[fault], message, re.DOTALL), message
    if kind == "serial":
        # The environment's own error is the cause, with its own traceback.
        traceback = status_of(tmp_path)["exception"]["traceback"]
        assert "toy_envs.py" in traceback or fault in ("nan", "shape")
        return
    where = r"Worker [01] \(pid \d+\)" if fault == "constructor" else WHERE
    assert re.match(where, message), message
    assert "Its traceback:" in message
    assert {"raise": "in go_wrong", "reset": "in reset", "constructor": "in __init__"}.get(fault, "") in message


DEATHS = {
    "kill": r"was killed by SIGKILL \(out of memory",
    "exit": "exited with code 3",
    "hang": "has made no progress for 1 s.*worker_timeout",
}


@pytest.mark.parametrize(("kind", "fault"), pairs(DEATHS, "kill") + [nightly("alternating2", "hang")])
def test_a_worker_that_dies_or_hangs_is_named(kind, fault, tmp_path):
    text = fail(tmp_path, kind, fault, WorkerError, worker_timeout=1)
    assert re.match(WHERE + DEATHS[fault], text), text


@pytest.mark.parametrize("kind", PARALLEL)
def test_the_step_that_is_named_is_the_one_that_failed(kind, tmp_path):
    """The worker has taken as many rows as the environment steps and resets since the start of the run."""
    text = fail(tmp_path, kind, "kill", WorkerError, at=12)
    found = re.match(WHERE, text)
    assert found is not None, text
    env = CountingEnv()
    env.reset(seed=BAD_SEED)
    n_rows = 0
    for _ in range(12):
        if env.needs_reset:
            env.reset()
            n_rows += 1
        env.step(0)
        n_rows += 1
    assert int(found["step"]) == n_rows


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_what_was_learned_before_the_fault_is_kept(kind, tmp_path):
    fail(tmp_path, kind, "raise", WorkerError)
    assert len(rows_of(tmp_path)) == 1
    snapshot = load_snapshot(tmp_path / "run_0" / "params.pkl")
    assert snapshot["itr"] == 1
    assert all(torch.isfinite(x).all() for x in snapshot["agent_state_dict"]["model"].values())


EVAL_MESSAGES = {
    **DEATHS,
    "raise": rf"raised EnvError: FaultyEnv \(rank 1, seed {EVAL_SEED}\).*ZeroDivisionError: the toy broke in step",
    "reset": rf"raised EnvError: FaultyEnv \(rank 1, seed {EVAL_SEED}\).*ZeroDivisionError: the toy broke in reset",
    "nan": rf"raised EnvError: FaultyEnv \(rank 1, seed {EVAL_SEED}\).*expected a finite number, got nan",
}


@pytest.mark.parametrize(("kind", "fault"), pairs(EVAL_MESSAGES, "exit") + [nightly("no_overlap2", "hang")])
def test_a_fault_in_evaluation_is_named_too(kind, fault, tmp_path):
    text = fail(tmp_path, kind, fault, WorkerError, at=3, evaluation=True, worker_timeout=1)
    where = r"Worker 1 \(pid \d+\), last seen at environment 1, step \d+, "
    assert re.match(where + EVAL_MESSAGES[fault], text, re.DOTALL), text


def test_a_fault_in_evaluation_is_named_without_workers(tmp_path):
    text = fail(tmp_path, "serial", "raise", EnvError, at=3, evaluation=True)
    assert re.match(rf"FaultyEnv \(rank 1, seed {EVAL_SEED}\).*ZeroDivisionError", text), text


@pytest.mark.parametrize("kind", ["cpu2", "gpu2", "alternating2"])
def test_a_fault_in_a_reset_in_the_background_is_named(kind, tmp_path):
    text = fail(tmp_path, kind, "reset", WorkerError, at=3, mid_batch_reset=False)
    assert re.match(WHERE + "raised EnvError: " + MESSAGES["reset"], text), text


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_a_vector_environment_that_breaks_is_named(kind, tmp_path):
    env_kwargs = {"fault": "raise", "at": 12, "bad_seed": BAD_SEED}
    with pytest.raises(WorkerError) as info:
        run(tmp_path, "ppo", make_sampler(kind, FaultyVectorEnv, env_kwargs=env_kwargs), n_steps=1e4, seed=SEED)
    assert re.match(WHERE + r"raised EnvError: FaultyVectorEnv \(.*ZeroDivisionError: the toy", str(info.value)), (
        info.value
    )


@pytest.mark.parametrize("kind", PARALLEL)
def test_settings_that_do_not_fit_stop_the_workers_that_were_started(kind, tmp_path):
    with pytest.raises(ValueError, match="minibatches is 7, which does not divide"):
        run(tmp_path, make_algo("ppo", minibatches=7), make_sampler(kind))
    assert status_of(tmp_path)["status"] == "failed"
    assert not (tmp_path / "run_0" / "progress.csv").exists()


# ---- from outside ----


class Stop(NamedTuple):
    """How a run is stopped from outside, and how it ends."""

    kind: str
    signum: signal.Signals
    to_group: bool
    fault: str
    ending: str
    start_method: str = "fork"


def name_of(stop: Stop) -> str:
    return f"{stop.kind}-{stop.signum.name}-{stop.fault}-{stop.start_method}"


STOPS = [
    Stop("cpu2", signal.SIGINT, True, "none", "interrupted"),  # Ctrl-C in a terminal reaches all
    Stop("alternating2", signal.SIGINT, True, "hang", "interrupted"),
    Stop("gpu2", signal.SIGTERM, False, "hang", "interrupted", "forkserver"),
    Stop("no_overlap2", signal.SIGTERM, True, "none", "interrupted"),
    Stop("cpu2", signal.SIGUSR1, True, "none", "interrupted"),  # as SLURM sends it
    Stop("cpu2", signal.SIGKILL, False, "hang", "running"),  # nobody is left to write another word
]
MORE_STOPS = [
    Stop("cpu2", signal.SIGINT, True, "none", "interrupted", "forkserver"),
    Stop("gpu2", signal.SIGINT, True, "hang", "interrupted"),
    Stop("cpu2", signal.SIGTERM, False, "hang", "interrupted"),
    Stop("alternating2", signal.SIGTERM, False, "hang", "interrupted"),
    Stop("gpu2", signal.SIGUSR1, True, "hang", "interrupted", "forkserver"),
    Stop("gpu2", signal.SIGKILL, False, "hang", "running", "forkserver"),
    Stop("alternating2", signal.SIGKILL, False, "none", "running"),
]

MASTERS = """
    import json, os, signal, sys, traceback
    from pathlib import Path

    def master(directory, kind, fault, start_method, runner="MinibatchRl"):
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a script ignore it
        sys.stderr = open(directory + "/stderr", "w", buffering=1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(sys.stderr.fileno(), 2)
        env_kwargs = dict(fault=fault, at=60) if fault == "hang" else dict(fault="none")
        sampler = make_sampler(kind, FaultyEnv, env_kwargs=env_kwargs, start_method=start_method)
        processes._STOP_SECONDS = 0.5
        try:
            run(Path(directory), "ppo", sampler, getattr(runners, runner), n_steps=1e9)
        except SystemExit as end:
            return end.code
        except BaseException:
            traceback.print_exc()
            return 1

    if __name__ == "__main__":  # workers import this file too, and need nothing of it
        import torch._dynamo
        from rlpyt import runners
        from rlpyt.utils import processes
        from tests.runners.runner_kit import make_sampler, run
        from tests.toy_envs import FaultyEnv

        while line := sys.stdin.readline():
            pid = os.fork()
            if pid == 0:
                os._exit(master(*json.loads(line)))
            print(pid, flush=True)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    """A process that makes masters of runs, so that torch is imported once and not in each of them.

    So is torch._dynamo, at 3 s of a core, which torch imports when the first optimiser is made.
    """
    script = tmp_path_factory.mktemp("masters") / "masters.py"
    script.write_text(textwrap.dedent(MASTERS))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    "stop",
    [pytest.param(s, id=name_of(s)) for s in STOPS] + [nightly(s, id=name_of(s)) for s in MORE_STOPS],
)
def test_a_run_that_is_stopped_leaves_nothing_behind(stop, masters, tmp_path):
    masters.stdin.write(json.dumps([str(tmp_path), stop.kind, stop.fault, stop.start_method]) + "\n")
    masters.stdin.flush()
    master = psutil.Process(int(masters.stdout.readline()))
    try:
        wait_for(lambda: (tmp_path / "run_0" / "progress.csv").exists(), 60, "the run did not start")
        if stop.fault == "hang":
            time.sleep(0.3)
        family = [master, *master.children(recursive=True)]
        assert len(family) >= 3 + (stop.start_method == "forkserver")
        for process in family:
            assert not named_memory(process.pid)
        start = time.monotonic()
        os.killpg(master.pid, stop.signum) if stop.to_group else os.kill(master.pid, stop.signum)
        wait_for(lambda: not any(is_alive(p) for p in family), 15, "processes are left")
        assert time.monotonic() - start < 10
    finally:
        with suppress(ProcessLookupError):
            os.killpg(master.pid, signal.SIGKILL)
        exit_code = int(masters.stdout.readline())
    check_end(stop, tmp_path, exit_code)


def check_end(stop: Stop, directory: Path, exit_code: int) -> None:
    status, stderr = status_of(directory), (directory / "stderr").read_text()
    assert status["status"] == stop.ending, stderr
    if stop.signum in (signal.SIGTERM, signal.SIGUSR1):
        assert exit_code == 128 + stop.signum
        assert status["exception"]["type"] == "SystemExit"
    if stop.signum == signal.SIGINT:
        assert status["exception"]["type"] == "KeyboardInterrupt"
        assert stderr.count("Traceback (most recent call last)") <= 1, stderr
    if stop.signum != signal.SIGKILL:
        assert load_snapshot(directory / "run_0" / "params.pkl")["itr"] >= 1


def named_memory(pid: int) -> list[str]:
    """Return the named shared memory that a process has mapped: a kill would leave it behind."""
    names = []
    for file in os.listdir(f"/proc/{pid}/map_files"):
        with suppress(OSError):
            names.append(os.readlink(f"/proc/{pid}/map_files/{file}"))
    return [name for name in names if name.startswith("/dev/shm")]


def wait_for(condition: Any, seconds: float, complaint: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.02)


class ExitingHook(Hook):
    """Calls `exit()` at the second row of the log."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def on_row(self, runner: Any, row: Any, step: int) -> None:
        if step > 40:
            sys.exit()

    def on_end(self, runner: Any, status: str) -> None:
        self.ended.append(status)


@pytest.mark.parametrize("code", [None, 0])
@pytest.mark.parametrize("where", ["hook", "agent", "algorithm"])
def test_an_exit_of_code_0_in_the_middle_of_a_run_is_no_end_of_it(where, code, tmp_path, monkeypatch):
    hook, (algo, agent) = ExitingHook(), make_algo("ppo")

    def leave(*args: Any, **kwargs: Any) -> Any:
        raise SystemExit(code)

    if where == "agent":
        monkeypatch.setattr(agent, "train_mode", leave)
    if where == "algorithm":
        monkeypatch.setattr(algo, "optimize_agent", leave)
    with pytest.raises(
        RuntimeError, match=r"The run is not complete, and .*test_faults\.py:\d+ in .* has called exit\("
    ):
        run(tmp_path, (algo, agent), hooks=[hook])
    assert status_of(tmp_path)["status"] == "failed"
    assert hook.ended == ["failed"]
