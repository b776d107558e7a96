"""A run that was stopped and started again is the run that was not: parameters, replay, rows of the log."""

from __future__ import annotations

import csv
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from signal import SIG_DFL, SIGHUP, SIGINT, SIGTERM, SIGUSR1, default_int_handler, raise_signal, signal
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from benchmarks.resume_kit import Started, files_left, first_difference, progress_of, state_of, steps_saved
from rlpyt.agents import CategoricalPgAgent, DdpgAgent, PopulationAgent
from rlpyt.algos import CMAES, DDPG, PPO, QpgAlgo
from rlpyt.logging import logger_context
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.logging.segments import CheckpointError
from rlpyt.runners import AsyncRl, AsyncRlEval, MinibatchRl, MinibatchRlEval, SyncRl, SyncRlEval
from rlpyt.runners.agreement import TrainingDiverged
from rlpyt.runners.signals import Preempted
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import RandomEnv
from tests.algos.test_algo_state import CASES, MU_AND_Q, QPG_KWARGS
from tests.runners.runner_kit import make_sampler, nightly, rows_of, status_of
from tests.toy_envs import AgingEnv

ROOT = Path(__file__).parents[2]
T, B = 5, 4
N_ITR, STOP, LOG, SAVE = 12, 8, 2, 3
"""Iterations of a run, those before it is stopped, and those between rows and checkpoints: the newest is of 6."""
EVALUATION: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=4)


OWN_CASES: dict[str, Any] = {
    # whose masks are drawn from torch's global stream
    "PPO dropout of torch": lambda: (PPO(), CategoricalPgAgent(model_kwargs=dict(nonlinearity=torch.nn.Dropout))),
    "coloured noise": lambda: (DDPG(**QPG_KWARGS), DdpgAgent(action_noise_correlation=0.9, **MU_AND_Q)),
    "CMAES": lambda: (CMAES(evaluated="best"), PopulationAgent(model_kwargs=dict(hidden_sizes=2), population_size=4)),
    "CMAES separable": lambda: (
        CMAES(separable=True, n_episodes=2, weight_func=float, mean_rate="lin_1_0.5", covariance_rate="lin_1"),
        PopulationAgent(population_size=2),
    ),
}


class Stop(Exception):
    """What stops a run."""


class Stopping:
    """Runner that stops after an iteration, or before an update of the networks."""

    stop_at = inf
    _checkpoints: Any

    def startup(self) -> int:
        n_itr: int = super().startup()  # type: ignore[misc]  # of the runner that this is mixed into
        save_due = self._checkpoints.save_due

        def save_and_stop(n_done: int, asked: str) -> None:
            save_due(n_done, asked)
            if n_done == self.stop_at:
                self.stop()

        self._checkpoints.save_due = save_and_stop
        return n_itr

    def stop(self) -> None:
        raise Stop


def runner_of(
    case: str = "PPO", kind: str = "serial", Runner: Any = MinibatchRl, stop_at: float = inf, **settings: Any
) -> Any:
    """Return a runner that stops after an iteration."""
    algo, agent = {**CASES, **OWN_CASES}[case]()
    algo = algo.replace(**settings.pop("algo", {}))
    action_space = spaces.Box(-1, 2, (2,)) if isinstance(algo, QpgAlgo) else spaces.Discrete(3)
    options: dict[str, Any] = EVALUATION if issubclass(Runner, MinibatchRlEval) else {}
    EnvCls = settings.pop("EnvCls", RandomEnv)
    start_method = settings.pop("start_method", "here")
    if kind[-1].isdigit():
        options = {**options, "start_method": start_method}
    env_kwargs = dict(action_space=action_space)
    sampler = make_sampler(kind, EnvCls, T, B, env_kwargs=env_kwargs, max_decorrelation_steps=10, **options)
    rows = T * B * settings.get("n_replicas", 1)
    kwargs: dict[str, Any] = dict(
        n_steps=N_ITR * rows,
        log_interval_steps=LOG * rows,
        checkpoint_interval_steps=SAVE * rows,
        seed=3,
        settings=ComputeSettings(),
    )
    runner = type(Runner.__name__, (Stopping, Runner), {})(algo, agent, sampler, **{**kwargs, **settings})
    runner.stop_at = stop_at
    return runner


def train(directory: Path, *args: Any, resume: Any = "auto", sinks: Any = None, **kwargs: Any) -> Any:
    """Train in `directory/run_0`, or go on there."""
    runner = runner_of(*args, **kwargs)
    with logger_context(directory, run_ID=0, resume=resume, snapshot_mode="none", sinks=sinks):
        runner.train()
    return runner


def stopped(directory: Path, *args: Any, **kwargs: Any) -> None:
    """Train until the run is stopped, two iterations after its newest checkpoint."""
    with pytest.raises(Stop):
        train(directory, *args, stop_at=STOP, **kwargs)


def check_same(directory: Path, expected: Path) -> None:
    assert first_difference(directory / "run_0", expected / "run_0") is None
    assert len(rows_of(expected)) >= N_ITR // LOG


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that gives the directory of a run that was left alone, which is trained once."""
    directories: dict[Any, Path] = {}

    def directory_of(case: str = "PPO", Runner: Any = MinibatchRl) -> Path:
        if (case, Runner) not in directories:
            directories[case, Runner] = tmp_path_factory.mktemp("whole")
            train(directories[case, Runner], case, Runner=Runner)
        return directories[case, Runner]

    return directory_of


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run that was stopped, to be copied."""
    directory = tmp_path_factory.mktemp("stopped")
    stopped(directory)
    return directory


def log_of(directory: Path) -> str:
    return (directory / "run_0" / "debug.log").read_text()


pytestmark = pytest.mark.usefixtures("nothing_is_left")

REPLICAS: dict[str, Any] = dict(n_replicas=2)
AGING: dict[str, Any] = dict(EnvCls=partial(AgingEnv, RandomEnv))
"""Its evaluations would depend on those before, which a run that was stopped has not made."""


@pytest.mark.parametrize(
    ("case", "kind", "Runner", "settings"),
    [
        nightly("PPO dropout of torch", "serial", MinibatchRl, {}),
        ("PPO LSTM", "cpu2", MinibatchRl, {}),
        nightly("coloured noise", "no_overlap2", MinibatchRl, {}),
        ("Rainbow", "alternating2", MinibatchRl, {}),
        ("DQN input priorities", "gpu2", MinibatchRl, dict(start_method="fork")),
        nightly("R2D1", "halves", MinibatchRl, {}),
        nightly("IQN GRU", "gpu2", MinibatchRlEval, {}),
        ("DroQ", "serial", MinibatchRlEval, dict(eval_beside=True)),
        nightly("DQN n-step soft", "serial", SyncRl, REPLICAS),
        ("CMAES", "cpu2", MinibatchRlEval, {}),
        nightly("CMAES separable", "serial", MinibatchRl, {}),
        ("PPO", "cpu2", AsyncRl, dict(lag=2)),
        nightly("DroQ", "serial", AsyncRlEval, dict(lag=1)),
        nightly("PPO", "cpu2", MinibatchRlEval, AGING),
        ("PPO", "serial", SyncRlEval, {**AGING, **REPLICAS}),
        ("DQN n-step soft", "serial", AsyncRlEval, {**AGING, "lag": 1, "eval_beside": True}),
    ],
)
def test_a_run_that_was_stopped_goes_on_as_if_it_was_not(case, kind, Runner, settings, tmp_path):
    train(tmp_path / "a", case, kind, Runner, **settings)
    stopped(tmp_path / "b", case, kind, Runner, **settings)
    torch.manual_seed(5), np.random.seed(5)  # nothing of this process counts
    rows = T * B * settings.get("n_replicas", 1)
    saved = steps_saved(tmp_path / "b" / "run_0")
    best = STOP * rows if "Eval" in Runner.__name__ else None  # saved where the evaluation at the stop is the best
    assert saved in (6 * rows, best)
    runner = train(tmp_path / "b", case, kind, Runner, **settings)
    assert f"Resumed after {saved:,} steps." in log_of(tmp_path / "b")
    check_same(tmp_path / "b", tmp_path / "a")
    assert runner.algo.update_counter > 0


# ---- ends that are asked for ----


@pytest.mark.parametrize("signum", [SIGTERM, SIGINT, nightly(SIGHUP), nightly(SIGUSR1)])
def test_a_signal_ends_a_run_with_a_checkpoint_and_an_exit_code(signum, whole, tmp_path, monkeypatch, capfd):
    before = {SIGINT: signal(SIGINT, default_int_handler), SIGHUP: signal(SIGHUP, SIG_DFL)}
    monkeypatch.setattr(Stopping, "stop", lambda self: raise_signal(signum))
    try:
        with pytest.raises(Preempted) as info:
            train(tmp_path, stop_at=STOP)
    finally:
        for number, handler in before.items():
            signal(number, handler)
    assert info.value.code == PREEMPTED == 85
    assert status_of(tmp_path)["status"] == "interrupted"
    assert f"{signum.name} was sent: the run ends at step 180, with a checkpoint" in log_of(tmp_path)
    assert "a second signal ends it at once" in capfd.readouterr().err
    train(tmp_path)
    check_same(tmp_path, whole())


def test_a_run_whose_time_is_over_ends_with_a_checkpoint(whole, tmp_path):
    for n_done in (1, 2):  # each start does what it can
        with pytest.raises(Preempted, match="max_time is over") as info:
            train(tmp_path, max_time=1e-9)
        assert info.value.code == PREEMPTED
        assert status_of(tmp_path)["status"] == "interrupted"
        assert steps_saved(tmp_path / "run_0") == n_done * T * B
    train(tmp_path)
    check_same(tmp_path, whole())


def test_a_signal_in_the_start_of_a_run_is_kept_for_its_first_iteration(whole, tmp_path, monkeypatch):
    def get_n_itr(self: Any) -> int:
        raise_signal(SIGTERM)
        return MinibatchRl.get_n_itr(self)

    monkeypatch.setattr(Stopping, "get_n_itr", get_n_itr, raising=False)
    for n_done in (1, 2):  # of a run that begins, and of one that goes on
        with pytest.raises(Preempted):
            train(tmp_path)
        assert steps_saved(tmp_path / "run_0") == n_done * T * B
    monkeypatch.undo()
    train(tmp_path)
    check_same(tmp_path, whole())


def test_a_finished_run_says_so_and_goes_on_with_more_steps(tmp_path):
    first = train(tmp_path / "a", n_steps=10 * T * B)
    rows = rows_of(tmp_path / "a")
    again = train(tmp_path / "a", n_steps=10 * T * B)
    assert "Resumed after 200 steps: the run is finished. A larger n_steps lets it go on." in log_of(tmp_path / "a")
    assert rows_of(tmp_path / "a") == rows
    for x, y in zip(first.agent.parameters(), again.agent.parameters(), strict=True):
        assert torch.equal(x, y)
    assert status_of(tmp_path / "a")["status"] == "finished"
    train(tmp_path / "a")
    assert "n_steps is 240, and was 200" in log_of(tmp_path / "a")
    assert [float(row["Diagnostics/CumSteps"]) for row in rows_of(tmp_path / "a")] == [40.0 * i for i in range(1, 7)]


@pytest.mark.parametrize("Runner", [MinibatchRl, MinibatchRlEval])
def test_more_steps_after_an_end_between_two_rows_leave_a_row_more_and_the_same_weights(Runner, whole, tmp_path):
    expected = whole("DQN input priorities", Runner)
    for n_itr in (9, N_ITR):
        train(tmp_path / "a", "DQN input priorities", Runner=Runner, n_steps=n_itr * T * B)
    ours, rows = (
        {int(row["Diagnostics/CumSteps"]): row for row in progress_of(directory / "run_0")}
        for directory in (tmp_path / "a", expected)
    )
    assert ours.pop(180)
    assert ours.pop(200) != rows.pop(200)  # of the steps since the end, and of those since step 160
    assert ours == rows
    state, right = (state_of(directory / "run_0") for directory in (tmp_path / "a", expected))
    assert {k: v for k, v in state.items() if ".agent." in k or ".algo." in k} == {
        k: v for k, v in right.items() if ".agent." in k or ".algo." in k
    }


# ---- faults ----


@pytest.mark.parametrize("what", ["weight", "loss"])
def test_numbers_that_are_not_finite_are_never_saved_and_the_last_good_checkpoint_is_named(
    what, whole, tmp_path, monkeypatch
):
    def store_diagnostics(self: Any, itr: int, traj_infos: Any, metrics: Any) -> None:
        if itr + 1 == 3 * SAVE:  # a checkpoint is due, and no row of the log
            broken = next(iter(self.agent.parameters())).data if what == "weight" else metrics["loss"]
            broken.view(-1)[0] = float("nan")
        MinibatchRl.store_diagnostics(self, itr, traj_infos, metrics)

    monkeypatch.setattr(Stopping, "store_diagnostics", store_diagnostics, raising=False)
    with pytest.raises(TrainingDiverged, match="The newest checkpoint is of step 120") as info:
        train(tmp_path)
    assert ("weights" if what == "weight" else "loss") in str(info.value)
    assert steps_saved(tmp_path / "run_0") == 120
    assert status_of(tmp_path)["status"] == "failed"
    monkeypatch.undo()
    train(tmp_path)
    check_same(tmp_path, whole())


def damage(directory: Path, step: int) -> None:
    """Flip a bit in the middle of a checkpoint."""
    file = directory / "run_0" / "checkpoints" / f"{step:012d}" / "rank_0.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_damaged_checkpoint_is_passed_over_and_the_one_before_taken(whole, tmp_path):
    stopped(tmp_path, "DQN input priorities")
    damage(tmp_path, 120)
    train(tmp_path, "DQN input priorities")
    log = log_of(tmp_path)
    assert "WARNING: The checkpoint of step 120 is damaged; the one before is taken." in log
    assert "Resumed after 60 steps." in log
    check_same(tmp_path, whole("DQN input priorities"))


# ---- what may change ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(algo=dict(learning_rate=0.5)), "algo.learning_rate is 0.5, and was 0.001"),
        (dict(case="A2C"), "algo is 'A2C', and was 'PPO'"),
        (dict(algo=dict(OptimCls=torch.optim.AdamW)), "algo.OptimCls is 'AdamW', and was 'Adam'"),
        (dict(seed=4), "seed is 4, and was 3"),
    ],
)
def test_settings_of_another_run_are_refused_with_the_difference(changes, message, stopped_run):
    with pytest.raises(ValueError, match=f"Resuming a run with other settings: .*{message}"):
        train(stopped_run, **changes)
    assert steps_saved(stopped_run / "run_0") == 120


def test_another_number_of_replicas_is_refused(tmp_path):
    stopped(tmp_path, Runner=SyncRl, n_replicas=1)
    with pytest.raises(ValueError, match="replicas is 2, and was 1"):
        train(tmp_path, Runner=SyncRl, n_replicas=2)


def test_settings_that_change_no_number_may_change_and_are_logged(tmp_path):
    stopped(tmp_path, "R2D1", "cpu2")
    changes: dict[str, Any] = dict(checkpoint_interval_steps=40, log_interval_steps=40, n_steps=240)
    train(tmp_path, "R2D1", "cpu1", **changes)
    assert "Changed since the checkpoint: sampler.n_workers is 1, and was 2." in log_of(tmp_path)
    assert "Changed since the checkpoint: checkpoint_interval_steps is 40, and was 60." in log_of(tmp_path)
    train(tmp_path / "whole", "R2D1", "cpu2")
    ours, right = (state_of(directory / "run_0") for directory in (tmp_path, tmp_path / "whole"))
    assert {k: v for k, v in ours.items() if ".agent." in k or ".algo." in k} == {
        k: v for k, v in right.items() if ".agent." in k or ".algo." in k
    }
    assert progress_of(tmp_path / "run_0") == progress_of(tmp_path / "whole" / "run_0")


@pytest.mark.parametrize(("kind", "name"), [("cpu2", "CpuSampler"), ("gpu2", "GpuSampler")])
def test_another_sampler_may_go_on(kind, name, stopped_run, tmp_path):
    shutil.copytree(stopped_run, tmp_path, dirs_exist_ok=True)
    train(tmp_path, kind=kind)
    assert f"Changed since the checkpoint: sampler is '{name}', and was 'SerialSampler'." in log_of(tmp_path)
    assert steps_saved(tmp_path / "run_0") == N_ITR * T * B


def test_rows_without_a_checkpoint_are_refused_or_put_aside(whole, tmp_path):
    with pytest.raises(Stop):
        train(tmp_path, stop_at=STOP, checkpoint_interval_steps=1e6)
    rows = rows_of(tmp_path)
    assert rows
    with pytest.raises(CheckpointError, match="it has rows and no checkpoint"):
        train(tmp_path, resume=True)
    assert rows_of(tmp_path) == rows
    train(tmp_path)
    with open(tmp_path / "run_0" / "earlier_1" / "progress.csv", newline="") as file:
        assert list(csv.DictReader(file)) == rows
    check_same(tmp_path, whole())


# ---- kills ----


def wait(self: Stopping) -> None:
    time.sleep(60.0)


@pytest.mark.parametrize(
    ("case", "kind", "Runner", "settings"),
    [
        ("DQN input priorities", "cpu2", MinibatchRl, {}),
        nightly("PPO LSTM", "gpu2", MinibatchRl, {}),
        nightly("DroQ", "serial", MinibatchRlEval, {}),
        nightly("PPO", "gpu2", MinibatchRlEval, AGING),
    ],
)
def test_a_killed_run_leaves_nothing_behind_but_its_checkpoints(case, kind, Runner, settings, tmp_path, monkeypatch):
    options: dict[str, Any] = dict(n_steps=30 * T * B, start_method="fork", **settings)
    with monkeypatch.context() as patch:
        patch.setattr(Stopping, "stop", wait)  # where it is killed at the latest
        arguments = (tmp_path, case, kind, Runner)
        run = Started([], tmp_path / "output", tmp_path / "tmp", partial(train, *arguments, stop_at=25, **options))
    assert run.wait_until(lambda: steps_saved(tmp_path / "run_0") > 0), (tmp_path / "output").read_text()
    time.sleep(random.uniform(0.0, 0.3))
    assert run.process.poll() is None
    assert run.kill() == []
    assert files_left(tmp_path / "tmp") == []
    assert status_of(tmp_path)["status"] == "running"
    options["start_method"] = "here"
    train(tmp_path, case, kind, Runner, **options)  # its lock is gone, too
    train(tmp_path / "whole", case, kind, Runner, **options)
    check_same(tmp_path, tmp_path / "whole")


@pytest.mark.nightly
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_was_not():
    """A short form of the soak, at random moments of its start, of its iterations and of its saves."""
    command = [sys.executable, "benchmarks/kill_soak.py", "--kills", "4", "--n_itr", "400", "--forks"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert "alone: identical." in done.stdout, done.stdout + done.stderr
    assert "Left behind: nothing." in done.stdout
    assert done.returncode == 0
