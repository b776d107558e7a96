"""Evaluation beside learning: the rows of an evaluation in the run, from a process that cannot hang it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import A2C
from rlpyt.core import EvalResult, Sampler
from rlpyt.envs import EnvError
from rlpyt.logging import load_snapshot
from rlpyt.runners import AsyncRlEval, MinibatchRlEval, SyncRlEval, TrainingDiverged
from rlpyt.runners.rows import RowsOfEvaluations
from rlpyt.samplers import Evaluator
from rlpyt.samplers.evaluator import EvaluatorProcess, evaluator_cpus
from rlpyt.types import TrajInfo
from rlpyt.utils.processes import WorkerError, available_cpus
from tests.runners.fault_kit import EVAL_MESSAGES, fail, faulty
from tests.runners.runner_kit import (
    make_sampler,
    nightly,
    rows_of,
    run,
    without_times,
)
from tests.toy_envs import AgingEnv, CountingEnv, LifeEnv, SlowEnv
from tests.vector_toy_envs import CountingVectorEnv

QUOTA: dict[str, Any] = dict(eval_n_envs=3, eval_max_trajectories=8)
SLOW: dict[str, Any] = dict(env_kwargs={"seconds": 0.0}, eval_env_kwargs={"seconds": 0.004}, **QUOTA)


pytestmark = pytest.mark.usefixtures("nothing_is_left", "workers_end_soon")


class Watched(MinibatchRlEval):
    """Counts the iterations in which the agent learned while the evaluation of a row went on."""

    n_beside = 0

    def store_diagnostics(self, itr: int, traj_infos: Any, metrics: Any) -> None:
        super().store_diagnostics(itr, traj_infos, metrics)
        self.n_beside += getattr(self._rows, "under_way", None) is not None


def evaluator_of(runner: MinibatchRlEval) -> EvaluatorProcess:
    assert isinstance(runner._rows, RowsOfEvaluations)
    assert isinstance(runner._rows.evaluator, EvaluatorProcess)
    return runner._rows.evaluator


def both(
    directory: Path, algo: str = "ppo", Runner: Any = MinibatchRlEval, sampler: Any = None, **kwargs: Any
) -> tuple[Any, Any, Any]:
    """Run with the evaluation in the run and beside it; return the rows of both, and the runner of the second.

    `sampler` has the arguments of `make_sampler`; by default evaluations take longer than training.
    """
    options: dict[str, Any] = {"n_steps": 120, "log_interval_steps": 20, **kwargs}
    for beside in (False, True):
        made = make_sampler(**(sampler or {"EnvCls": SlowEnv, **SLOW}))
        runner = run(directory / str(beside), algo, made, Runner, eval_beside=beside, **options)
    return without_times(directory / "False"), without_times(directory / "True"), runner


# ---- rows ----


@pytest.mark.parametrize(
    ("kind", "EnvCls", "algo", "deterministic"),
    [
        nightly("serial", CountingEnv, "ppo", False),
        ("cpu1", LifeEnv, "ppo lstm", False),
        nightly("gpu2", CountingEnv, "dqn", True),
        nightly("serial", CountingVectorEnv, "dqn", False),
        ("serial", AgingEnv, "ppo", False),
    ],
)
def test_the_rows_are_those_of_an_evaluation_in_the_run(kind, EnvCls, algo, deterministic, tmp_path):
    sampler = {"kind": kind, "EnvCls": EnvCls, **QUOTA}
    expected, rows, runner = both(tmp_path, algo, sampler=sampler, eval_deterministic=deterministic)
    assert rows == expected
    assert [int(row["Diagnostics/CumSteps"]) for row in rows] == list(range(0, 121, 20))
    assert len({row["ReturnAverage"] for row in rows}) > 1
    columns = [list(rows_of(tmp_path / name)[0]) for name in ("False", "True")]
    columns[1].remove("Diagnostics/CumEvalWaitTime")
    assert columns[0] == columns[1]
    assert runner.agent.device == torch.device("cpu")


def test_an_evaluator_of_the_user_runs_there_too(tmp_path):
    class Greedy(Evaluator):  # of no module that another process could import
        def evaluate(self, itr: int, on_progress: Any = print, deterministic: bool = False) -> Any:
            result = super().evaluate(itr, on_progress, deterministic=True)
            for info in result.traj_infos:
                info["Judge"] = 7
            return result

    sampler = {**QUOTA, "eval_CollectorCls": Greedy}
    expected, rows, _ = both(tmp_path, "dqn", sampler=sampler, log_interval_steps=40)
    assert rows == expected
    assert {row["JudgeAverage"] for row in rows} == {"7.0"}


def test_a_row_judges_the_weights_of_its_step_though_learning_has_gone_on(tmp_path):
    """So does its snapshot; and its counters are those of the step."""
    slow = {"EnvCls": SlowEnv, **SLOW, "eval_env_kwargs": {"seconds": 0.012}}  # longer than an iteration beside others
    expected, rows, runner = both(tmp_path, Runner=Watched, sampler=slow, snapshot_mode="all", log_interval_steps=60)
    assert runner.n_beside >= 3
    assert rows == expected
    assert len({row["ReturnAverage"] for row in rows}) == 3
    for itr in (2, 5):
        a, b = (load_snapshot(tmp_path / name / "run_0" / f"itr_{itr}.pkl") for name in ("False", "True"))
        for key, weights in a["agent_state_dict"]["model"].items():
            assert torch.equal(weights, b["agent_state_dict"]["model"][key])


def test_a_run_waits_for_the_evaluation_where_the_next_row_is_due(tmp_path):
    expected, rows, _ = both(tmp_path)
    assert rows == expected
    timed = rows_of(tmp_path / "True")
    waited = [float(row["Diagnostics/CumEvalWaitTime"]) for row in timed]
    assert waited == sorted(waited)
    assert waited[-1] > 6 * 0.02, "every evaluation takes at least the steps of the longest quota"
    total, train, evaluation = (
        float(timed[-1][f"Diagnostics/{name}"]) for name in ("CumTime (s)", "CumTrainTime", "CumEvalTime")
    )
    assert total - train == pytest.approx(waited[-2], abs=0.02), "training is what is not waiting"
    assert evaluation > waited[-1] - 0.1


def test_replica_0_runs_the_quota_of_all_while_the_others_wait_along(tmp_path):
    """Its evaluator gives the episodes that replicas run together, each its share, in an evaluation in the run."""
    expected, rows, _ = both(tmp_path, Runner=SyncRlEval, n_replicas=2, n_steps=160, log_interval_steps=80)
    assert [row["Diagnostics/CumSteps"] for row in rows] == ["0", "80", "160"]
    assert {row["Diagnostics/TrajsInEval"] for row in rows} == {"8"}
    for one, other in zip(expected, rows, strict=True):  # episodes come in another order
        numbers = [{name: float(value) for name, value in row.items()} for row in (one, other)]
        assert numbers[1] == pytest.approx(numbers[0], rel=1e-6, nan_ok=True)


def test_an_asynchronous_run_gives_the_rows_of_an_evaluation_in_the_process_of_the_sampler(tmp_path):
    expected, rows, _ = both(tmp_path, "dqn", AsyncRlEval, log_interval_steps=40)
    assert rows == expected
    assert {row["Diagnostics/TrajsInEval"] for row in rows} == {"8"}


def test_what_a_user_records_meanwhile_belongs_to_the_next_row(tmp_path):
    class Recording(MinibatchRlEval):
        def log_diagnostics(self, itr: int) -> None:
            self.logger.record_tabular("Mine", itr)
            super().log_diagnostics(itr)

    sampler = make_sampler("serial", SlowEnv, **SLOW)
    run(tmp_path, "ppo", sampler, Recording, n_steps=60, log_interval_steps=20, eval_beside=True)
    assert [row["Mine"] for row in rows_of(tmp_path)] == ["", "0", "1", "2"]


# ---- where it runs ----


def test_the_evaluator_has_cores_of_its_own_or_those_of_the_workers(tmp_path):
    first, last = available_cpus()[0], available_cpus()[-1]
    master = {"master_cpus": [first]}
    assert evaluator_cpus({**master, "evaluator_cpus": [last], "workers_cpus": [first]}) == [last]
    assert evaluator_cpus({**master, "workers_cpus": [last]}) == [last]
    assert evaluator_cpus(master) == available_cpus()
    assert evaluator_cpus({}) is None
    servers = [dict(workers_cpus=[first], set_affinity=True), dict(workers_cpus=[[first, last]])]
    assert evaluator_cpus({"sampler": servers}) == sorted({first, last})
    assert evaluator_cpus({"sampler": [*servers, dict(evaluator_cpus=[last])]}) == [last]
    assert evaluator_cpus({"sampler": [*servers, dict(set_affinity=False)]}) is None
    seen: list[list[int]] = []

    class Seen(MinibatchRlEval):
        def log_row(self, n_done: int) -> None:
            seen.append(psutil.Process(evaluator_of(self)._workers[0].pid).cpu_affinity())
            super().log_row(n_done)

    affinity = {**master, "evaluator_cpus": [last]}
    run(tmp_path, "ppo", make_sampler("serial", **QUOTA), Seen, n_steps=20, eval_beside=True, affinity=affinity)
    assert seen[0] == [last]


def test_a_sampler_without_such_an_evaluator_says_so(tmp_path):
    sampler = make_sampler("serial", **QUOTA)
    sampler.evaluator_beside = lambda agent, run: Sampler.evaluator_beside(sampler, agent, run)
    with pytest.raises(TypeError, match="SerialSampler: it has no evaluator in a process of its own"):
        run(tmp_path, "ppo", sampler, MinibatchRlEval, eval_beside=True)
    assert not (tmp_path / "run_0" / "progress.csv").exists()


def test_the_sampler_builds_no_evaluation_environments(tmp_path):
    class Asks(MinibatchRlEval):
        def log_diagnostics(self, itr: int) -> None:
            self.sampler.evaluate_agent(itr)

    with pytest.raises(RuntimeError, match=r"no evaluation environments here.*eval_beside"):
        run(tmp_path, "ppo", make_sampler("cpu2", **QUOTA), Asks, eval_beside=True)


# ---- faults ----

WHERE = r"Evaluator 0 \(pid \d+\), last seen at environment 1, step \d+, "


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("cpu2", "raise"), ("cpu2", "kill"), nightly("cpu2", "hang"), nightly("cpu2", "nan"), nightly("serial", "kill")],
)
def test_a_fault_in_the_evaluation_ends_the_run_and_is_named(kind, fault, tmp_path):
    # No other row is due: it is noticed beside learning.
    options: dict[str, Any] = dict(n_steps=1e7, log_interval_steps=1e7, eval_beside=True, Runner=MinibatchRlEval)
    sampler = faulty(tmp_path, kind, fault, 3, evaluation=True, worker_timeout=1)
    message = fail(tmp_path, WorkerError, sampler, **options)
    assert re.match(WHERE + EVAL_MESSAGES[fault], message, re.DOTALL), message
    [row] = rows_of(tmp_path)  # of step 0, whose evaluation has failed
    assert (row["Diagnostics/TrajsInEval"], row["ReturnAverage"]) == ("0", "nan")


@pytest.mark.parametrize("fault", ["constructor", "spaces"])
def test_evaluation_environments_that_cannot_be_used_are_found_at_the_start(fault, tmp_path):
    if fault == "constructor":
        sampler = faulty(tmp_path, "cpu1", fault, evaluation=True)
        message = r"Evaluator 0 .* raised .*OSError: no licence for the simulator"
    else:
        sampler = make_sampler("serial", **QUOTA, eval_env_kwargs={"size": 5}, EnvCls=resized)
        message = "evaluation environment of rank 0.*expected those of the run's first environment"
    with pytest.raises((WorkerError, EnvError), match=message):
        run(tmp_path, "ppo", sampler, MinibatchRlEval, eval_beside=True)
    assert not (tmp_path / "run_0" / "progress.csv").exists()


def resized(size: int = 3) -> Any:
    env = CountingEnv()
    env.observation_space = spaces.Box(0, 2**20, (size,), np.float32)
    return env


class Diverging(A2C):
    """Gives a metric that is not finite in iteration 3."""

    def learn(self, itr: int) -> Any:
        metrics = dict(super().learn(itr))
        return {name: x * float("nan") for name, x in metrics.items()} if itr == 3 else metrics


class Interrupted(MinibatchRlEval):
    """Is interrupted in iteration 3, as by Ctrl-C."""

    def store_diagnostics(self, itr: int, traj_infos: Any, metrics: Any) -> None:
        super().store_diagnostics(itr, traj_infos, metrics)
        if itr == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("ending", [TrainingDiverged, KeyboardInterrupt])
def test_a_run_that_ends_early_writes_the_row_under_way_without_its_evaluation(ending, tmp_path, capsys):
    """It does not wait for the evaluation, which would take 8 s, but for its next step."""
    agent = CategoricalPgAgent(model_kwargs={"hidden_sizes": 8})
    algo = Diverging() if ending is TrainingDiverged else A2C()
    Runner = MinibatchRlEval if ending is TrainingDiverged else Interrupted
    sampler = make_sampler("serial", SlowEnv, **{**SLOW, "eval_env_kwargs": {"seconds": 1.0}})
    start = time.monotonic()
    with pytest.raises(ending):
        run(tmp_path, (algo, agent), sampler, Runner, log_interval_steps=200, n_steps=400, eval_beside=True)
    assert time.monotonic() - start < 5
    [row] = rows_of(tmp_path)
    assert (row["Diagnostics/CumSteps"], row["Diagnostics/TrajsInEval"]) == ("0", "0")
    out = capsys.readouterr().out
    assert re.search("evaluation +beside learning, in 3 environments", out)
    assert "The row of step 0 has no evaluation" in out


# ---- methods of the user's own ----


class Summed(MinibatchRlEval):
    """Adds a column of its own to the statistics of a row."""

    def _log_infos(self, traj_infos: Any) -> None:
        super()._log_infos(traj_infos)
        self.logger.record_tabular("ReturnSum", sum(info.Return for info in traj_infos))


def test_a_log_of_ones_own_sees_the_evaluations_of_the_process_beside(tmp_path):
    expected, rows, _ = both(tmp_path, Runner=Summed, sampler=QUOTA, n_steps=60)
    assert rows == expected
    assert len({row["ReturnSum"] for row in rows}) > 1


def test_an_evaluation_of_ones_own_is_made_in_the_run(tmp_path):
    class Own(MinibatchRlEval):
        def evaluate_agent(self, itr: int) -> EvalResult:
            return EvalResult([TrajInfo()], 10 + itr, 1)

    run(tmp_path, "ppo", make_sampler("serial", **QUOTA), Own, n_steps=40, log_interval_steps=20, eval_beside=True)
    assert [row["Diagnostics/StepsInEval"] for row in rows_of(tmp_path)] == ["10", "11", "12"]
    assert {row["Diagnostics/TrajsInEval"] for row in rows_of(tmp_path)} == {"1"}


def test_a_changed_result_of_an_evaluation_that_goes_on_is_refused(tmp_path):
    class Twice(MinibatchRlEval):
        def evaluate_agent(self, itr: int) -> EvalResult:
            return EvalResult.merge([super().evaluate_agent(itr)] * 2)

    with pytest.raises(TypeError, match=r"has changed what super.* returned.* Override _log_infos"):
        run(tmp_path, "ppo", make_sampler("serial", **QUOTA), Twice, eval_beside=True)
