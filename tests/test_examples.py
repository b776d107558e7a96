"""Every example runs, from a folder that is not the repository, with its --smoke flag."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlpyt.logging import load_snapshot, read_progress

EXAMPLES = Path(__file__).parent.parent / "examples"

RUNS = [[path.stem] for path in sorted(EXAMPLES.glob("*.py"))] + [
    ["ppo_cartpole", "--env", "ALE/Pong-v5", "--sample_mode", "cpu"],
    ["a2c_atari", "--sample_mode", "cpu"],
    ["a2c_atari", "--sample_mode", "gpu", "--wait_reset"],
    ["a2c_atari", "--sample_mode", "alternating"],
    ["a2c_atari", "--sample_mode", "native"],
    ["ppo_lstm", "--feed_forward"],
]


@pytest.mark.parametrize("run", RUNS, ids=" ".join)
def test_example_runs(run, tmp_path):
    script, *options = run
    process = subprocess.run(
        [sys.executable, EXAMPLES / f"{script}.py", "--smoke", *options],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    (run_dir,) = tmp_path.glob("data/*/run_0")
    assert json.loads((run_dir / "status.json").read_text())["status"] == "finished"
    progress = read_progress(run_dir)
    assert progress["Diagnostics/CumSteps"][-1] >= 500
    assert progress["Diagnostics/CumUpdates"][-1] > 0
    assert load_snapshot(run_dir / "params.pkl")["cum_steps"] == progress["Diagnostics/CumSteps"][-1]


def test_custom_environment_is_short():
    assert len((EXAMPLES / "custom_environment.py").read_text().splitlines()) < 60


def test_wrong_option_of_the_main_job_is_refused_before_anything_starts(tmp_path):
    process = subprocess.run(
        [sys.executable, EXAMPLES / "ppo_cartpole.py", "--env", "ALE/Pongg-v5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode != 0
    assert "pong" in process.stderr
    assert "EnvError" in process.stderr
