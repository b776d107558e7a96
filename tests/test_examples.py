"""Every example runs, from a folder that is not the repository, with its --smoke flag."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlpyt import agents, algos
from rlpyt.envs import EnvError
from rlpyt.logging import load_snapshot, read_progress
from rlpyt.settings import Settings, all_settings, scheduled
from tests.pairs import others_nightly

EXAMPLES = Path(__file__).parent.parent / "examples"
ALONE = ("ppo_cartpole", "custom_environment")
"""Run by a Python of their own: the main job, nightly, and one whose workers start from nothing and import its file."""

NO_RUN = ("render", "grid", "search", "mujoco_warp_cartpole")
"""Scripts that make no run, or many; and one whose package `make nightly-warp` has alone."""

SHORTER = {
    "a2c_atari": ["--sample_mode", "gpu", "--wait_reset"],
    "cmaes_cartpole": ["--sample_mode", "serial"],
}
"""Options of an example in the suite; without them it is nightly."""
LIKE_ANOTHER = ["dqn_atari", "rainbow_atari", "r2d1_atari", "ppo_mujoco", "pendulum", "pendulum_pixels"]
LIKE_ANOTHER += ["hidden_velocity", "ppo_torchrun"]
"""Nightly: they have the parts of other examples, such as `dqn_cartpole`, `ppo_cartpole` and `qpg_mujoco`."""

SCRIPTS = [path.stem for path in sorted(EXAMPLES.glob("*.py")) if path.stem not in (*ALONE[1:], *NO_RUN)]
RUNS = [
    *([script, *SHORTER.get(script, [])] for script in SCRIPTS if script not in LIKE_ANOTHER),
    ["ppo_lstm", "--feed_forward"],
    ["vtrace_cartpole", "--lag", "1"],
    *(["schedules", "--algo", algo] for algo in ("vtrace", "dqn", "sac")),
]
NIGHTLY = [
    *([script] for script in (*SHORTER, *LIKE_ANOTHER)),
    *(["schedules", "--algo", algo] for algo in ("r2d1", "td3", "sac_fixed_alpha", "cmaes")),
    ["ppo_cartpole", "--env", "ALE/Pong-v5", "--sample_mode", "cpu"],
    ["a2c_atari", "--sample_mode", "cpu"],
    ["a2c_atari", "--sample_mode", "alternating"],
    ["a2c_atari", "--sample_mode", "native"],
    ["dqn_atari", "--lag", "2", "--sample_mode", "alternating"],
    ["dqn_atari", "--lag", "1", "--sample_mode", "native"],
    ["r2d1_atari", "--lag", "1", "--sample_mode", "serial"],
    ["ppo_mujoco", "--replicas", "2"],
    ["qpg_mujoco", "--replicas", "2", "--eval_beside"],
]


def python(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110)


def check_run(folder: Path) -> None:
    (run_dir,) = folder.glob("data/*/run_0")
    assert json.loads((run_dir / "status.json").read_text())["status"] == "finished"
    progress = read_progress(run_dir)
    assert progress["Diagnostics/CumSteps"][-1] >= 500
    assert progress["Diagnostics/CumUpdates"][-1] > 0
    assert load_snapshot(run_dir / "params.pkl")["cum_steps"] == progress["Diagnostics/CumSteps"][-1]


def launch(run_script: Callable[..., None], script: str) -> None:
    """Launch the runs of a script, each in a process of its own."""
    with pytest.raises(SystemExit) as ended:
        run_script(EXAMPLES / script, "--smoke")
    assert ended.value.code == 0


def grid_runs(folder: Path) -> dict[str, Path]:
    return {rate: folder / "data/ppo_cartpole_grid" / rate / "run_0" for rate in ("lr_1e-3", "lr_3e-4")}


@pytest.mark.nightly
def test_the_grid_runs_and_is_found_finished(run_script: Callable[..., None], tmp_path, capsys):
    for text in ("2 finished: ", "of which 2 have finished before"):
        launch(run_script, "grid.py")
        assert text in capsys.readouterr().out
    for rate, run_dir in grid_runs(tmp_path).items():
        params = json.loads((run_dir / "params.json").read_text())
        assert params["runner"]["settings"]["algo"]["settings"]["learning_rate"] == float(rate.removeprefix("lr_"))
        assert read_progress(run_dir)["Diagnostics/CumSteps"][-1] == 1024


@pytest.mark.nightly
def test_the_search_runs(run_script: Callable[..., None], tmp_path, capsys):
    launch(run_script, "search.py")
    assert "Best: trial_" in capsys.readouterr().out
    for trial in ("trial_0", "trial_1"):
        run_dir = tmp_path / "data/ppo_cartpole_search" / trial / "run_0"
        assert read_progress(run_dir)["Diagnostics/CumSteps"][-1] == 1024


@pytest.mark.parametrize("script", others_nightly(ALONE, ALONE[1:]))
def test_example_runs_as_it_is_typed(script, tmp_path):
    process = python(tmp_path, EXAMPLES / f"{script}.py", "--smoke")
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    check_run(tmp_path)


@pytest.mark.parametrize(
    "run", [*RUNS, *(pytest.param(run, marks=pytest.mark.nightly) for run in NIGHTLY)], ids=" ".join
)
def test_example_runs(run, run_script: Callable[..., None], tmp_path):
    script, *options = run
    run_script(EXAMPLES / f"{script}.py", "--smoke", *options)
    check_run(tmp_path)


def test_the_pendulum_in_tensors_is_that_of_gymnasium():
    tensors = runpy.run_path(str(EXAMPLES / "device_pendulum.py"))["Pendulum"](1)
    env: Any
    env, rng = gymnasium.make("Pendulum-v1"), np.random.default_rng(0)
    for seed in range(2):
        env.reset(seed=seed)
        tensors.reset(seed=seed)
        for _ in range(200):
            # From the same state at each step, as the error of float32 grows.
            tensors.angle, tensors.speed = torch.tensor(env.unwrapped.state[:, None], dtype=torch.float32)
            torque = rng.uniform(-2, 2, 1).astype(np.float32)
            observation, reward, terminated, truncated, _ = env.step(torque)
            *_, own_reward, own_terminated, own_truncated, info = tensors.step(torch.as_tensor(torque)[None])
            np.testing.assert_allclose(info["final_obs"][0], observation, atol=1e-5)
            assert float(own_reward) == pytest.approx(reward, abs=1e-4)
            assert (bool(own_terminated), bool(own_truncated)) == (terminated, truncated)


@pytest.mark.nightly
def test_the_pendulum_in_tensors_is_solved(run_script: Callable[..., None], tmp_path, capsys):
    run_script(EXAMPLES / "device_pendulum.py")
    last = capsys.readouterr().out.splitlines()[-1]
    assert float(last.split()[-1]) > -200, last


def test_a_run_is_rendered(run_script: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run_script(EXAMPLES / "ppo_cartpole.py", "--smoke")
    (run_dir,) = tmp_path.glob("data/*/run_0")
    capsys.readouterr()
    run_script(EXAMPLES / "render.py", str(run_dir), "--episodes", "2")
    first = capsys.readouterr().out
    assert len(re.findall(r"episode \d: return -?[\d.]+, \d+ steps", first)) == 2
    run_script(EXAMPLES / "render.py", str(run_dir), "--episodes", "2")
    assert capsys.readouterr().out == first
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    run_script(EXAMPLES / "render.py", str(run_dir), "--episodes", "1", "--video", str(tmp_path / "videos"))
    assert [path.name for path in (tmp_path / "videos").iterdir()] == ["episode_0.mp4"]


def test_every_setting_that_can_be_is_scheduled():
    example = runpy.run_path(str(EXAMPLES / "schedules.py"))
    parts = [example[kind][name]() for kind in ("ALGORITHMS", "AGENTS") for name in example["ALGORITHMS"]]
    shown = {name for part in parts for name in scheduled(type(part)) if callable(all_settings(part)[name])}
    kinds = [kind for module in (algos, agents) for kind in vars(module).values() if isinstance(kind, type)]
    assert {name for kind in kinds if issubclass(kind, Settings) for name in scheduled(kind)} == shown


def test_wrong_option_of_the_main_job_is_refused_before_anything_starts(run_script: Callable[..., None], tmp_path):
    with pytest.raises(EnvError, match="pong"):
        run_script(EXAMPLES / "ppo_cartpole.py", "--env", "ALE/Pongg-v5")
    assert not list(tmp_path.glob("data/*/run_0/progress.csv"))
