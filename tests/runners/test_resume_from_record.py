"""Runs that go on from their directory alone: with the settings of the log and of the device that they had."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import pytest

from rlpyt.agents import CategoricalPgAgent
from rlpyt.algos import A2C
from rlpyt.logging import logger_context
from rlpyt.logging.segments import CheckpointError
from rlpyt.runners import MinibatchRl, MinibatchRlEval, compute_choice
from rlpyt.samplers import SerialSampler


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
