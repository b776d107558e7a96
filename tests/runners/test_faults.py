"""Whatever breaks in a run, it ends soon, says what it was, and leaves no process behind."""

from __future__ import annotations

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

from rlpyt.envs import EnvError
from rlpyt.logging import load_snapshot
from rlpyt.runners import Hook, MinibatchRlEval
from rlpyt.utils.processes import WorkerError
from tests.runners.fault_kit import BAD_RANK, BAD_SEED, DEATHS, EVAL_MESSAGES, EVAL_SEED, MESSAGES, fail, faulty
from tests.runners.runner_kit import (
    is_alive,
    make_algo,
    make_sampler,
    named_memory,
    nightly,
    rows_of,
    run,
    status_of,
    wait_for,
)
from tests.toy_envs import CountingEnv

ROOT = Path(__file__).parents[2]
WHERE = rf"Worker 1 \(pid \d+\), last seen at environment {BAD_RANK}, step (?P<step>\d+), "
PARALLEL = ("cpu2", "gpu2", "alternating2", "no_overlap2")
EVERY_FAULT = ("cpu2", "gpu2")
"""Samplers that go through every fault; `PARALLEL` go through one of each sort."""

pytestmark = pytest.mark.usefixtures("nothing_is_left", "no_memory_is_left", "workers_end_soon")


def pairs(faults: Iterable[str], of_all: str) -> list[Any]:
    """Return (kind, fault): every fault through two samplers, the second of them nightly, and one through all."""
    chosen = [(k, f) for k in PARALLEL for f in faults if k in EVERY_FAULT or f == of_all]
    return [(k, f) if k == PARALLEL[0] or f == of_all else nightly(k, f) for k, f in chosen]


@pytest.mark.parametrize(("kind", "fault"), [("serial", fault) for fault in MESSAGES] + pairs(MESSAGES, "raise"))
def test_an_environment_that_breaks_is_named(kind, fault, tmp_path):
    at = 4 if fault == "reset" else 12
    message = fail(tmp_path, EnvError if kind == "serial" else WorkerError, faulty(tmp_path, kind, fault, at))
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


@pytest.mark.parametrize(("kind", "fault"), pairs(DEATHS, "kill") + [nightly("alternating2", "hang")])
def test_a_worker_that_dies_or_hangs_is_named(kind, fault, tmp_path):
    text = fail(tmp_path, WorkerError, faulty(tmp_path, kind, fault, worker_timeout=1))
    assert re.match(WHERE + DEATHS[fault], text), text


@pytest.mark.parametrize("kind", PARALLEL)
def test_the_step_that_is_named_is_the_one_that_failed(kind, tmp_path):
    """The worker has taken as many rows as the environment steps and resets since the start of the run."""
    text = fail(tmp_path, WorkerError, faulty(tmp_path, kind, "kill"))
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
    fail(tmp_path, WorkerError, faulty(tmp_path, kind, "raise"))
    assert len(rows_of(tmp_path)) == 1
    assert load_snapshot(tmp_path / "run_0" / "params.pkl")["itr"] == 1


@pytest.mark.parametrize(("kind", "fault"), pairs(EVAL_MESSAGES, "exit") + [nightly("no_overlap2", "hang")])
def test_a_fault_in_evaluation_is_named_too(kind, fault, tmp_path):
    sampler = faulty(tmp_path, kind, fault, 3, evaluation=True, worker_timeout=1)
    text = fail(tmp_path, WorkerError, sampler, Runner=MinibatchRlEval)
    where = r"Worker 1 \(pid \d+\), last seen at environment 1, step \d+, "
    assert re.match(where + EVAL_MESSAGES[fault], text, re.DOTALL), text


def test_a_fault_in_evaluation_is_named_without_workers(tmp_path):
    text = fail(tmp_path, EnvError, faulty(tmp_path, "serial", "raise", 3, evaluation=True), Runner=MinibatchRlEval)
    assert re.match(rf"FaultyEnv \(rank 1, seed {EVAL_SEED}\).*ZeroDivisionError", text), text


@pytest.mark.parametrize("kind", ["cpu2", "gpu2", "alternating2"])
def test_a_fault_in_a_reset_in_the_background_is_named(kind, tmp_path):
    text = fail(tmp_path, WorkerError, faulty(tmp_path, kind, "reset", 3, mid_batch_reset=False))
    assert re.match(WHERE + "raised EnvError: " + MESSAGES["reset"], text), text


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
    runner: str = "MinibatchRl"


def name_of(stop: Stop) -> str:
    return f"{stop.runner}-{stop.kind}-{stop.signum.name}-{stop.fault}-{stop.start_method}"


STOPS = [
    Stop("cpu2", signal.SIGINT, True, "none", "interrupted"),  # Ctrl-C in a terminal reaches all
    Stop("alternating2", signal.SIGINT, True, "hang", "interrupted"),
    Stop("no_overlap2", signal.SIGTERM, True, "none", "interrupted"),
    Stop("cpu2", signal.SIGUSR1, True, "none", "interrupted"),  # as SLURM sends it
    Stop("cpu2", signal.SIGKILL, False, "hang", "running"),  # nobody is left to write another word
    Stop("cpu2", signal.SIGKILL, False, "none", "running", runner="AsyncRl"),
    Stop("cpu2", signal.SIGINT, True, "none", "interrupted", runner="SyncRl"),
    Stop("cpu2", signal.SIGKILL, False, "none", "running", runner="SyncRl"),
]
MORE_STOPS = [
    Stop("gpu2", signal.SIGTERM, False, "hang", "interrupted", "forkserver"),
    Stop("serial", signal.SIGTERM, False, "hang", "interrupted", runner="AsyncRl"),
    Stop("gpu2", signal.SIGTERM, False, "none", "interrupted", runner="SyncRl"),
    Stop("gpu2", signal.SIGUSR1, True, "hang", "interrupted", "forkserver"),
    Stop("gpu2", signal.SIGKILL, False, "hang", "running", "forkserver"),
    Stop("cpu2", signal.SIGINT, True, "hang", "interrupted", runner="AsyncRl"),
    Stop("gpu2", signal.SIGUSR1, False, "none", "interrupted", runner="SyncRl"),
    Stop("serial", signal.SIGKILL, False, "none", "running", runner="free"),
]
N_PROCESSES = {"MinibatchRl": 3, "AsyncRl": 3, "free": 4, "SyncRl": 6}
"""At least: two workers; the sampler's process and the forkserver; a copier; two replicas of three."""

MASTERS = """
    import json, os, signal, sys, traceback
    from pathlib import Path

    def master(directory, kind, fault, start_method, runner):
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a script ignore it
        sys.stderr = open(directory + "/stderr", "w", buffering=1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(sys.stderr.fileno(), 2)
        env_kwargs = dict(fault=fault, at=60) if fault == "hang" else dict(fault="none")
        sampler = make_sampler(kind, FaultyEnv, env_kwargs=env_kwargs, start_method=start_method)
        processes._STOP_SECONDS = 0.5
        replica_group._START_METHOD = "fork"
        options = {"SyncRl": dict(n_replicas=2, replica_timeout=60), "free": dict(lag="free")}.get(runner, {})
        algo, Runner = ("dqn", runners.AsyncRl) if runner == "free" else ("ppo", getattr(runners, runner))
        try:
            run(Path(directory), algo, sampler, Runner, n_steps=1e9, **options)
        except SystemExit as end:
            return end.code
        except BaseException:
            traceback.print_exc()
            return 1

    if __name__ == "__main__":  # workers import this file too, and need nothing of it
        import torch._dynamo
        from rlpyt import runners
        from rlpyt.runners import replica_group
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
    arguments = [str(tmp_path), stop.kind, stop.fault, stop.start_method, stop.runner]
    masters.stdin.write(json.dumps(arguments) + "\n")
    masters.stdin.flush()
    master = psutil.Process(int(masters.stdout.readline()))
    try:
        wait_for(lambda: (tmp_path / "run_0" / "progress.csv").exists(), 60, tmp_path / "stderr")
        if stop.fault == "hang":
            time.sleep(0.3)
        family = [master, *master.children(recursive=True)]
        assert len(family) >= N_PROCESSES[stop.runner] + (stop.start_method == "forkserver")
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
    status, stderr = status_of(tmp_path), (tmp_path / "stderr").read_text()
    assert status["status"] == stop.ending, stderr
    if stop.signum in (signal.SIGTERM, signal.SIGUSR1):
        assert exit_code == 128 + stop.signum
        assert status["exception"]["type"] == "SystemExit"
    if stop.signum == signal.SIGINT:
        assert status["exception"]["type"] == "KeyboardInterrupt"
        assert stderr.count("Traceback (most recent call last)") <= 1, stderr
    if stop.signum != signal.SIGKILL:
        assert load_snapshot(tmp_path / "run_0" / "params.pkl")["itr"] >= (stop.runner != "SyncRl")


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
