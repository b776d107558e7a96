"""Whatever breaks in a run with a sampler in the background, it ends soon, says what it was, and leaves nothing."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from rlpyt.algos import PPO
from rlpyt.runners import AsyncRl, AsyncRlEval
from rlpyt.samplers import SerialSampler
from rlpyt.samplers.background import ProcessSettings
from rlpyt.utils.processes import WorkerError
from tests.runners.fault_kit import BAD_RANK, DEATHS, MESSAGES, fail, faulty
from tests.runners.runner_kit import make_algo, make_sampler, nightly, run
from tests.toy_envs import FaultyEnv

pytestmark = pytest.mark.usefixtures("nothing_is_left", "no_memory_is_left", "workers_end_soon")

PROCESS = r"The sampler's process \(pid \d+\), at the batch of iteration (?P<itr>\d+) \(step (?P<step>\d+)\), "
SEEN = r"last seen at environment \d+, step \d+, "
WORKER = rf"Worker 1 \(pid \d+\), last seen at environment {BAD_RANK}, step \d+, "


@pytest.mark.parametrize(
    ("fault", "lag"),
    [("raise", 0), ("kill", 2), nightly("exit", 0), nightly("hang", 2)]
    + [nightly("raise", 2), nightly("kill", 0), nightly("exit", 2), nightly("hang", 0)],
)
def test_a_sampler_without_workers_that_breaks_is_named(fault, lag, tmp_path, monkeypatch):
    monkeypatch.setattr(SerialSampler, "process", ProcessSettings(stall_seconds=1.0))
    message = fail(tmp_path, WorkerError, faulty(tmp_path, "serial", fault, 30), Runner=AsyncRl, lag=lag)
    ending = {**DEATHS, "raise": "raised EnvError: " + MESSAGES["raise"]}[fault]
    found = re.match(PROCESS + SEEN + ending, message, re.DOTALL)
    assert found, message
    assert int(found["step"]) == 20 * int(found["itr"])
    assert int(found["itr"]) in range(5, 12)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [nightly("cpu2", "raise"), ("gpu2", "kill"), nightly("alternating2", "hang"), nightly("cpu2", "kill")],
)
def test_a_worker_of_the_sampler_that_breaks_is_named(kind, fault, tmp_path):
    sampler = faulty(tmp_path, kind, fault, 30, start_method="fork", worker_timeout=1)
    message = fail(tmp_path, WorkerError, sampler, Runner=AsyncRl)
    ending = {**DEATHS, "raise": "raised EnvError: " + MESSAGES["raise"]}[fault]
    assert re.match(PROCESS + "raised WorkerError: " + WORKER + ending, message, re.DOTALL), message


@pytest.mark.parametrize("kind", [nightly("serial"), "cpu2"])
def test_an_error_of_the_learner_stops_the_sampler_in_the_middle_of_a_batch(kind, tmp_path):
    class Breaks(PPO):
        def optimize_agent(self, itr: int, samples: Any) -> Any:
            if itr == 3:  # the next batch has the step that hangs
                time.sleep(0.3)  # until an environment hangs
                raise ArithmeticError("the learner broke")
            return super().optimize_agent(itr, samples)

    sampler = faulty(tmp_path, kind, "hang", 19, start_method="fork")
    start = time.monotonic()
    (tmp_path / "note").write_text(f"{start + 5}\n")  # 15 s in all
    message = fail(tmp_path, ArithmeticError, sampler, (Breaks(), make_algo("ppo")[1]), AsyncRl)
    assert message == "the learner broke"


def test_a_fault_in_evaluation_is_named(tmp_path):
    message = fail(tmp_path, WorkerError, faulty(tmp_path, "serial", "raise", 3, evaluation=True), Runner=AsyncRlEval)
    assert re.match(r"The sampler's process \(pid \d+\), at the request \"evaluate\", ", message), message
    assert "ZeroDivisionError: the toy broke in step" in message


def test_an_environment_that_cannot_be_built_ends_the_run_at_once(tmp_path):
    with pytest.raises(WorkerError, match=r"at the request \"initialize\", raised EnvError: .*no licence"):
        run(tmp_path, "ppo", make_sampler("serial", FaultyEnv, env_kwargs={"fault": "constructor"}), AsyncRl)
