"""Commands that look at trained agents: eval, play, plot, check-env."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rlpyt.cli import main
from rlpyt.envs.video import write_video


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view")
    assert main(["train", "ppo", "CartPole-v1", "--n-steps", "2000", "--log-dir", str(folder)]) == 0
    return folder / "run_0"


def test_eval_counts_all_episodes(run, capsys):
    assert main(["eval", str(run), "--episodes", "5", "--n-envs", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["episodes"] == 5
    assert told["return"] == told["length"]  # CartPole gives 1 a step
    assert told["return"]["min"] <= told["return"]["median"] <= told["return"]["max"]


def test_play_writes_a_frame_for_each_observation(run, tmp_path, capsys, monkeypatch):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setattr(CartPoleEnv, "render", lambda self: np.full((33, 51, 3), 200, np.uint8))  # without pygame
    assert main(["play", str(run), "--episodes", "1", "--video", str(tmp_path / "a.mp4")]) == 0
    steps = int(capsys.readouterr().out.splitlines()[-1].split(" steps")[0].split()[-1])
    n_frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert n_frames == steps + 1


def test_odd_frames_are_filled(tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    write_video(tmp_path / "odd.mp4", (np.full((33, 51, 3), 200, np.uint8) for _ in range(3)), 10)
    assert next(imageio_ffmpeg.read_frames(str(tmp_path / "odd.mp4")))["source_size"] == (52, 34)
    with pytest.raises(ValueError, match="no frame"):
        write_video(tmp_path / "none.mp4", [], 10)


def test_plot_draws_and_names_close_columns(run, capsys):
    pytest.importorskip("matplotlib")
    assert main(["plot", str(run.parent), "--y", "ReturnAverag"]) == 2
    assert "did you mean ReturnAverage" in capsys.readouterr().err
    assert main(["plot", str(run.parent)]) == 0
    assert (run.parent / "plots" / "curves.png").stat().st_size > 1000


def test_check_env_tells_of_the_state(capsys):
    assert main(["check-env", "CartPole-v1"]) == 0
    assert "saved state  exact" in capsys.readouterr().out
