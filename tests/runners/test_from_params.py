"""Runs made again from their params.json, and runs that go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from rlpyt.agents import CategoricalPgAgent, SacAgent
from rlpyt.algos import A2C, PPO, SAC
from rlpyt.logging import logger_context
from rlpyt.logging.segments import CheckpointError
from rlpyt.runners import MinibatchRl, MinibatchRlEval, RecordError, compute_choice, runner_from_params
from rlpyt.runners.record import GIVEN_WEIGHTS, settings_of_all_starts
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.utils.compute import ComputeSettings
from tests.runners.runner_kit import run, without_times
from tests.toy_envs import CountingEnv

REPLAY: dict[str, Any] = dict(batch_size=8, min_steps_learn=40, replay_size=400)
SMALL: dict[str, Any] = dict(hidden_sizes=(8,))
EVAL: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=3)


def cart_pole(SamplerCls: Any = SerialSampler, **kwargs: Any) -> Any:
    return SamplerCls(gymnasium.make, dict(id="CartPole-v1"), batch_T=5, batch_B=4, **kwargs)


FAMILIES: dict[str, Any] = {
    "ppo": lambda: (
        MinibatchRl,
        PPO(learning_rate="lin_1e-3", minibatches=2, epochs=2),
        CategoricalPgAgent(model_kwargs=SMALL),
        cart_pole(CpuSampler, n_workers=2),
    ),
    "sac": lambda: (
        MinibatchRlEval,
        SAC(replay_ratio=8, **REPLAY),
        SacAgent(model_kwargs=SMALL, q_model_kwargs=SMALL),
        SerialSampler(gymnasium.make, dict(id="Pendulum-v1"), batch_T=5, batch_B=4, eval_max_steps=40, **EVAL),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_runs_made_again_from_their_records_have_the_same_logs(family, tmp_path):
    RunnerCls, algo, agent, sampler = FAMILIES[family]()
    with logger_context(tmp_path / "a", 0):
        RunnerCls(algo, agent, sampler, n_steps=200, log_interval_steps=60).train()  # with a seed that is drawn
    assert "runner_from_params must be given" not in (tmp_path / "a" / "run_0" / "debug.log").read_text()
    with logger_context(tmp_path / "b", 0):
        runner_from_params(tmp_path / "a" / "run_0").train()
    first, second = without_times(tmp_path / "a"), without_times(tmp_path / "b")
    assert len(first) >= 3
    assert first == second
    params = [json.loads((tmp_path / name / "run_0" / "params.json").read_text()) for name in "ab"]
    for p in params:
        p["runner"]["settings"].pop("settings")  # None in the first, what was chosen for it in the second
        p["runner"]["at_default"] = [name for name in p["runner"]["at_default"] if name != "settings"]
    assert params[0]["runner"] == params[1]["runner"]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    run(tmp_path, settings=None, n_steps=40)
    return tmp_path / "run_0"


def test_what_a_run_records(recorded):
    params = json.loads((recorded / "params.json").read_text())
    record = params["runner"]
    assert record["class"] == "rlpyt.runners:MinibatchRl"
    assert [record["settings"][part]["class"] for part in ("algo", "agent", "sampler")] == [
        "rlpyt.algos:PPO",
        "rlpyt.agents:CategoricalPgAgent",
        "rlpyt.samplers:SerialSampler",
    ]
    assert record["settings"]["sampler"]["settings"]["EnvCls"] == {"name": "tests.toy_envs:CountingEnv"}
    assert record["settings"]["agent"]["settings"]["model_kwargs"] == {"hidden_sizes": 8}
    assert record["settings"]["seed"] == params["plan"]["seed"] == 3
    assert params["compute"] == ComputeSettings().as_dict()


def test_settings_may_be_changed(recorded):
    runner = runner_from_params(recorded, known=[CountingEnv], n_steps=80, algo={"epochs": 7}, sampler={"batch_T": 10})
    assert isinstance(runner, MinibatchRl)
    assert (runner.n_steps, runner.seed, runner.log_interval_steps) == (80, 3, 40)
    assert (runner.algo.epochs, runner.algo.minibatches) == (7, 2)  # type: ignore[attr-defined]
    assert runner.sampler.batch_spec == (10, 4)
    assert runner.settings == ComputeSettings()  # as it was chosen
    other = PPO()
    assert runner_from_params(recorded / "params.json", known=[CountingEnv], algo=other).algo is other
    with pytest.raises(TypeError, match=r"MinibatchRl has no argument 'n_step'\. Did you mean n_steps"):
        runner_from_params(recorded, known=[CountingEnv], n_step=3)
    with pytest.raises(TypeError, match=r"'epoch'\. Did you mean epochs"):
        runner_from_params(recorded, known=[CountingEnv], algo={"epoch": 3})


def test_an_own_environment_is_handed_in(recorded):
    with pytest.raises(RecordError, match=r"sampler\.EnvCls names tests\.toy_envs:CountingEnv.*known=\[CountingEnv\]"):
        runner_from_params(recorded)
    assert runner_from_params(recorded, trusted=["tests.toy_envs"]).seed == 3


def test_a_lambda_is_named_at_the_start_and_handed_in(tmp_path, capsys):
    def make_env() -> CountingEnv:
        return CountingEnv()

    algo, agent = PPO(minibatches=2, epochs=1), CategoricalPgAgent()
    sampler = SerialSampler(lambda: make_env(), {}, batch_T=5, batch_B=4)
    run(tmp_path, (algo, agent), sampler, n_steps=40)
    out = capsys.readouterr().out
    assert out.count("runner_from_params must be given") == 1
    assert "sampler.EnvCls (" in out
    with pytest.raises(RecordError, match=r"sampler\.EnvCls was not recorded.*sampler=\{'EnvCls': \.\.\.\}"):
        runner_from_params(tmp_path / "run_0")
    with logger_context(tmp_path, 1):
        runner_from_params(tmp_path / "run_0", sampler={"EnvCls": make_env}).train()


def test_weights_are_not_in_the_record(tmp_path, capsys):
    agent = CategoricalPgAgent()
    run(tmp_path / "a", (PPO(minibatches=2, epochs=1), agent), n_steps=40)
    state = agent.state_dict()
    run(tmp_path / "b", (PPO(minibatches=2, epochs=1), CategoricalPgAgent(initial_model_state_dict=state)), n_steps=40)
    assert "agent.initial_model_state_dict (weights)" in capsys.readouterr().out
    with pytest.raises(RecordError, match=r"agent\.initial_model_state_dict was not recorded, as it is weights"):
        runner_from_params(tmp_path / "b" / "run_0", known=[CountingEnv])
    weights = {"initial_model_state_dict": state}
    given = settings_of_all_starts(runner_from_params(tmp_path / "b" / "run_0", known=[CountingEnv], agent=weights), 1)
    assert given["agent.initial_model_state_dict"] == GIVEN_WEIGHTS
    runner = runner_from_params(tmp_path / "b" / "run_0", known=[CountingEnv], agent=weights)
    with logger_context(tmp_path / "c", 0):
        runner.train()
    assert without_times(tmp_path / "b") == without_times(tmp_path / "c")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no .*params.json; expected the directory of a run"),
        ("{", "is no JSON file"),
        ("[" * 100_000, "is no JSON file"),
        ("[]", "has no record of a runner"),
        ('{"runner": {"class": "rlpyt.runners:MinibatchRl"}}', "has no record of a runner"),
        ('{"runner": {"class": 3, "settings": {}}}', "the runner has the class 3; expected a name"),
        ('{"runner": {"class": "rlpyt.algos:PPO", "settings": {}}}', "one of PPO; expected that of a runner"),
    ],
)
def test_a_file_that_is_no_record_is_refused(content, message, tmp_path):
    if content is not None:
        (tmp_path / "params.json").write_text(content)
    with pytest.raises((RecordError, FileNotFoundError), match=message):
        runner_from_params(tmp_path)


def test_a_damaged_choice_of_device_is_refused(recorded):
    params = json.loads((recorded / "params.json").read_text())
    params["compute"]["speed"] = "high"
    (recorded / "params.json").write_text(json.dumps(params))
    with pytest.raises(RecordError, match="under 'compute'"):
        runner_from_params(recorded, known=[CountingEnv])


@pytest.mark.parametrize("given", [dict(known=CountingEnv), dict(trusted="my_project")])
def test_one_name_instead_of_a_list_is_refused(given, recorded):
    with pytest.raises(TypeError, match="expected lists, such as known="):
        runner_from_params(recorded, **given)


def test_other_versions_are_named(recorded, capsys):
    params = json.loads((recorded / "params.json").read_text())
    params["versions"]["torch"] = "1.2.0"
    (recorded / "params.json").write_text(json.dumps(params))
    runner_from_params(recorded, known=[CountingEnv])
    assert "was made with torch 1.2.0 (now " in capsys.readouterr().out


# ---- runs that go on from their directory alone ----


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    agent = CategoricalPgAgent(model_kwargs=dict(hidden_sizes=8))
    sampler = SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=5, batch_B=2)
    runner = MinibatchRl(A2C(), agent, sampler, 40, log_interval_steps=10, checkpoint_interval_steps=20)
    with logger_context(tmp_path, run_ID="a_1", name="mine", snapshot_mode="gap", snapshot_gap=2):
        runner.train()
    return tmp_path / "run_a_1"


def test_the_settings_of_the_log_and_the_choice_of_threads_stay(run_dir, monkeypatch):
    before = json.loads((run_dir / "params.json").read_text())

    def choose(*args: object, **kwargs: object) -> None:
        raise AssertionError("a run that goes on keeps what was chosen")

    monkeypatch.setattr(compute_choice, "settings_by_rule", choose)
    MinibatchRl.resume(run_dir, n_steps=80)
    after = json.loads((run_dir / "params.json").read_text())
    assert after["runner"]["settings"]["settings"] is None
    assert [after[key] for key in ("name", "run_ID", "compute")] == [
        before[key] for key in ("name", "run_ID", "compute")
    ]
    kept = ("log_dir", "run_ID", "snapshot_mode", "snapshot_gap", "use_summary_writer")
    assert [after["logger"][key] for key in kept] == [before["logger"][key] for key in kept]
    assert sorted(path.stem for path in run_dir.glob("itr_*.pkl")) == [f"itr_{itr}" for itr in (0, 1, 3, 5, 7)]


def test_a_directory_of_something_else_is_refused(run_dir, tmp_path):
    with pytest.raises(TypeError, match=r"is a run of MinibatchRl; expected MinibatchRl\.resume"):
        MinibatchRlEval.resume(run_dir)
    for other in (tmp_path, tmp_path / "run_b", run_dir / "checkpoints"):
        with pytest.raises(CheckpointError, match="expected the directory of a run"):
            MinibatchRl.resume(other)
