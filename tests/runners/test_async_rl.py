"""Runs whose sampler works in a process of its own: what they log is what a loop with old weights logs."""

from __future__ import annotations

import csv
import json
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.algos import QpgAlgo
from rlpyt.core import Sampler
from rlpyt.logging import load_snapshot
from rlpyt.runners import AsyncRl, AsyncRlEval, MinibatchRl, MinibatchRlEval, compute_choice, runner_from_params
from rlpyt.samplers import SerialSampler
from rlpyt.settings import all_settings
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.coupling import Coupling
from tests.algos.small_problems import RandomEnv
from tests.algos.test_algo_state import CASES
from tests.markdown import ROOT, quoted, tables
from tests.runners.lagged import with_lag
from tests.runners.runner_kit import make_algo, make_sampler, nightly, run, status_of, without_times
from tests.toy_envs import CountingEnv
from tests.vector_toy_envs import CountingVectorEnv

OWN = ("WaitTime", "HandOverTime", "DataAge", "RowsDropped")
EVALUATION: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=4)


def train(directory: Path, case: str, sampler: Any, Runner: Any, **kwargs: Any) -> Any:
    algo, agent = CASES[case]()
    if case in ("DQN input priorities", "Rainbow", "R2D1"):
        algo = algo.replace(eps_steps=100)  # so that actions are those of the network
    return run(directory, (algo, agent), sampler, Runner, n_steps=240, log_interval_steps=80, **kwargs)


def options_of(case: str) -> dict[str, Any]:
    action_space = spaces.Box(-1, 2, (2,)) if isinstance(CASES[case]()[0], QpgAlgo) else spaces.Discrete(3)
    env_kwargs = {"action_space": action_space}
    return dict(env_kwargs=env_kwargs, batch_T=5, batch_B=4, max_decorrelation_steps=0)


def learned(directory: Path) -> list[dict[str, str]]:
    """Return the rows of progress.csv without what only one of the runners logs."""
    return [{k: v for k, v in row.items() if not any(own in k for own in OWN)} for row in without_times(directory)]


@pytest.mark.parametrize(
    ("case", "lag"),
    [("PPO LSTM", 2), ("DQN input priorities", 1), ("R2D1", 3), ("SAC", 1), ("VTrace", 1)]
    + [nightly("PPO", 1), nightly("A2C", 3), nightly("Rainbow", 2), nightly("TD3", 2), nightly("R2D1", 1)]
    + [nightly("SAC LSTM", 2), nightly("VTrace GRU", 2)],
)
def test_a_run_is_that_of_a_serial_loop_with_old_weights(case, lag, tmp_path):
    options, Reference = options_of(case), MinibatchRlEval if lag == 1 else MinibatchRl
    options |= EVALUATION if lag == 1 else {}
    reference = train(tmp_path / "a", case, with_lag(lag)(RandomEnv, **options), Reference)
    Runner = AsyncRlEval if lag == 1 else AsyncRl
    ours = train(tmp_path / "b", case, SerialSampler(RandomEnv, **options), Runner, lag=lag)
    assert learned(tmp_path / "a") == learned(tmp_path / "b")
    for x, y in zip(reference.agent.parameters(), ours.agent.parameters(), strict=True):
        assert torch.equal(x, y)
    assert reference.algo.update_counter > 0
    train(tmp_path / "c", case, SerialSampler(RandomEnv, **options), Reference)
    assert learned(tmp_path / "c") != learned(tmp_path / "a")  # a lag is something else than none


@pytest.mark.parametrize(
    ("kind", "algo"),
    [("cpu2", "ppo lstm"), ("gpu2", "dqn"), nightly("alternating2", "ppo"), nightly("native", "dqn")],
)
def test_two_runs_with_one_seed_are_one_through_every_sampler(kind, algo, tmp_path):
    def once(directory: Path) -> list[dict[str, str]]:
        torch.manual_seed(0)
        if kind == "native":
            sampler = make_sampler("serial", CountingVectorEnv)
        else:
            sampler = make_sampler(kind, CountingEnv, start_method="fork")
        run(directory, algo, sampler, AsyncRl, n_steps=200)
        return without_times(directory)

    rows = once(tmp_path / "a")
    assert rows == once(tmp_path / "b")
    if kind == "gpu2":
        run(tmp_path / "c", algo, make_sampler("serial"), AsyncRl, n_steps=200)
        for row, serial in zip(rows, without_times(tmp_path / "c"), strict=True):
            for name in serial:
                assert float(row[name]) == pytest.approx(float(serial[name]), rel=1e-3, nan_ok=True), name


def test_a_lag_of_zero_is_the_run_without_a_process(tmp_path):
    for name, Runner, kwargs in (("a", MinibatchRlEval, {}), ("b", AsyncRlEval, {"lag": 0})):
        run(tmp_path / name, "dqn", make_sampler(**EVALUATION), Runner, **kwargs)
    assert learned(tmp_path / "a") == learned(tmp_path / "b")


def test_the_columns_tell_who_waited_and_how_old_the_data_are(tmp_path):
    runner = run(tmp_path, "ppo", make_sampler(), AsyncRl, n_steps=200, log_interval_steps=40, lag=2)
    rows = [{k.removeprefix("Diagnostics/"): float(v) for k, v in r.items()} for r in _rows(tmp_path)]
    assert [row["DataAgeMin"] for row in rows] == [0, 2, 2, 2, 2]
    assert [row["DataAgeMean"] for row in rows] == [0.5, 2, 2, 2, 2]
    assert [row["DataAgeMax"] for row in rows] == [1, 2, 2, 2, 2]
    assert [row["RowsDropped"] for row in rows] == [0] * 5
    for name in ("OptimizerWaitTime", "SamplerWaitTime", "HandOverTime"):
        assert all(0 <= row[name] < 5 for row in rows)
        assert sum(row[name] for row in rows) > 0
    assert isinstance(runner.sampler, SerialSampler)  # as it was given
    assert not runner.sampler.running


def test_ages_that_fall_again_are_all_seen():
    coupling = Coupling()
    for _ in range(2):
        for age in (2, 4, 0, 3, 1):
            coupling.ages.append(age)
        columns = coupling.take()
        assert [columns[f"DataAge{name}"] for name in ("Min", "Mean", "Max")] == [0, 2, 4]
    assert isnan(coupling.take()["DataAgeMin"])


def test_the_glossary_has_the_columns():
    [table] = [t for t in tables(ROOT / "docs" / "reference" / "glossary.md") if t[0][0] == "column"]
    told = [name for row in table[1:] if quoted(row[2]) == ["AsyncRl"] for name in quoted(row[0])]
    assert [name.removeprefix("Diagnostics/") for name in told] == list(Coupling().take())


def _rows(directory: Path) -> list[dict[str, str]]:
    with open(directory / "run_0" / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_the_replay_ratio_is_the_one_of_the_synchronous_run(tmp_path):
    for lag in (0, 2):
        run(tmp_path / str(lag), make_algo("dqn", replay_ratio=4), make_sampler(), AsyncRl, n_steps=400, lag=lag)
    ratios = [[row["Diagnostics/CumReplayRatio"] for row in _rows(tmp_path / str(lag))] for lag in (0, 2)]
    assert ratios[0] == ratios[1]
    assert float(_rows(tmp_path / "2")[-1]["Diagnostics/ReplayRatio"]) == 4


def test_the_run_is_made_again_from_its_record(tmp_path):
    runner: Any = run(tmp_path, "ppo", make_sampler(), AsyncRl, lag=2)
    params = json.loads((tmp_path / "run_0" / "params.json").read_text())
    assert params["plan"]["lag"] == 2
    again: Any = runner_from_params(tmp_path / "run_0", known=[CountingEnv])
    assert (type(again), again.lag, type(again.sampler)) == (AsyncRl, 2, SerialSampler)
    assert all_settings(runner).keys() == all_settings(again).keys()
    assert load_snapshot(tmp_path / "run_0" / "params.pkl")["itr"] == 4


@pytest.mark.parametrize(
    ("lag", "error", "text"),
    [
        (-1, ValueError, "AsyncRl: lag is -1; expected a whole number from 0"),
        (1.5, ValueError, r"AsyncRl: lag is 1\.5; expected a whole number from 0"),
        ("much", TypeError, "AsyncRl: lag is 'much'; expected a whole number from 0"),
    ],
)
def test_a_lag_that_cannot_be_meant_is_refused(lag, error, text):
    algo, agent = make_algo("ppo")
    with pytest.raises(error, match=text):
        AsyncRl(algo, agent, make_sampler(), n_steps=100, lag=lag)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"affinity": []}, "affinity is an empty list"),
        ({"n_replicas": 2, "affinity": {"optimizer": [{}] * 3, "sampler": {}}}, "affinity has 3 dictionaries"),
        ({"n_replicas": 2, "affinity": {"optimizer": {"cpus": [0]}, "sampler": {}}}, "would all work on them"),
        ({"n_replicas": 3}, "batch_B is 4, given for 3 replicas together"),
    ],
)
def test_learners_that_cannot_be_are_refused(settings, text):
    algo, agent = make_algo("ppo")
    with pytest.raises(ValueError, match=text):
        AsyncRl(algo, agent, make_sampler(), n_steps=100, **settings)


def test_a_lag_as_long_as_the_run_is_told(tmp_path, capsys):
    run(tmp_path, "ppo", make_sampler(), AsyncRl, n_steps=40, lag=2)
    assert "WARNING: lag is 2 and the run has 2 iterations" in capsys.readouterr().out


def test_a_sampler_that_cannot_move_is_refused(monkeypatch):
    class Bare(Sampler):
        pass

    monkeypatch.setattr(Bare, "__abstractmethods__", frozenset())
    with pytest.raises(TypeError, match=r"Bare cannot run in a process of its own; expected .*BaseSampler"):
        Bare().in_background()  # type: ignore[abstract]


def test_threads_leave_the_cores_of_the_sampler_free(monkeypatch, tmp_path):
    seen: list[int] = []

    def choose(agent: Any, cores: Any, n_busy: int, **kwargs: Any) -> ComputeSettings:
        seen.append(n_busy)
        return ComputeSettings()

    monkeypatch.setattr(compute_choice, "settings_by_rule", choose)
    run(tmp_path / "a", "ppo", make_sampler(), AsyncRl, n_steps=20, settings=None)
    run(tmp_path / "b", "ppo", make_sampler("cpu3", start_method="fork"), AsyncRl, n_steps=20, settings=None)
    assert seen == [1, 3]
    assert status_of(tmp_path / "b")["status"] == "finished"
