"""Hooks of a run: what they are told, how they stop it in every runner, and how they go on with it."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlpyt.logging import logger_context
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.runners import (
    AsyncRl,
    Hook,
    HookError,
    MinibatchRl,
    MinibatchRlEval,
    StopOnReturn,
    SyncRl,
    runner_from_params,
)
from rlpyt.settings import all_settings
from rlpyt.utils.compute import ComputeSettings
from tests.pairs import others_nightly
from tests.runners.runner_kit import make_algo, make_sampler, rows_of, run, status_of, without_times
from tests.toy_envs import CountingEnv

EVAL: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=4, eval_env_kwargs={})


pytestmark = pytest.mark.usefixtures("nothing_is_left")


@dataclass(eq=False)
class Diary(Hook):
    """Hook that writes down its calls, and stops the run at a row."""

    stop_at: float = float("inf")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls: list[Any] = []

    def on_start(self, runner):
        self.calls = ["start"]

    def on_row(self, runner, row, step):
        self.calls.append(("row", step, row["Diagnostics/CumSteps"]))
        if step >= self.stop_at:
            runner.request_stop("the diary is full")

    def on_evaluation(self, runner, result, step):
        self.calls.append(("evaluation", step, len(result.traj_infos)))

    def on_end(self, runner, status):
        self.calls.append(("end", status, runner.stop_reason))

    def state_dict(self):
        assert self.calls, "asked before on_start, which replica 0 alone calls"
        return {"calls": [str(call) for call in self.calls]}

    def load_state_dict(self, state_dict):
        self.calls = [*state_dict["calls"], "resumed"]


def steps_of(directory: Path) -> list[int]:
    return [int(row["Diagnostics/CumSteps"]) for row in rows_of(directory)]


def test_a_hook_that_looks_on_changes_no_number(tmp_path):
    hook = Diary()
    run(tmp_path / "with", Runner=MinibatchRlEval, sampler=make_sampler(**EVAL), hooks=[hook])
    run(tmp_path / "without", Runner=MinibatchRlEval, sampler=make_sampler(**EVAL))
    assert without_times(tmp_path / "with") == without_times(tmp_path / "without")
    assert hook.calls == [
        "start",
        *(call for step in (0, 40, 80, 100) for call in (("evaluation", step, 4), ("row", step, step))),
        ("end", "finished", ""),
    ]


KINDS = ["MinibatchRl", "eval", "beside", "SyncRl", "AsyncRl", "free"]


@pytest.mark.parametrize("kind", others_nightly(KINDS, ["MinibatchRl", "SyncRl", "AsyncRl"]))
def test_a_hook_stops_every_runner_at_a_row(kind, tmp_path):
    hook = Diary(stop_at=80)
    algo = "dqn" if kind == "free" else "ppo"
    Runner: Any = {"SyncRl": SyncRl, "AsyncRl": AsyncRl, "free": AsyncRl, "MinibatchRl": MinibatchRl}.get(
        kind, MinibatchRlEval
    )
    of_kind: dict[str, dict[str, Any]] = {
        "SyncRl": dict(n_replicas=2), "beside": dict(eval_beside=True), "AsyncRl": dict(lag=2), "free": dict(lag="free")
    }  # fmt: skip
    options = of_kind.get(kind, {})
    interval = float("inf") if kind == "beside" else 1e6  # a checkpoint would wait for the evaluation
    sampler = make_sampler(**(EVAL if Runner is MinibatchRlEval else {}))
    run(tmp_path, algo, sampler, Runner, n_steps=4000, hooks=[hook], checkpoint_interval_steps=interval, **options)
    last = 120 if kind == "beside" else 80  # where the row of 80 steps was written when that of 120 began
    assert steps_of(tmp_path)[-1] == last
    assert hook.calls[-2:] == [("row", last, last), ("end", "finished", "the diary is full")]
    if Runner is MinibatchRlEval:
        assert hook.calls[-3] == ("evaluation", last, 4)
    status = status_of(tmp_path)
    assert (status["status"], status["stopped"]) == ("finished", "the diary is full")
    run_dir = tmp_path / "run_0"
    if kind != "beside":
        assert max(path.name for path in (run_dir / "checkpoints").glob("0*")) == f"{last:012d}"
    assert (run_dir / "params.pkl").exists()
    assert f"The run stops after {last} steps: the diary is full." in (run_dir / "debug.log").read_text()


def resumed(directory: Path, hook: Hook, n_steps: int = 200, **options: Any) -> None:
    algo, agent = make_algo("ppo")
    runner = MinibatchRl(
        algo, agent, make_sampler(), n_steps, seed=3, log_interval_steps=40, settings=ComputeSettings(), hooks=[hook],
        checkpoint_interval_steps=80, **options,
    )  # fmt: skip
    with logger_context(directory, 0, resume="auto"):
        runner.train()


def test_the_state_of_a_hook_goes_on_with_the_run(tmp_path):
    class Preempting(Diary):
        def on_row(self, runner, row, step):
            super().on_row(runner, row, step)
            if step == 120:
                signal.raise_signal(signal.SIGTERM)

    Preempting.__name__ = "Diary"
    first, second = Preempting(), Diary()
    with pytest.raises(SystemExit) as end:
        resumed(tmp_path, first)
    assert end.value.code == PREEMPTED
    assert first.calls[-1] == ("end", "preempted", "")
    resumed(tmp_path, second)
    assert second.calls[:5] == [str(call) for call in first.calls[:-1]] + ["resumed"]
    assert second.calls[5:] == [("row", 160, 160), ("row", 200, 200), ("end", "finished", "")]


def test_a_stopped_run_stays_stopped_until_it_may_go_further(tmp_path):
    resumed(tmp_path, Diary(stop_at=80))
    resumed(tmp_path, Diary(stop_at=80))
    assert steps_of(tmp_path) == [40, 80]
    assert status_of(tmp_path)["stopped"] == "the diary is full"
    assert "It was stopped there: the diary is full." in (tmp_path / "run_0" / "debug.log").read_text()
    resumed(tmp_path, Diary(stop_at=120))
    assert steps_of(tmp_path) == [40, 80, 120]
    resumed(tmp_path, Diary(stop_at=120), n_steps=240)
    assert steps_of(tmp_path) == [40, 80, 120, 160]


class Broken(Hook):
    def on_row(self, runner, row, step):
        raise ZeroDivisionError("by zero.")


class BrokenEnd(Broken):
    def on_end(self, runner, status):
        raise KeyError(status)


def test_a_hook_that_raises_fails_the_run_and_is_named(tmp_path, capsys):
    with pytest.raises(HookError, match=r"hook Broken\.on_row raised ZeroDivisionError: by zero") as error:
        run(tmp_path / "a", hooks=[Broken()])
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert status_of(tmp_path / "a")["status"] == "failed"
    with pytest.raises(HookError, match=r"BrokenEnd\.on_row"):
        run(tmp_path / "b", hooks=[BrokenEnd()])
    assert "WARNING: The hook BrokenEnd.on_end raised KeyError: 'failed'" in capsys.readouterr().out
    with pytest.raises(TypeError, match=r"hooks is \[<function.*expected a list of instances of rlpyt\.runners\.Hook"):
        run(tmp_path / "c", hooks=[rows_of])
    with pytest.raises(TypeError, match="expected a list"):
        run(tmp_path / "c", hooks=Broken())


def test_every_hook_that_has_started_ends_and_no_other(tmp_path, capsys):
    class BrokenStart(Diary):
        def on_start(self, runner):
            raise OSError("no camera.")

    class BrokenLast(Diary):
        def on_end(self, runner, status):
            raise KeyError(status)

    first, broken, never = Diary(), BrokenStart(), Diary()
    with pytest.raises(HookError, match=r"BrokenStart\.on_start raised OSError: no camera"):
        run(tmp_path / "a", hooks=[first, broken, never])
    assert first.calls == ["start", ("end", "failed", "")]
    assert broken.calls == never.calls == []
    last = Diary()
    with pytest.raises(HookError, match=r"BrokenLast\.on_end raised KeyError: 'finished'"):
        run(tmp_path / "b", hooks=[BrokenLast(), BrokenLast(), last])
    assert last.calls[-1] == ("end", "failed", "")  # as status.json says
    assert status_of(tmp_path / "b")["status"] == "failed"
    assert "WARNING: The hook BrokenLast.on_end raised KeyError: 'failed'" in capsys.readouterr().out


def test_an_exit_of_a_hook_that_ends_does_not_hide_the_error_of_the_run(tmp_path, capsys):
    class Exits(Broken):
        def on_end(self, runner, status):
            raise SystemExit

    last = Diary()
    with pytest.raises(HookError, match=r"Exits\.on_row raised ZeroDivisionError"):
        run(tmp_path / "a", hooks=[Exits(), last])
    assert last.calls[-1] == ("end", "failed", "")
    assert status_of(tmp_path / "a")["status"] == "failed"
    assert "WARNING: The hook Exits.on_end has called exit()." in capsys.readouterr().out


def test_a_record_makes_hooks_again(tmp_path):
    with logger_context(tmp_path, 0):
        algo, agent = make_algo("ppo")
        hooks = [StopOnReturn(2.0, n_rows=2), Diary(stop_at=80)]
        MinibatchRl(algo, agent, make_sampler(), 100, seed=3, log_interval_steps=40, hooks=hooks).train()
    again = runner_from_params(tmp_path / "run_0", known=[Diary, CountingEnv])
    assert [type(hook) for hook in again.hooks] == [StopOnReturn, Diary]
    assert [all_settings(hook) for hook in again.hooks] == [all_settings(hook) for hook in hooks]
    record = json.loads((tmp_path / "run_0" / "params.json").read_text())["runner"]["settings"]["hooks"][0]
    assert record["class"] == "rlpyt.runners:StopOnReturn"


class Asked:
    def __init__(self) -> None:
        self.reason = ""

    def request_stop(self, reason):
        self.reason = self.reason or reason


def test_stop_on_return_counts_rows_in_a_row():
    hook, runner = StopOnReturn(10.0, n_rows=2), Asked()
    stopping: Any = runner
    hook.on_start(stopping)
    for value in (12.0, float("nan"), 9.0, 10.0):
        hook.on_row(stopping, {"ReturnAverage": value}, 1)
    other = StopOnReturn(10.0, n_rows=2)
    other.on_start(stopping)
    other.load_state_dict(hook.state_dict())
    assert runner.reason == ""
    other.on_row(stopping, {"ReturnAverage": 11.0}, 2)
    assert runner.reason == "ReturnAverage is 11, and 10 was to be reached"
    with pytest.raises(LookupError, match="column is 'ReturnAverage'; expected one of x"):
        hook.on_row(stopping, {"x": 1.0}, 1)
    with pytest.raises(ValueError, match="n_rows is 0"):
        StopOnReturn(1.0, n_rows=0)
