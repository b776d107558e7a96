"""What the rows of the log are made of: metrics and trajectories, and when an agent is evaluated and saved."""

from __future__ import annotations

import signal
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import A2C
from rlpyt.functional import HLGauss
from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.runners import MinibatchRl, MinibatchRlEval, load_agent
from rlpyt.runners.run_log import MetricWindow, as_metrics, not_finite
from rlpyt.runners.signals import signals_as_exceptions
from rlpyt.types import TrajInfo
from rlpyt.utils.compute import ComputeSettings
from tests.runners.runner_kit import make_algo, make_sampler, rows_of, run
from tests.toy_envs import GreedyTrajInfo

OptInfo = namedtuple("OptInfo", ["loss", "gradNorm"])


# ---- metrics ----


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": 1.5, "b": 2}, {"a": [1.5], "b": [2.0]}),
        ({"a": [1, 2.5], "b": []}, {"a": [1.0, 2.5], "b": []}),
        ({"a": np.array([[1, 2], [3, 4]]), "b": np.float32(0.5)}, {"a": [1, 2, 3, 4], "b": [0.5]}),
        ({"a": [torch.tensor(1.0), torch.ones(2)], "b": (np.arange(2), 3)}, {"a": [1, 1, 1], "b": [0, 1, 3]}),
        (OptInfo([0.25, 0.5], [torch.tensor(3)]), {"loss": [0.25, 0.5], "gradNorm": [3]}),
        (namedarraytuple("OptInfo", ["loss"])(torch.tensor([1.0])), {"loss": [1.0]}),
        ({"a": torch.ones(1, requires_grad=True) * 2}, {"a": [2.0]}),
        ({}, {}),
    ],
)
def test_metrics_may_be_numbers_and_lists_and_a_named_tuple_of_them(given, expected):
    metrics = as_metrics(given, "DQN.optimize_agent")
    assert {name: values.flatten().tolist() for name, values in metrics.items()} == expected
    assert not any(values.requires_grad for values in metrics.values())


def test_a_window_that_is_loaded_has_every_number_once():
    window, loaded = MetricWindow(), MetricWindow()
    window.add({"loss": torch.tensor([1.0, 2.0]), "error": torch.tensor([[3.0], [4.0]])})
    for _ in range(2):  # a run may be stopped twice before a row is written
        loaded.load_state_dict(window.state_dict())
        assert loaded.of_rows == {"error"}
        loaded.add({"loss": torch.tensor([5.0])})
        window, loaded = loaded, MetricWindow()
    taken = {name: values.tolist() for name, values in window.take().items()}
    assert taken == {"loss": [1, 2, 5, 5], "error": [3, 4]}
    assert window.take() == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"DQN.optimize_agent returned None; expected a dictionary.*Return \{\} where"),
        ([1.0], r"DQN.optimize_agent returned \[1.0\]; expected a dictionary"),
        ({"loss": None}, "the metric loss is None of type NoneType.*expected a tensor, a number, or a list"),
        ({"loss": "0.5"}, "the metric loss is '0.5' of type str"),
        ({"loss": {"q": 1}}, "the metric loss is .* of type dict"),
        ({"loss": [1.0, None]}, "the metric loss is None of type NoneType"),
    ],
)
def test_what_is_no_metric_is_named(given, message):
    with pytest.raises(TypeError, match=message):
        as_metrics(given, "DQN.optimize_agent")


class Counting(A2C):
    """Gives the iteration as a metric, as an algorithm of rlpyt 0.1 does."""

    opt_info_fields = ("loss", "gradNorm")

    def optimize_agent(self, itr: int, samples: Any) -> Any:
        return OptInfo([float(itr), itr + 0.5], [])


def test_a_row_has_the_metrics_since_the_row_before(tmp_path):
    run(tmp_path, (Counting(), make_algo("ppo")[1]), n_steps=100, log_interval_steps=40)
    rows = rows_of(tmp_path)
    assert [(row["lossMin"], row["lossMax"]) for row in rows] == [("0.0", "1.5"), ("2.0", "3.5"), ("4.0", "4.5")]
    assert {row["gradNormAverage"] for row in rows} == {"nan"}


def test_one_number_that_is_not_finite_is_noticed_and_large_ones_are_not():
    large = torch.tensor([3e38, 3e38])  # their sum overflows
    assert not_finite({"a": large, "b": torch.ones(2), "c": torch.ones(0)}) == []
    for bad in (torch.inf, -torch.inf, torch.nan):
        assert not_finite({"a": torch.ones(2), "b": torch.tensor([1.0, bad, 2.0])}) == ["b"]
    assert not_finite({"a": torch.tensor([torch.inf, -torch.inf]), "b": large}) == ["a"]


# ---- trajectories ----


def test_a_trajectory_with_the_name_of_a_metric_is_refused_at_the_start(tmp_path):
    class Colliding(TrajInfo):
        def __init__(self, discount: float = 1.0) -> None:
            super().__init__(discount)
            self.entropy = 123.0

    with pytest.raises(ValueError, match=r"Colliding: its attribute entropy has the name of a metric.*Rename it"):
        run(tmp_path, "ppo", make_sampler(TrajInfoCls=Colliding))


@pytest.mark.parametrize("value", [None, [1.0, 2.0], "far"])
def test_a_statistic_that_is_no_number_is_refused_when_the_first_episode_ends(value, tmp_path):
    class Odd(TrajInfo):
        def terminate(self, observation: Any) -> TrajInfo:
            self.Odd = value
            return self

    parts = make_algo("ppo")
    with pytest.raises(TypeError, match=r"Odd: statistics of Odd for the log: .*begins with _"):
        run(tmp_path, parts, make_sampler(TrajInfoCls=Odd), n_steps=1e4, log_interval_steps=1e4)
    assert parts[0].update_counter < 20


# ---- the clock ----


@pytest.mark.parametrize("Runner", [MinibatchRl, MinibatchRlEval])
def test_speeds_count_no_evaluation(Runner, tmp_path, monkeypatch):
    now = 100.0
    for module in ("run_log", "rows"):
        monkeypatch.setattr(f"rlpyt.runners.{module}.time", SimpleNamespace(monotonic=lambda: now))
    sampler = make_sampler(eval_n_envs=2, eval_max_trajectories=2)

    def slowly(method: Any, seconds: float) -> Any:
        def call(*args: Any) -> Any:
            nonlocal now
            now += seconds
            return method(*args)

        return call

    sampler.obtain_samples = slowly(sampler.obtain_samples, 2.0)
    sampler.evaluate_agent = slowly(sampler.evaluate_agent, 1000.0)
    run(tmp_path, "ppo", sampler, Runner, n_steps=120, log_interval_steps=40)
    rows = rows_of(tmp_path)[-3:]
    assert [float(row["Diagnostics/StepsPerSecond"]) for row in rows] == [10.0] * 3
    assert [float(row["Diagnostics/UpdatesPerSecond"]) for row in rows] == [2.0] * 3
    if Runner is MinibatchRlEval:
        assert [float(row["Diagnostics/CumTrainTime"]) for row in rows] == [4.0, 8.0, 12.0]
        assert [float(row["Diagnostics/CumEvalTime"]) for row in rows] == [2000.0, 3000.0, 4000.0]


# ---- the warm-up of a replay ----


def test_an_agent_that_has_not_learned_is_evaluated_and_saved_once(tmp_path, capsys):
    """Rows of 20 steps; updates from the iteration that ends at 80 on."""
    algo = make_algo("dqn", min_steps_learn=80)
    sampler = make_sampler(eval_n_envs=2, eval_max_trajectories=2)
    run(tmp_path / "a", algo, sampler, MinibatchRlEval, log_interval_steps=20, snapshot_mode="all")
    rows = rows_of(tmp_path / "a")
    assert [row["Diagnostics/CumSteps"] for row in rows] == ["0", "20", "40", "60", "80", "100"]
    assert [row["Diagnostics/TrajsInEval"] for row in rows] == ["2", "0", "0", "0", "2", "2"]
    assert [row["ReturnAverage"] == "nan" for row in rows] == [False, True, True, True, False, False]
    assert [row["Diagnostics/CumUpdates"] == "0" for row in rows] == [True, True, True, True, False, False]
    assert capsys.readouterr().out.count("it is not evaluated again") == 1
    saved = ["itr_0.pkl", "itr_3.pkl", "itr_4.pkl"]
    assert sorted(f.name for f in (tmp_path / "a" / "run_0").glob("*.pkl")) == saved
    run(tmp_path / "b", make_algo("dqn", min_steps_learn=80), log_interval_steps=20, snapshot_mode="all")
    assert sorted(f.name for f in (tmp_path / "b" / "run_0").glob("*.pkl")) == saved
    assert len(rows_of(tmp_path / "b")) == 5


@pytest.mark.parametrize("deterministic", [False, True])
def test_evaluations_of_a_run_may_be_deterministic(deterministic, tmp_path):
    sampler = make_sampler(eval_n_envs=2, eval_max_trajectories=8, TrajInfoCls=GreedyTrajInfo)
    run(tmp_path, "ppo", sampler, MinibatchRlEval, eval_deterministic=deterministic)
    assert all((row["GreedyAverage"] == row["LengthAverage"]) == deterministic for row in rows_of(tmp_path))


# ---- the process and its directory ----


def test_threads_are_given_back(tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        run(tmp_path / "a", "ppo", settings=ComputeSettings(torch_threads=1))
        assert torch.get_num_threads() == 3
        with pytest.raises(ValueError, match="minibatches"):
            run(tmp_path / "b", make_algo("ppo", minibatches=3), settings=ComputeSettings(torch_threads=1))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_foreign_handler_of_sigterm_is_left_alone(monkeypatch):
    """Python names a handler None that it has not set itself, and cannot put it back."""
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patched, signals_as_exceptions():
        assert signal.getsignal(signal.SIGTERM) is not before
        patched.setattr(signal, "getsignal", lambda signum: None)
        own = signal.signal(signal.SIGTERM, before)
        with signals_as_exceptions():
            assert signal.signal(signal.SIGTERM, own) is before
    assert signal.getsignal(signal.SIGTERM) is before


# ---- value heads ----


@pytest.mark.parametrize(("head", "n_warnings"), [("hl_gauss:0,0.1,5", 1), ("hl_gauss:-1e4,1e4", 0), ("quantiles", 0)])
def test_a_range_that_targets_leave_is_a_column_and_warned_of_once(tmp_path, capsys, head, n_warnings):
    run(tmp_path, (A2C(), CategoricalPgAgent(value_head=head)))
    columns = rows_of(tmp_path)[-1]
    assert ("targetsOutsideAverage" in columns) == (head != "quantiles")
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("of the targets of values are outside of the range of") == n_warnings
    if n_warnings:
        assert "HLGauss(V_min=0.0, V_max=0.1, n_bins=5, sigma_ratio=0.75)" in out
        assert float(columns["targetsOutsideAverage"]) > 0.5


def test_a_head_is_made_again_from_the_record_of_a_run(tmp_path):
    head = HLGauss(-2, 3, 8)
    run(tmp_path, (A2C(), CategoricalPgAgent(value_head=head)))
    assert load_agent(tmp_path / "run_0").values == head
