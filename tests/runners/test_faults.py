"""Whatever breaks in a run, it ends soon, says what it was, and leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from rlpyt.envs import EnvError
from rlpyt.logging import load_snapshot
from rlpyt.runners import MinibatchRlEval
from rlpyt.utils import processes
from rlpyt.utils.processes import WorkerError
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners.runner_kit import make_algo, make_sampler, rows_of, run, status_of
from tests.toy_envs import FaultyEnv

ROOT = Path(__file__).parents[2]
SEED, BAD_RANK = 3, 2  # the first environment of the second of two workers
BAD_SEED = stream_seed(SEED, Role.ENV, BAD_RANK)

ENV = rf"FaultyEnv \(rank {BAD_RANK}, seed {BAD_SEED}\), its step \d+: "
MESSAGES = {
    "raise": ENV + r"step with action .*: ZeroDivisionError: the toy broke in step",
    "reset": ENV + r"reset: ZeroDivisionError: the toy broke in reset",
    "nan": ENV + r"step with action .*reward: expected a finite number, got nan",
    "shape": ENV + r"step with action .*observation: expected shape \(3,\), got \(2,\)",
    "constructor": r"Making environment [02]: FaultyEnv\(fault='constructor'.*OSError: no licence for the simulator",
}


@pytest.fixture(scope="module", autouse=True)
def _forkserver_is_running():
    """Its first start is slow, and it is a child of this process from then on."""
    run_once = processes.Worker(0, _Nothing, (), "forkserver")
    processes.stop_workers([run_once])


class _Nothing:
    def __init__(self, *args: Any) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def no_process_is_left():
    def children() -> set[int]:
        return {c.pid for c in psutil.Process().children(recursive=True) if c.status() != psutil.STATUS_ZOMBIE}

    before = children()
    yield
    assert children() <= before


def fail(directory: Path, kind: str, fault: str, error: type[Exception], **kwargs: Any) -> str:
    """Run until the fault happens; return the message."""
    env_kwargs = {"fault": fault, "at": 12 if fault != "reset" else 4, "bad_seed": BAD_SEED}
    start = time.monotonic()
    with pytest.raises(error) as info:
        run(directory, "ppo", make_sampler(kind, FaultyEnv, env_kwargs=env_kwargs, **kwargs), n_steps=1e4, seed=SEED)
    assert time.monotonic() - start < 10
    status = status_of(directory)
    assert status["status"] == "failed"
    assert status["exception"]["type"] == error.__name__
    assert status["exception"]["message"] == str(info.value)
    return str(info.value)


@pytest.mark.parametrize("fault", MESSAGES)
@pytest.mark.parametrize("kind", ["serial", "cpu2"])
def test_an_environment_that_breaks_is_named(fault, kind, tmp_path, no_process_is_left):
    message = fail(tmp_path, kind, fault, EnvError if kind == "serial" else WorkerError)
    assert re.search(MESSAGES[fault], message, re.DOTALL), message
    if kind == "cpu2":
        where = (
            r"Worker (0 .* at environment 0|1 .* at environment 2)," if fault == "constructor" else r"Worker 1 \(pid"
        )
        assert re.match(where, message), message
        assert "Its traceback:" in message
        assert {"raise": "in go_wrong", "reset": "in reset", "constructor": "in __init__"}.get(fault, "") in message
    else:
        # The environment's own error is the cause, with its own traceback.
        traceback = status_of(tmp_path)["exception"]["traceback"]
        assert "toy_envs.py" in traceback or fault in ("nan", "shape")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("kill", r"was killed by SIGKILL \(out of memory"),
        ("exit", "exited with code 3"),
        ("hang", "has made no progress for 2 s.*worker_timeout"),
    ],
)
def test_a_worker_that_dies_or_hangs_is_named(fault, message, tmp_path, no_process_is_left, monkeypatch):
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.5)
    text = fail(tmp_path, "cpu2", fault, WorkerError, worker_timeout=2)
    where = rf"Worker 1 \(pid \d+\), last seen at environment {BAD_RANK}, step \d+, "
    assert re.match(where + message, text), text


def test_what_was_learned_before_the_fault_is_kept(tmp_path, no_process_is_left):
    fail(tmp_path, "cpu2", "raise", WorkerError)
    assert len(rows_of(tmp_path)) == 1
    snapshot = load_snapshot(tmp_path / "run_0" / "params.pkl")
    assert snapshot["itr"] == 1
    assert all(torch.isfinite(x).all() for x in snapshot["agent_state_dict"]["model"].values())


@pytest.mark.parametrize("kind", ["serial", "cpu2"])
def test_a_fault_in_evaluation_is_named_too(kind, tmp_path, no_process_is_left):
    seed = stream_seed(SEED, Role.EVAL_ENV, 1)
    sampler = make_sampler(
        kind,
        FaultyEnv,
        env_kwargs={"fault": "raise", "bad_seed": -1},
        eval_env_kwargs={"fault": "raise", "at": 3, "bad_seed": seed},
        eval_n_envs=2,
        eval_max_trajectories=20,
    )
    with pytest.raises((EnvError, WorkerError), match=rf"FaultyEnv \(rank 1, seed {seed}\).*ZeroDivisionError"):
        run(tmp_path, "ppo", sampler, MinibatchRlEval)
    assert status_of(tmp_path)["status"] == "failed"


def test_settings_that_do_not_fit_stop_the_workers_that_were_started(tmp_path, no_process_is_left):
    with pytest.raises(ValueError, match="minibatches is 7, which does not divide"):
        run(tmp_path, make_algo("ppo", minibatches=7), make_sampler("cpu2"))
    assert status_of(tmp_path)["status"] == "failed"
    assert not (tmp_path / "run_0" / "progress.csv").exists()


# ---- from outside ----

SCRIPT = """
    import sys
    from pathlib import Path
    from tests.runners.runner_kit import make_sampler, run
    from tests.toy_envs import FaultyEnv

    if __name__ == "__main__":
        fault = sys.argv[2]
        env_kwargs = dict(fault=fault, at=40) if fault == "hang" else dict(fault="none")
        run(Path(sys.argv[1]), "ppo", make_sampler("cpu2", FaultyEnv, env_kwargs=env_kwargs), n_steps=1e9)
"""


@pytest.mark.parametrize(
    ("signum", "to_group", "fault", "ending"),
    [
        (signal.SIGINT, True, "none", "interrupted"),  # Ctrl-C in a terminal reaches every process
        (signal.SIGTERM, False, "hang", "interrupted"),
        (signal.SIGTERM, True, "none", "interrupted"),
        (signal.SIGKILL, False, "hang", "running"),  # nobody is left to write another word
    ],
)
def test_a_run_that_is_stopped_leaves_nothing_behind(signum, to_group, fault, ending, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), fault],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as master:
        try:
            wait_for(lambda: (tmp_path / "run_0" / "progress.csv").exists(), 60, "the run did not start")
            if fault == "hang":
                time.sleep(0.3)
            family = [psutil.Process(master.pid), *psutil.Process(master.pid).children(recursive=True)]
            assert len(family) >= 4  # the master, a forkserver, two workers
            for process in family:
                assert not [f for f in os.listdir(f"/proc/{process.pid}/map_files") if named_memory(process.pid, f)]
            start = time.monotonic()
            os.killpg(master.pid, signum) if to_group else os.kill(master.pid, signum)
            _, stderr = master.communicate(timeout=15)
            assert time.monotonic() - start < 10
        finally:
            os.killpg(master.pid, signal.SIGKILL) if master.poll() is None else None
    wait_for(lambda: not any(is_alive(p) for p in family), 10, "processes are left")
    status = status_of(tmp_path)
    assert status["status"] == ending, stderr
    if signum == signal.SIGTERM:
        assert master.returncode == 128 + signum
        assert status["exception"]["type"] == "SystemExit"
    if signum == signal.SIGINT:
        assert status["exception"]["type"] == "KeyboardInterrupt"
        assert stderr.count("Traceback (most recent call last)") <= 1, stderr
    if signum != signal.SIGKILL:
        assert load_snapshot(tmp_path / "run_0" / "params.pkl")["itr"] >= 1


def named_memory(pid: int, file: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/map_files/{file}").startswith("/dev/shm")
    except OSError:
        return False


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_for(condition: Any, seconds: float, complaint: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.02)
