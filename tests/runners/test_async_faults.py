"""Whatever breaks in a run with a sampler in the background, it ends soon, says what it was, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from rlpyt.algos import PPO
from rlpyt.logging import load_snapshot
from rlpyt.runners import AsyncRl, AsyncRlEval
from rlpyt.samplers import SerialSampler
from rlpyt.samplers.background import ProcessSettings
from rlpyt.utils.processes import WorkerError
from tests.runners.runner_kit import is_alive, make_algo, make_sampler, nightly, rows_of, run, status_of
from tests.runners.test_faults import (  # noqa: F401  # fixtures
    BAD_RANK,
    BAD_SEED,
    DEATHS,
    EVAL_SEED,
    MESSAGES,
    SEED,
    Stop,
    _forkserver_is_running,
    _nothing_is_left,
    check_end,
    masters,
    wait_for,
)
from tests.toy_envs import FaultyEnv

PROCESS = r"The sampler's process \(pid \d+\), at the batch of iteration (?P<itr>\d+) \(step (?P<step>\d+)\), "
SEEN = r"last seen at environment \d+, step \d+, "
WORKER = rf"Worker 1 \(pid \d+\), last seen at environment {BAD_RANK}, step \d+, "


def fail(directory: Path, kind: str, fault: str, at: int = 30, **kwargs: Any) -> str:
    """Run until the fault happens, and 10 s longer at most; return the message."""
    note = directory / "when_it_happened"
    env_kwargs = {"fault": fault, "at": at, "bad_seed": BAD_SEED, "note": str(note)}
    options: dict[str, Any] = {} if kind == "serial" else {"start_method": "fork", "worker_timeout": 1}
    with pytest.raises(WorkerError) as info:
        run(
            directory,
            "ppo",
            make_sampler(kind, FaultyEnv, env_kwargs=env_kwargs, **options),
            AsyncRl,
            n_steps=1e4,
            seed=SEED,
            **kwargs,
        )
    assert time.monotonic() - float(note.read_text().split()[0]) < 10
    return check(directory, info.value)


def check(directory: Path, error: BaseException) -> str:
    """Check what the run has left; return the message of its end."""
    status = status_of(directory)
    assert status["status"] == "failed"
    assert status["exception"]["message"] == str(error)
    itr = len(rows_of(directory)) * 2 - 1
    snapshot = load_snapshot(directory / "run_0" / "params.pkl")
    assert snapshot["itr"] == itr >= 1
    assert all(torch.isfinite(x).all() for x in snapshot["agent_state_dict"]["model"].values())
    return str(error)


@pytest.mark.parametrize(
    ("fault", "lag"),
    [("raise", 0), ("kill", 2), ("exit", 0), ("hang", 2)]
    + [nightly("raise", 2), nightly("kill", 0), nightly("exit", 2), nightly("hang", 0)],
)
def test_a_sampler_without_workers_that_breaks_is_named(fault, lag, tmp_path, monkeypatch):
    monkeypatch.setattr(SerialSampler, "process", ProcessSettings(stall_seconds=1.0))
    message = fail(tmp_path, "serial", fault, lag=lag)
    ending = {**DEATHS, "raise": "raised EnvError: " + MESSAGES["raise"]}[fault]
    found = re.match(PROCESS + SEEN + ending, message, re.DOTALL)
    assert found, message
    assert int(found["step"]) == 20 * int(found["itr"])
    assert int(found["itr"]) in range(5, 12)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("cpu2", "raise"), ("gpu2", "kill"), nightly("alternating2", "hang"), nightly("cpu2", "kill")],
)
def test_a_worker_of_the_sampler_that_breaks_is_named(kind, fault, tmp_path):
    message = fail(tmp_path, kind, fault)
    ending = {**DEATHS, "raise": "raised EnvError: " + MESSAGES["raise"]}[fault]
    assert re.match(PROCESS + "raised WorkerError: " + WORKER + ending, message, re.DOTALL), message


def processes_of(kind: str) -> tuple[psutil.Process, list[psutil.Process]]:
    """Return the sampler's process, and its workers."""
    family = psutil.Process().children(recursive=True)
    [sampler] = [p for p in family if p.children() and all(not c.children() for c in p.children())][-1:]
    return sampler, sampler.children()


@pytest.mark.parametrize(
    ("signum", "whom", "ending"),
    [
        (signal.SIGKILL, "sampler", "was killed by SIGKILL"),
        nightly(signal.SIGSTOP, "sampler", "has made no progress for 1 s"),
        (signal.SIGSTOP, "worker", "raised WorkerError: Worker 0 .* has made no progress for 1 s"),
    ],
)
def test_a_signal_from_outside_ends_the_run(signum, whom, ending, tmp_path):
    at: list[float] = []

    def send() -> None:
        wait_for(lambda: (tmp_path / "run_0" / "params.pkl").exists(), 30, "the run did not start")
        sampler, workers = processes_of("cpu2")
        at.append(time.monotonic())
        (sampler if whom == "sampler" else workers[0]).send_signal(signum)

    thread = threading.Thread(target=send)
    thread.start()
    options: dict[str, Any] = {"start_method": "fork", "worker_timeout": 1}
    with pytest.raises(WorkerError) as info:
        run(tmp_path, "ppo", make_sampler("cpu2", **options), AsyncRl, n_steps=1e6)
    thread.join()
    assert time.monotonic() - at[0] < 10
    message = check(tmp_path, info.value)
    assert re.match(r"The sampler's process \(pid \d+\), .*" + ending, message, re.DOTALL), message


@pytest.mark.parametrize("kind", [nightly("serial"), "cpu2"])
def test_an_error_of_the_learner_stops_the_sampler_in_the_middle_of_a_batch(kind, tmp_path):
    class Breaks(PPO):
        def optimize_agent(self, itr: int, samples: Any) -> Any:
            if itr == 3:  # the next batch has the step that hangs
                time.sleep(0.3)  # until an environment hangs
                raise ArithmeticError("the learner broke")
            return super().optimize_agent(itr, samples)

    options: dict[str, Any] = {} if kind == "serial" else {"start_method": "fork"}
    sampler = make_sampler(kind, FaultyEnv, env_kwargs={"fault": "hang", "at": 19, "bad_seed": BAD_SEED}, **options)
    start = time.monotonic()
    with pytest.raises(ArithmeticError, match="the learner broke"):
        run(tmp_path, (Breaks(), make_algo("ppo")[1]), sampler, AsyncRl, n_steps=1e4, seed=SEED)
    assert time.monotonic() - start < 15
    assert status_of(tmp_path)["exception"]["message"] == "the learner broke"


def test_a_fault_in_evaluation_is_named(tmp_path):
    faulty = {"fault": "raise", "at": 3, "bad_seed": EVAL_SEED}
    options: dict[str, Any] = dict(eval_env_kwargs=faulty, eval_n_envs=2, eval_max_trajectories=20)
    with pytest.raises(WorkerError) as info:
        run(tmp_path, "ppo", make_sampler("serial", FaultyEnv, env_kwargs={"fault": "none"}, **options), AsyncRlEval)
    message = str(info.value)
    assert re.match(r"The sampler's process \(pid \d+\), at the request \"evaluate\", ", message), message
    assert "ZeroDivisionError: the toy broke in step" in message


def test_an_environment_that_cannot_be_built_ends_the_run_at_once(tmp_path):
    with pytest.raises(WorkerError, match=r"at the request \"initialize\", raised EnvError: .*no licence"):
        run(tmp_path, "ppo", make_sampler("serial", FaultyEnv, env_kwargs={"fault": "constructor"}), AsyncRl)


STOPS = [
    nightly(Stop("cpu2", signal.SIGINT, True, "hang", "interrupted")),
    Stop("serial", signal.SIGTERM, False, "hang", "interrupted"),
    nightly(Stop("gpu2", signal.SIGTERM, True, "none", "interrupted")),
    Stop("cpu2", signal.SIGKILL, False, "none", "running"),
]


@pytest.mark.parametrize("stop", STOPS, ids=lambda s: f"{s.kind}-{s.signum.name}-{s.fault}")
def test_a_run_that_is_stopped_leaves_nothing_behind(stop, masters, tmp_path):  # noqa: F811
    arguments = [str(tmp_path), stop.kind, stop.fault, stop.start_method, "AsyncRl"]
    masters.stdin.write(json.dumps(arguments) + "\n")
    masters.stdin.flush()
    master = psutil.Process(int(masters.stdout.readline()))
    try:
        wait_for(lambda: (tmp_path / "run_0" / "progress.csv").exists(), 60, "the run did not start")
        if stop.fault == "hang":
            time.sleep(0.3)
        family = [master, *master.children(recursive=True)]
        assert len(family) >= (3 if stop.kind == "serial" else 4)  # with the forkserver; with two workers
        start = time.monotonic()
        os.killpg(master.pid, stop.signum) if stop.to_group else os.kill(master.pid, stop.signum)
        wait_for(lambda: not any(is_alive(p) for p in family), 15, "processes are left")
        assert time.monotonic() - start < 10
    finally:
        with suppress(ProcessLookupError):
            os.killpg(master.pid, signal.SIGKILL)
        exit_code = int(masters.stdout.readline())
    check_end(stop, tmp_path, exit_code)
