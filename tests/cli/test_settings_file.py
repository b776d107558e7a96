"""Settings of a run in a file."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from rlpyt.cli import main
from rlpyt.cli.train import start_of
from rlpyt.runners.record import record_of

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
    for first in (["study.yaml"], ["dqn", "CartPole-v1", "--config", "more.yml"]):
        with pytest.raises(ValueError, match=r"--config: got another file beside .*; expected one"):
            start_of([*first, "--config=more.yml"])


def test_a_json_file_needs_no_package(in_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    nested = {"algorithm": "ppo", "env": "CartPole-v1", "algo": {"epochs": 3}, "sampler.batch_B": 4, "n_steps": "5e3"}
    (in_folder / "study.json").write_text(json.dumps(nested))
    runner: Any = start_of(["study.json", "--algo.minibatches", "2"]).runner
    assert (runner.algo.epochs, runner.sampler.batch_B, runner.n_steps, runner.algo.minibatches) == (3, 4, 5e3, 2)


def test_what_is_given_beside_a_file_comes_first(in_folder):
    (in_folder / "study.yaml").write_text(SETTINGS)
    beside = [
        "--n-steps",
        "1e4",
        "--no-evaluate",
        "--hooks",
        "StopOnReturn(9)",
        "--env-kwargs",
        "disable_env_checker=True",
    ]
    beside += ["--algo.learning-rate", "lin_1e-4", "--algo.no-double-dqn", "--algo.optim-kwargs", "eps=1e-2"]
    runner: Any = start_of(["study.yaml", *beside]).runner
    assert settings_of(runner) == (
        *(1e4, 3, "MinibatchRl", 9.0, "lin_1e-4", 5_000, 0.9, False, {"eps": 1e-2, "amsgrad": True}),
        *([32, 32], 8, {"id": "CartPole-v1", "max_episode_steps": 90, "disable_env_checker": True}),
    )


def test_a_recorded_run_starts_again_with_a_file(in_folder):
    record = {"runner": record_of(start_of(["ppo", "CartPole-v1"]).runner)[0], "track": ["tensorboard"]}
    (in_folder / "out/run_0").mkdir(parents=True)
    (in_folder / "out/run_0/params.json").write_text(json.dumps(record))
    (in_folder / "more.yaml").write_text("algo: {epochs: 7}\nverbosity: quiet\nn_steps: 9e3\n")
    start = start_of(["out/run_0", "--config", "more.yaml"])
    assert (vars(start.runner.algo)["epochs"], start.runner.n_steps) == (7, 9e3)
    assert (start.choices.verbosity, start.choices.track, start.has_recorded_trackers) == (
        "quiet",
        ("tensorboard",),
        True,
    )
    again = start_of(["out/run_0", "--track", "wandb"])
    assert (again.choices.track, again.has_recorded_trackers) == (("wandb",), False)


def test_the_runs_of_a_grid_have_the_settings_of_a_file(in_folder, capsys):
    (in_folder / "study.yaml").write_text("algorithm: ppo\nenv: CartPole-v1\nalgo: {epochs: 3}\n")
    assert main(["launch", "study.yaml", "--vary", "algo.gae_lambda=0.5", "--dry-run"]) == 0
    assert capsys.readouterr().out == "1 runs in data/ppo_CartPole-v1_grid:\n  gae_lambda_0.5/run_0\n"
