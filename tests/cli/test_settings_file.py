"""Settings of a run in a file, and that the same text means the same wherever it is given."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from rlpyt.cli import main
from rlpyt.cli.train import start_of

pytest.importorskip("yaml")

SETTINGS = """
algorithm: dqn
env: CartPole-v1
n_steps: 2e4
seed: 3
evaluate: true
name: study
hooks: [StopOnReturn(475)]
env_kwargs: {max_episode_steps: 90}
algo:
  learning_rate: 1e-3        # a text for YAML 1.1
  eps-steps: 5_000
  discount: '0.9'
  double_dqn: true
  optim_kwargs: {eps: 1e-4, amsgrad: true}
agent.model_kwargs: {hidden_sizes: [32, 32]}
sampler.batch_B: 8
sampler.eval_env_kwargs: None
"""


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_of(runner: Any) -> tuple[object, ...]:
    algo, sampler = runner.algo, runner.sampler
    return (
        *(runner.n_steps, runner.given_seed, type(runner).__name__, runner.hooks[0].threshold),
        *(algo.learning_rate, algo.eps_steps, algo.discount, algo.double_dqn, algo.optim_kwargs),
        *(list(vars(runner.agent)["model_kwargs"]["hidden_sizes"]), sampler.batch_B, sampler.env_kwargs),
    )


WANTED = (
    *(2e4, 3, "MinibatchRlEval", 475.0, 1e-3, 5_000, 0.9, True, {"eps": 1e-4, "amsgrad": True}),
    *([32, 32], 8, {"id": "CartPole-v1", "max_episode_steps": 90}),
)


def test_a_yaml_file_is_the_command_line_written_down(in_folder):
    (in_folder / "study.yaml").write_text(SETTINGS)
    start = start_of(["study.yaml"])
    assert settings_of(start.runner) == WANTED
    assert start.choices.name == "study"
    (in_folder / "more.yml").write_text(SETTINGS.replace("algorithm: dqn\nenv: CartPole-v1\n", ""))
    assert settings_of(start_of(["dqn", "CartPole-v1", "--config", "more.yml"]).runner) == WANTED
    assert settings_of(start_of(["dqn", "CartPole-v1", "--config=more.yml"]).runner) == WANTED


def test_a_json_file_needs_no_package(in_folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "yaml", None)
    nested = {"algorithm": "ppo", "env": "CartPole-v1", "algo": {"epochs": 3}, "sampler.batch_B": 4, "n_steps": "5e3"}
    (in_folder / "study.json").write_text(json.dumps(nested))
    runner: Any = start_of(["study.json", "--algo.minibatches", "2"]).runner
    assert (runner.algo.epochs, runner.sampler.batch_B, runner.n_steps, runner.algo.minibatches) == (3, 4, 5e3, 2)
    (in_folder / "study.yaml").write_text(SETTINGS)
    assert main(["train", "study.yaml"]) == 2
    assert capsys.readouterr().err.endswith(
        "reading YAML needs PyYAML: pip install pyyaml. A JSON file does without.\n"
    )


def test_what_is_given_beside_a_file_comes_first(in_folder):
    (in_folder / "study.yaml").write_text(SETTINGS)
    beside = ["--n-steps", "1e4", "--no-evaluate", "--hooks", "StopOnReturn(9)", "--env-kwargs", "max_episode_steps=7"]
    beside += ["--algo.learning-rate", "lin_1e-4", "--algo.no-double-dqn", "--algo.optim-kwargs", "eps=1e-2"]
    runner: Any = start_of(["study.yaml", *beside]).runner
    assert settings_of(runner) == (
        *(1e4, 3, "MinibatchRl", 9.0, "lin_1e-4", 5_000, 0.9, False, {"eps": 1e-2, "amsgrad": True}),
        *([32, 32], 8, {"id": "CartPole-v1", "max_episode_steps": 7}),
    )


def test_a_recorded_run_starts_again_with_a_file(in_folder, capsys):
    assert main(["train", "ppo", "CartPole-v1", "--smoke", "--log-dir", "out"]) == 0
    (in_folder / "more.yaml").write_text("algo: {epochs: 7}\nverbosity: quiet\n")
    start = start_of(["out/run_0", "--config", "more.yaml"])
    assert vars(start.runner.algo)["epochs"] == 7
    assert start.choices.verbosity == "quiet"


def test_the_runs_of_a_grid_have_the_settings_of_a_file(in_folder, capsys):
    (in_folder / "study.yaml").write_text("algorithm: ppo\nenv: CartPole-v1\nalgo: {epochs: 3}\n")
    assert main(["launch", "study.yaml", "--vary", "algo.gae_lambda=0.5", "--dry-run"]) == 0
    assert capsys.readouterr().out == "1 runs in data/ppo_CartPole-v1_grid:\n  gae_lambda_0.5/run_0\n"
    (in_folder / "seed.yaml").write_text("seed: 3")
    assert main(["launch", "ppo", "CartPole-v1", "--config", "seed.yaml"]) == 2
    assert "--vary seed=5,6" in capsys.readouterr().err
