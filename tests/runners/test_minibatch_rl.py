"""The loop of training: what it logs, keeps and repeats."""

from __future__ import annotations

import gc
import json
import re
import signal
import weakref
from dataclasses import dataclass
from itertools import takewhile
from math import inf, isfinite, nan
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from rlpyt.agents import DqnAgent, PgAgent
from rlpyt.algos import A2C, DQN, PPO
from rlpyt.core import example_inputs
from rlpyt.launching import update_config
from rlpyt.logging import load_snapshot, logger_context
from rlpyt.runners import AsyncRl, MinibatchRl, MinibatchRlEval, TrainingDiverged
from rlpyt.runners import plan as plan_module
from rlpyt.runners.plan import plan_of_job
from rlpyt.runners.run_log import divergence_hints
from rlpyt.types import TrajInfo
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import available_cpus
from tests.runners.runner_kit import (
    header_of,
    make_algo,
    make_sampler,
    nightly,
    rows_of,
    run,
    status_of,
    without_times,
)
from tests.toy_envs import CountingEnv
from tests.vector_toy_envs import DictCountingVectorEnv

STATISTICS = ("Average", "Std", "Median", "Min", "Max")
COUNTERS = [
    f"Diagnostics/{name}"
    for name in (
        "Iteration",
        "CumTime (s)",
        "CumSteps",
        "CumCompletedTrajs",
        "CumUpdates",
        "StepsPerSecond",
        "UpdatesPerSecond",
        "ReplayRatio",
        "CumReplayRatio",
    )
]
ONLINE = ["Diagnostics/NewCompletedTrajs", "Diagnostics/StepsInTrajWindow"]
EVAL = [
    f"Diagnostics/{name}"
    for name in ("StepsInEval", "TrajsInEval", "TrajsUnfinishedInEval", "CumEvalTime", "CumTrainTime")
]
TRAJ = ("Length", "Return", "NonzeroRewards", "DiscountedReturn", "GameScore")
METRICS = {
    "ppo": ("loss", "gradNorm", "entropy", "perplexity", "valueLoss", "explainedVariance", "kl", "clipFraction"),
    "dqn": ("loss", "gradNorm", "tdAbsErr"),
}
NUMBERS = {"ppo": ["Diagnostics/LearningRate"], "dqn": ["Diagnostics/LearningRate", "Diagnostics/Epsilon"]}


def columns(first: list[str], algo: str) -> list[str]:
    many = [name + statistic for name in (*TRAJ, *METRICS[algo]) for statistic in STATISTICS]
    return first + COUNTERS + NUMBERS[algo] + many


@pytest.fixture(autouse=True)
def _threads_stay():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


# ---- the log ----


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_columns_and_their_order(algo, tmp_path):
    run(tmp_path / "a", algo)
    assert header_of(tmp_path / "a") == columns(ONLINE, algo)
    sampler = make_sampler(eval_n_envs=2, eval_max_trajectories=2)
    run(tmp_path / "b", algo, sampler, MinibatchRlEval)
    assert header_of(tmp_path / "b") == columns(EVAL, algo)


def test_columns_are_the_same_where_no_trajectory_is_complete_yet(tmp_path):
    # Episodes of 33 steps: none is over in the first rows, and none ever in the second run.
    for name, length in (("some", 33), ("none", 10**6)):
        run(tmp_path / name, "ppo", make_sampler(env_kwargs={"lengths": [length]}), n_steps=200, log_interval_steps=20)
        assert header_of(tmp_path / name) == columns(ONLINE, "ppo")
    rows = rows_of(tmp_path / "some")
    assert rows[0]["ReturnAverage"] == rows_of(tmp_path / "none")[-1]["GameScoreMax"] == "nan"
    assert float(rows[-1]["LengthAverage"]) == 33
    assert all(None not in row and None not in row.values() for row in rows), "rows of unlike length"


def test_learning_rate_and_epsilon_follow_their_schedules(tmp_path):
    algo, agent = make_algo("ppo", learning_rate=1e-3)
    run(tmp_path / "ppo", (algo, agent), n_steps=200, log_interval_steps=100)  # 10 iterations of 20 steps
    rates = [float(row["Diagnostics/LearningRate"]) for row in rows_of(tmp_path / "ppo")]
    assert rates == pytest.approx([1e-3 * 0.6, 1e-3 * 0.1])  # of the updates at step 80 and at step 180
    algo, agent = make_algo("dqn", eps_steps=160, learning_rate="lin_1e-3")
    agent = agent.replace(eps_init=1, eps_final=0.1)
    sampler = make_sampler(eval_n_envs=1, eval_max_trajectories=1)
    run(tmp_path / "dqn", (algo, agent), sampler, MinibatchRlEval, n_steps=200, log_interval_steps=100)
    rows = rows_of(tmp_path / "dqn")
    assert [float(row["Diagnostics/Epsilon"]) for row in rows] == pytest.approx([1.0, 1 - 0.9 * 100 / 160, 0.1])
    assert [float(row["Diagnostics/LearningRate"]) for row in rows] == pytest.approx([1e-3, 0.6e-3, 0.1e-3])


def test_counters_of_online_training(tmp_path):
    run(tmp_path, "ppo", n_steps=130, log_interval_steps=40)
    # 7 iterations of 20 rows, logged every second one, and at the end.
    rows = rows_of(tmp_path)
    assert [row["Diagnostics/Iteration"] for row in rows] == ["2", "4", "6", "7"]
    assert [row["Diagnostics/CumSteps"] for row in rows] == ["40", "80", "120", "140"]
    assert [row["Diagnostics/CumUpdates"] for row in rows] == ["8", "16", "24", "28"]
    assert {float(row["Diagnostics/ReplayRatio"]) for row in rows} == {2.0}  # two epochs
    assert {float(row["Diagnostics/CumReplayRatio"]) for row in rows} == {2.0}
    new = [int(row["Diagnostics/NewCompletedTrajs"]) for row in rows]
    assert [int(row["Diagnostics/CumCompletedTrajs"]) for row in rows] == [sum(new[: i + 1]) for i in range(4)]
    assert all(float(row["Diagnostics/StepsPerSecond"]) > 0 for row in rows)
    times = [float(row["Diagnostics/CumTime (s)"]) for row in rows]
    assert times == sorted(times)
    assert all(isfinite(float(row["lossAverage"])) for row in rows)


def test_counters_of_evaluated_training_begin_before_the_first_step(tmp_path):
    sampler = make_sampler(eval_n_envs=2, eval_max_trajectories=5)
    run(tmp_path, "dqn", sampler, MinibatchRlEval, n_steps=120, log_interval_steps=60)
    rows = rows_of(tmp_path)
    assert [row["Diagnostics/Iteration"] for row in rows] == ["0", "3", "6"]
    assert [row["Diagnostics/CumSteps"] for row in rows] == ["0", "60", "120"]
    assert rows[0]["Diagnostics/CumUpdates"] == "0"
    assert rows[0]["lossAverage"] == rows[0]["Diagnostics/ReplayRatio"] == "nan"
    assert all(row["Diagnostics/TrajsInEval"] == "5" for row in rows)
    assert all(row["Diagnostics/TrajsUnfinishedInEval"] == "0" for row in rows)
    assert [float(row["LengthAverage"]) * 5 for row in rows] == [float(r["Diagnostics/StepsInEval"]) for r in rows]
    # Updates begin at the iteration in which 30 steps are there; 20 rows x 8 / 8 are 20 updates each.
    assert [int(row["Diagnostics/CumUpdates"]) for row in rows] == [0, 40, 100]
    for row in rows:
        total = float(row["Diagnostics/CumEvalTime"]) + float(row["Diagnostics/CumTrainTime"])
        assert total == pytest.approx(float(row["Diagnostics/CumTime (s)"]), abs=0.05)


@pytest.mark.parametrize(
    ("n_steps", "interval", "cum_steps"),
    [
        (50, 1e6, ["60"]),
        (50, inf, ["60"]),
        (1, 1, ["20"]),
        (60, 1, ["20", "40", "60"]),
        (120, 50, ["40", "80", "120"]),  # rounded down to whole iterations
        (100, 59.5, ["40", "80", "100"]),
    ],
)
def test_the_last_iteration_is_always_logged(n_steps, interval, cum_steps, tmp_path):
    run(tmp_path, "ppo", n_steps=n_steps, log_interval_steps=interval)
    assert [row["Diagnostics/CumSteps"] for row in rows_of(tmp_path)] == cum_steps


class WithoutEpsilon(DqnAgent):
    """Explores in another way."""

    def mean_epsilon(self, fraction: float, n_envs: int) -> float | None:
        return None


def test_the_column_of_the_mean_epsilon_may_be_left_out(tmp_path):
    agent = DqnAgent(eps_init=1.0, eps_final=0.1, eps_final_min=0.001)
    assert agent.mean_epsilon(0.5, 3) == pytest.approx(0.5 + 0.5 * (0.001 + 0.01 + 0.1) / 3)
    run(tmp_path, (make_algo("dqn", eps_steps=1e6)[0], WithoutEpsilon(model_kwargs={"hidden_sizes": 8})))
    assert "Diagnostics/Epsilon" not in header_of(tmp_path)


class Late(TrajInfo):
    """A statistic that not every trajectory has."""

    def terminate(self, observation: Any) -> TrajInfo:
        if self.Length == 1:
            self.Long = 1.0
        return self


def test_a_statistic_that_some_trajectories_lack_does_not_end_the_run(tmp_path):
    run(tmp_path, "ppo", make_sampler(TrajInfoCls=Late))
    assert float(rows_of(tmp_path)[-1]["LongAverage"]) == 1.0


class Solved(CountingEnv):
    """Says at every step whether the task is done: at the ends that are terminated."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _info = super().step(action)
        return observation, reward, terminated, truncated, {"is_success": terminated}


class SolvedVectorEnv(DictCountingVectorEnv):
    """n of `Solved`, whose info has a mask."""

    def __init__(self, num_envs: int, **kwargs: Any) -> None:
        super().__init__(num_envs, EnvCls=Solved, **kwargs)


@pytest.mark.parametrize("EnvCls", [Solved, SolvedVectorEnv])
def test_the_success_rate_is_the_share_of_episodes_that_end_with_it(EnvCls, tmp_path, capsys):
    ends: list[bool] = []

    class Recording(TrajInfo):
        def step(self, *args: Any) -> None:
            super().step(*args)
            if args[3]:
                ends.append(bool(args[5]["is_success"]))

    for name, TrajInfoCls in (("own", Recording), ("plain", TrajInfo)):
        sampler = make_sampler(EnvCls=EnvCls, TrajInfoCls=TrajInfoCls)
        run(tmp_path / name, "ppo", sampler, log_traj_window=1000)
        row = rows_of(tmp_path / name)[-1]
        assert 0 < sum(ends) < len(ends) == int(row["Diagnostics/CumCompletedTrajs"])
        assert float(row["SuccessAverage"]) == pytest.approx(sum(ends) / len(ends))
    assert "is_success" not in capsys.readouterr().out, "nothing says that it is left out"


# ---- the plan ----


def test_the_plan_is_printed_before_the_work(tmp_path, capsys):
    run(tmp_path, "ppo", make_sampler("cpu2"), n_steps=130)
    out = capsys.readouterr().out
    lines = takewhile(lambda line: line.startswith("  "), out[out.index("plan:\n") :].splitlines()[1:])
    cells = [re.fullmatch(r"  (\S+(?: \S+)*)( {2,})(.*)", line) for line in lines]
    shown = {cell[1]: cell[3] for cell in cells if cell}
    assert len({cell and cell.start(3) for cell in cells}) == 1, "the values stand in one column"
    expected = {
        **dict(seed="3", iterations="7", steps="140", batch="T 5 x B 4", sampler="CpuSampler", workers="2"),
        **dict(device="cpu", learning_rate="0.001 -> 0 over the run (linear_lr_schedule)"),
    }
    assert shown | expected == shown
    assert "compile" not in shown, "what is off is left out"
    assert "cautions" not in out
    assert "\x1b" not in out
    assert out.index("plan:") < out.index("CumSteps")
    plan = json.loads((tmp_path / "run_0" / "params.json").read_text())["plan"]
    assert plan["steps"] == 140
    assert plan["updates an iteration"] == 4


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [
        ("", "cpu", {"cores": "2 (SLURM job 109)"}),
        ("3,5", "cuda:0", {"cores": "2 (SLURM job 109)", "GPUs": "2, CUDA_VISIBLE_DEVICES=3,5 (SLURM job 109)"}),
    ],
)
def test_the_plan_says_what_a_job_has_given(visible, device, expected, monkeypatch):
    monkeypatch.setattr(plan_module, "available_cores", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert plan_of_job(device) == {}
    monkeypatch.setenv("SLURM_JOB_ID", "109")
    assert plan_of_job(device) == expected
    if visible:
        assert str(plan_of_job("cpu")["GPUs"]).endswith("(SLURM job 109), which this run does not learn on")


def test_cautions_stand_apart_each_once_and_warnings_are_shown_at_every_verbosity(tmp_path, capsys):
    unused = dict(pri_alpha=0.5, pri_eta=0.5, eps_steps=1e6, target_update_interval=4)
    algo, agent = make_algo("dqn", **unused)
    runner: Any = MinibatchRl(algo, agent, make_sampler(), n_steps=100, seed=3, log_interval_steps=40)
    for verbosity in ("table", "quiet"):
        with logger_context(tmp_path / verbosity, run_ID=0, verbosity=verbosity):
            runner.replace(algo=make_algo("dqn", **unused)[0], agent=make_algo("dqn")[1]).train()
        out = capsys.readouterr().out
        log = "\n".join(line.partition(" | ")[2] for line in (tmp_path / verbosity / "run_0" / "debug.log").open())
        for text in (out, log):
            [epsilon] = re.findall("WARNING: (.*)", text)
            assert "Set eps_steps to about 20, or raise n_steps" in epsilon
        assert log.count("not used") == log.count("pri_alpha, pri_eta: not used, prioritized_replay is False") == 1
        assert log.index("cautions:") > log.index("plan:")
        assert log.count("eps_steps") == 2, "in the warning alone"
        assert ("cautions:" in out) == (verbosity == "table")
        plan = json.loads((tmp_path / verbosity / "run_0" / "params.json").read_text())["plan"]
        assert plan["pri_alpha"] == "not used, prioritized_replay is False"


def test_a_seed_that_was_not_given_is_printed_and_repeats_the_run(tmp_path, capsys):
    first = run(tmp_path / "a", "ppo", seed=None)
    assert re.search(rf"^  seed +{first.seed}$", capsys.readouterr().out, re.MULTILINE)
    run(tmp_path / "b", "ppo", seed=first.seed)
    assert without_times(tmp_path / "a") == without_times(tmp_path / "b")


def test_a_copy_of_a_runner_draws_its_seed_where_the_runner_did(tmp_path):
    drawn = run(tmp_path / "a", "ppo", seed=None)
    assert drawn.replace(n_steps=100).given_seed is None
    assert update_config(drawn, {"n_steps": 100}).given_seed is None
    assert drawn.replace(seed=5).seed == 5
    assert run(tmp_path / "b", "ppo", seed=3).replace(n_steps=100).given_seed == 3


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("n_steps", n) for n in (0, -5, 0.5, nan, inf, "5")],
        *[("log_interval_steps", n) for n in (0, nan, "5")],
        *[("seed", n) for n in (1.7, -1, nan, "5")],
        *[("log_traj_window", n) for n in (0, nan)],
    ],
)
def test_steps_that_cannot_be_meant_are_refused(setting, value):
    algo, agent = make_algo("ppo")
    arguments: dict[str, Any] = {"n_steps": 10, "log_interval_steps": 5, setting: value}
    error = TypeError if isinstance(value, str) else ValueError
    with pytest.raises(error, match=f"MinibatchRl: {setting} is .*; expected a (whole )?number .*from [01]"):
        MinibatchRl(algo=algo, agent=agent, sampler=make_sampler(), **arguments)


# ---- the same again ----


@pytest.mark.parametrize(
    ("algo", "Runner", "kind"),
    [("ppo lstm", MinibatchRlEval, "cpu2"), ("dqn", MinibatchRlEval, "serial"), nightly("ppo", MinibatchRl, "cpu2")]
    + [nightly("ppo", MinibatchRl, "serial"), nightly("ppo lstm", MinibatchRl, "serial")]
    + [nightly("ppo lstm", MinibatchRl, "cpu2"), nightly("ppo lstm", MinibatchRlEval, "serial")]
    + [nightly("dqn", MinibatchRlEval, "cpu2")],
)
def test_the_same_seed_gives_the_same_log_and_one_worker_that_of_none(Runner, algo, kind, tmp_path):
    again = {"serial": "cpu1"}.get(kind, kind)
    for name, seed, where in (("a", 3, kind), ("b", 3, again), ("c", 4, kind)):
        options: dict[str, Any] = dict(start_method="here", max_decorrelation_steps=7)
        sampler = make_sampler(where, **options, eval_n_envs=2, eval_max_trajectories=3)
        run(tmp_path / name, algo, sampler, Runner, seed=seed)
    a, b, c = (without_times(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c
    assert isfinite(float(a[-1]["lossAverage"]))


def test_sampler_and_algorithm_can_run_again_and_an_agent_that_has_learned_is_not_thrown_away(tmp_path):
    algo, agent = make_algo("ppo")
    sampler = make_sampler("cpu2")
    run(tmp_path / "a", (algo, agent), sampler)
    with pytest.raises(RuntimeError, match=r"initialize was called again.*initial_model_state_dict"):
        run(tmp_path / "b", (algo, agent), sampler)
    run(tmp_path / "b", (algo, make_algo("ppo")[1]), sampler)
    rows = [without_times(tmp_path / name) for name in "ab"]
    assert [row["Diagnostics/CumSteps"] for row in rows[0]] == [row["Diagnostics/CumSteps"] for row in rows[1]]


def test_the_replay_of_an_earlier_run_is_gone_before_the_next_one_has_its_own(tmp_path):
    def earlier_replay() -> weakref.ref[Any]:
        algo, agent = make_algo("dqn")
        run(tmp_path / "a", (algo, agent))
        return weakref.ref(algo.replay_buffer)

    class Next(DQN):
        def initialize(self, agent: Any, run: Any) -> None:
            assert replay() is None
            super().initialize(agent, run)

    gc.disable()
    try:
        replay = earlier_replay()
        assert replay() is not None  # the parts refer to each other
        run(tmp_path / "b", (Next(min_steps_learn=40, replay_size=100), make_algo("dqn")[1]))
    finally:
        gc.enable()


# ---- snapshots ----


@pytest.mark.parametrize("algo", ["ppo", "ppo lstm", "dqn"])
def test_a_snapshot_is_the_agent_and_its_optimiser(algo, tmp_path):
    runner: Any = run(tmp_path, algo)
    # With weights_only, which runs no code.
    snapshot = load_snapshot(tmp_path / "run_0" / "params.pkl")
    assert set(snapshot) == {"itr", "cum_steps", "agent_state_dict", "optimizer_state_dict"}
    assert (snapshot["itr"], snapshot["cum_steps"]) == (4, 100)
    _, agent = make_algo(algo)
    agent.initialize(runner.agent.env_spaces)
    inputs = example_inputs(agent.env_spaces)
    assert not same(agent(*inputs), runner.agent(*inputs))
    agent.load_state_dict(snapshot["agent_state_dict"])
    assert same(agent(*inputs), runner.agent(*inputs))
    optimiser = torch.optim.Adam(agent.parameters(), lr=1.0)
    optimiser.load_state_dict(snapshot["optimizer_state_dict"])
    trained = runner.algo.optim_state_dict()
    for key, state in optimiser.state_dict()["state"].items():
        assert torch.equal(state["exp_avg"], trained["state"][key]["exp_avg"])


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(torch.equal(a, b))


# ---- runs that go wrong ----


@dataclass(kw_only=True, eq=False)
class NanAt(PPO):
    """Its loss is NaN from one update on."""

    nan_from: int = 0

    def loss(self, *args: Any, **kwargs: Any) -> Any:
        loss, metrics = super().loss(*args, **kwargs)
        return loss * (float("nan") if self.update_counter >= self.nan_from else 1.0), metrics


def test_a_loss_that_is_not_finite_stops_the_run_with_the_last_good_snapshot(tmp_path):
    algo = NanAt(minibatches=2, epochs=2, nan_from=14)  # four updates an iteration: in the fourth
    with pytest.raises(TrainingDiverged) as info:
        run(tmp_path, (algo, make_algo("ppo")[1]), n_steps=1000, log_interval_steps=20)
    message = str(info.value)
    for part in ("Iteration 3", "step 80", "NanAt", "gradNorm", "clip_grad_norm 1",
                 "learning_rate was 0.00094: try 9.4e-05", "normalize_reward=True"):  # fmt: skip
        assert part in message
    assert "bfloat16" not in message
    snapshot = load_snapshot(tmp_path / "run_0" / "params.pkl")
    assert snapshot["itr"] == 2
    assert all(x.isfinite().all() for x in snapshot["agent_state_dict"]["model"].values())
    assert len(rows_of(tmp_path)) == 3
    assert status_of(tmp_path)["status"] == "failed"
    assert status_of(tmp_path)["exception"]["type"] == "TrainingDiverged"


def test_the_hints_of_a_divergence_follow_from_the_settings():
    hyper = dict(learning_rate=0.02, q_learning_rate=None, clip_grad_norm=inf, q_target_clip=inf, discount=0.99)
    assert divergence_hints({"normalize_reward": False}, hyper, "bfloat16") == [
        "learning_rate was 0.02: try 0.002",
        "clip_grad_norm was inf, which clips no gradient: try 1",
        "q_target_clip was inf, which bounds no target: try the largest return that is possible",
        "rewards were as they came: try normalize_reward=True, or rewards of about 1",
        "the networks computed in bfloat16: try settings=ComputeSettings(precision='float32')",
        "look at the largest observations and rewards, and normalise them",
    ]
    tame = dict(learning_rate=0.0, clip_grad_norm=0.5, q_target_clip=100.0)
    assert len(divergence_hints({"normalize_reward": True}, tame, "float32")) == 1
    assert "-inf must leave one legal action" in divergence_hints({"double_dqn": False}, tame, "float32")[0]
    assert "clip_grad_norm was 10: try 1" in divergence_hints({}, dict(clip_grad_norm=10.0), "float32")
    rates = dict(learning_rate=0.02, alpha_learning_rate=0.02)
    assert [len(divergence_hints({"fixed_alpha": alpha}, rates, "float32")) for alpha in (None, 0.2)] == [3, 2]


class Exploding(torch.optim.SGD):
    """Takes one step to infinity, with a loss and a gradient that are finite."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        if self.steps == 3:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.fill_(float("inf"))


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    algo = A2C(OptimCls=Exploding)
    with pytest.raises(TrainingDiverged, match=r"Iteration 2 .* of A2C: the agent's weights not finite"):
        run(tmp_path, (algo, make_algo("ppo")[1]), n_steps=1000, log_interval_steps=20)
    snapshot = load_snapshot(tmp_path / "run_0" / "params.pkl")
    assert snapshot["itr"] == 1
    assert all(x.isfinite().all() for x in snapshot["agent_state_dict"]["model"].values())


def test_an_evaluation_without_environments_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(ValueError, match="eval_n_envs is 0; expected at least 1"):
        run(tmp_path, "ppo", make_sampler(), MinibatchRlEval)
    assert not (tmp_path / "run_0").exists()


# ---- the process around it ----


def test_the_handler_of_sigterm_is_put_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    run(tmp_path / "a", "ppo")
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ValueError, match="minibatches"):
        run(tmp_path / "b", make_algo("ppo", minibatches=3))
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_a_logger_context_the_console_is_all(capsys):
    algo, agent = make_algo("ppo")
    MinibatchRl(algo=algo, agent=agent, sampler=make_sampler(), n_steps=40, seed=1, settings=ComputeSettings()).train()
    assert "CumSteps" in capsys.readouterr().out


def test_affinity_is_kept_to_the_cores_that_are_allowed(tmp_path):
    process = psutil.Process()
    before = process.cpu_affinity()
    core = available_cpus()[0]
    seen: list[Any] = []

    class Seen(MinibatchRl):
        def log_row(self, n_done: int) -> None:
            seen.append(process.cpu_affinity())
            super().log_row(n_done)

    try:
        run(tmp_path / "a", "ppo", Runner=Seen, affinity={"master_cpus": [core, 99_999], "workers_cpus": [core]})
        assert seen[-1] == [core]
        assert process.cpu_affinity() == before
        with pytest.warns(UserWarning, match=r"master_cpus: this process may not run on the cores \[99999\]"):
            run(tmp_path / "b", "ppo", affinity={"master_cpus": [99_999], "set_affinity": True})
        run(tmp_path / "c", "ppo", Runner=Seen, affinity={"master_cpus": [core], "set_affinity": False})
        assert seen[-1] == process.cpu_affinity() == before
    finally:
        process.cpu_affinity(before)


@pytest.mark.skipif(len(available_cpus()) < 2, reason="one core")
@pytest.mark.parametrize("pinned", [True, False])
def test_workers_are_not_kept_to_the_cores_of_the_master(pinned):
    """Nor is one that the master, on its own cores by then, starts in place of a lost one."""
    process, before = psutil.Process(), available_cpus()
    master, other = before[:2]
    affinity: dict[str, Any] = {"master_cpus": [master], **({"workers_cpus": [other]} if pinned else {})}
    algo, agent = make_algo("ppo")
    sampler = make_sampler("cpu2", restart_workers=1)
    runner = MinibatchRl(algo, agent, sampler, n_steps=40, affinity=affinity, settings=ComputeSettings())
    try:
        runner.startup()
        assert available_cpus() == [master]
        expected = [other] if pinned else before
        assert [psutil.Process(w.pid).cpu_affinity() for w in sampler._workers.pool.workers] == [expected] * 2
        psutil.Process(sampler._workers.pool.workers[0].pid).kill()
        sampler.obtain_samples(0)
        assert sampler._workers.pool.n_restarts == 1
        assert psutil.Process(sampler._workers.pool.workers[0].pid).cpu_affinity() == expected
    finally:
        runner.shutdown()
        process.cpu_affinity(before)


@pytest.mark.parametrize(
    ("affinity", "message"),
    [
        (dict(cuda_id=0), "affinity: got cuda_id; expected some of cuda_idx, master_cpus, workers_cpus"),
        (dict(worker_cpus=[0], set_affinity=True), "got worker_cpus; expected"),
        (dict(workers_cpus=0), r"workers_cpus is 0; expected a list. Write \[0\]"),
    ],
)
def test_an_affinity_that_cannot_be_meant_is_refused(affinity, message):
    """One of rlpyt 0.1 is none of these."""
    algo, agent = make_algo("ppo")
    with pytest.raises((ValueError, TypeError), match=message):
        MinibatchRl(algo, agent, make_sampler("serial"), n_steps=40, affinity=affinity)
    old = dict(all_cpus=[0], master_cpus=[0], workers_cpus=[0], master_torch_threads=1, worker_torch_threads=1)
    MinibatchRl(algo, agent, make_sampler("serial"), n_steps=40, affinity={**old, "alternating": False})


@pytest.mark.parametrize(("discount", "logged"), [(0.9, 0.9), ("0.9", 0.9), (np.float32(0.5), 0.5), ("lin_0.8", 0.8)])
def test_trajectories_are_discounted_like_the_returns_at_first(discount, logged):
    runner = MinibatchRl(A2C(discount=discount), PgAgent(), make_sampler("serial"), n_steps=40)
    assert runner.get_traj_info_kwargs() == {"discount": pytest.approx(logged)}


def test_parts_in_another_order_are_refused():
    algo, agent = make_algo("ppo")
    with pytest.raises(
        TypeError, match=r"MinibatchRl: algo is .*CategoricalPgAgent.*expected an instance of Algorithm\. The order is"
    ):
        MinibatchRl(agent, algo, make_sampler("serial"), n_steps=40)


def test_a_sampler_that_works_in_another_process_is_named(tmp_path):
    class Own(AsyncRl):
        def log_diagnostics(self, itr: int) -> None:
            self.training.sampler.diagnostics()
            self.sampler.evaluate_agent(itr)

    with pytest.raises(RuntimeError, match=r"not running; .* another process, runner\.training\.sampler collects"):
        run(tmp_path, "ppo", make_sampler(), Own)
