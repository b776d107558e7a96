"""Commands that look at trained agents: eval, play, plot, check-env."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest

from rlpyt.cli import main
from rlpyt.envs.video import check_frames, frame_of, write_video


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
    pytest.importorskip("pygame")
    monkeypatch.delenv("DISPLAY", raising=False)
    assert main(["play", str(run), "--episodes", "1", "--video", str(tmp_path / "a.mp4")]) == 0
    steps = int(capsys.readouterr().out.splitlines()[-1].split(" steps")[0].split()[-1])
    n_frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert n_frames == steps + 1
    frames = imageio_ffmpeg.read_frames(str(tmp_path / "a.mp4"))
    width, height = next(frames)["source_size"]
    first, *_, last = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames]
    assert (height, width) == (400, 600)
    assert (first != last).any(), "the pole moves"
    assert (first.std(axis=(0, 1)) > 5).all(), "something is drawn"


@pytest.mark.parametrize("name", ["BareEnv", "OldBareEnv"])
def test_play_records_environments_without_a_base_class(name, tmp_path, capsys):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    short = ["--n-steps", "64", "--log-dir", str(tmp_path), "--env-kwargs", "render_mode=rgb_array"]
    assert main(["train", "ppo", f"tests.toy_envs:{name}", *short]) == 0
    video = str(tmp_path / "a.mp4")
    assert (
        main(["play", str(tmp_path / "run_0"), "--episodes", "1", "--video", video, "--trust", "tests.toy_envs"]) == 0
    )
    assert "return 3, 3 steps" in capsys.readouterr().out
    assert imageio_ffmpeg.count_frames_and_secs(video)[0] == 4


def test_play_shows_no_vector_environment(tmp_path, capsys):
    assert main(["train", "ppo", "CartPole-v1", "--smoke", "--log-dir", str(tmp_path)]) == 0
    record = tmp_path / "run_0" / "params.json"
    record.write_text(record.read_text().replace("gymnasium:make", "gymnasium:make_vec"))
    assert main(["play", str(tmp_path / "run_0"), "--video", str(tmp_path / "a.mp4")]) == 2
    assert "is a vector environment; expected one environment" in capsys.readouterr().err


def test_a_video_without_frames_and_a_window_without_a_display_are_refused_before_a_step(run, tmp_path, capsys):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            patch.delenv(name, raising=False)
        assert main(["play", str(run)]) == 2
        assert "Write a video: --video" in capsys.readouterr().err
    with pytest.raises(ValueError, match="a video needs the render mode 'rgb_array', got None"):
        check_frames(gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match=r"returned float64 \[2, 2, 3\]; expected uint8"):
        frame_of(Drawing())


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


def test_plot_tells_why_a_run_is_in_no_picture(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "run_0").mkdir()
    (tmp_path / "run_0/progress.csv").write_text("Diagnostics/CumSteps,ReturnAverage\n1,2\n")
    assert main(["plot", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path}/plots/curves.png\n"
    assert "note: run_0: not drawn, as its settings are not recorded\n" in err


class Drawing(gymnasium.Env):
    """Environment whose rows and pictures are not what its spaces say."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int = 3) -> None:
        self.size = size

    def reset(self, seed=None, options=None):
        return np.zeros(self.size, np.float32), {}

    def step(self, action):
        return np.zeros(self.size, np.float32), 0.0, False, False, {}

    def render(self):
        return np.zeros((2, 2, 3))


def test_check_env_says_what_is_wrong(capsys):
    name = "tests.cli.test_view:Drawing"
    assert main(["check-env", name, "--env-kwargs", "size=4"]) == 1
    assert "expected shape (3,), got (4,)" in capsys.readouterr().out
    assert main(["check-env", name]) == 0


def test_bench_measures_the_samplers_that_are_asked_for(capsys):
    assert main(["bench", "CartPole-v1", "--sampler-type", "serial", "--batch-T", "4", "--seconds", "0.01"]) == 0
    *_, header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["sampler", "steps/s", "us/step"]
    name, rate, micros, *_ = row.split()
    assert name == "serial"
    assert float(rate.replace(",", "")) == pytest.approx(1e6 / float(micros), rel=0.05)
    assert main(["bench", "--sampler-type", "cup"]) == 2
    assert "expected some of serial, cpu, gpu, alternating" in capsys.readouterr().err


def test_check_env_tells_of_the_state(capsys):
    assert main(["check-env", "CartPole-v1"]) == 0
    assert "saved state  exact" in capsys.readouterr().out
