"""Commands that look at trained agents: eval, play, plot, check-env."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlpyt.agents import PgAgent
from rlpyt.cli import main
from rlpyt.cli.play import _environment as environment_of
from rlpyt.cli.trained import Trained
from rlpyt.envs import EnvError
from rlpyt.envs.video import VideoFile, check_frames, frame_of, numbered
from rlpyt.logging import logger_context
from rlpyt.results import find_runs
from rlpyt.types import TrajInfo


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view")
    assert main(["train", "ppo", "CartPole-v1", "--n-steps", "2000", "--log-dir", str(folder)]) == 0
    return folder / "run_0"


def test_eval_counts_all_episodes_and_takes_other_arguments_of_the_environment(run, capsys):
    def told(*options):
        assert main(["eval", str(run), "--n-envs", "2", "--json", *options]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    found = told("--episodes", "5")
    assert found["episodes"] == 5
    assert found["return"] == found["length"]  # CartPole gives 1 a step
    assert found["return"]["min"] <= found["return"]["median"] <= found["return"]["max"]
    assert told("--episodes", "2", "--env-kwargs", "max_episode_steps=3")["length"]["max"] == 3


def test_play_writes_a_frame_for_each_observation(run, tmp_path, capsys, monkeypatch):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    monkeypatch.delenv("DISPLAY", raising=False)
    assert main(["play", str(run), "--video", str(tmp_path / "a.mp4")]) == 0
    steps = int(capsys.readouterr().out.splitlines()[-1].split(" steps")[0].split()[-1])
    n_frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert n_frames == steps + 1
    frames = imageio_ffmpeg.read_frames(str(tmp_path / "a.mp4"))
    width, height = next(frames)["source_size"]
    first, *_, last = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames]
    assert (height, width) == (400, 600)
    assert (first != last).any(), "the pole moves"
    assert (first.std(axis=(0, 1)) > 5).all(), "something is drawn"


def test_vector_environments_are_trained_checked_and_evaluated_but_not_shown(tmp_path, capsys):
    made = ["gymnasium:make_vec", "--env-kwargs", "id=CartPole-v1", "vectorization_mode=sync"]
    assert main(["train", "ppo", *made, "--evaluate", "--smoke", "--log-dir", str(tmp_path)]) == 0
    assert main(["check-env", *made]) == 0
    assert "cannot be restored: it is a vector environment" in capsys.readouterr().out
    run = str(tmp_path / "run_0")
    assert main(["eval", run, "--episodes", "3", "--n-envs", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 3
    assert main(["play", run, "--video", str(tmp_path / "a.mp4")]) == 2
    assert "the run has vector environments (make_vec(id='CartPole-v1'" in capsys.readouterr().err


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


class Screen(gymnasium.Env):
    """Environment that draws itself where it is made so."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None, size=3, draws=False) -> None:
        self.render_mode, self.size = "rgb_array" if draws else render_mode, size


class SilentScreen(Screen):
    def __init__(self, size=3, draws=False) -> None:
        super().__init__(None, size, draws)


def make_screen(**kwargs):
    return gymnasium.wrappers.TimeLimit(Screen(**kwargs), 10)


def make_silent(**kwargs):
    return SilentScreen(**kwargs)


class LaterScreen(Screen):
    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)


def screen(EnvCls, mode="rgb_array", given=None, **kwargs):
    return environment_of(Trained(PgAgent(), EnvCls, kwargs, TrajInfo), mode, given or {})


@pytest.mark.parametrize(
    ("EnvCls", "kwargs"),
    [
        (Screen, {"size": 4, "render_mode": None}),
        (LaterScreen, {"size": 4}),
        (partial(make_screen, size=4), {}),
        (partial(Screen, render_mode=None), {"size": 4}),
    ],
)
def test_play_lets_whatever_makes_an_environment_draw_it(EnvCls, kwargs):
    env = screen(EnvCls, **kwargs)
    assert (env.env.render_mode, env.env.unwrapped.size) == ("rgb_array", 4)
    assert screen(SilentScreen, given={"draws": True}).env.render_mode == "rgb_array"


@pytest.mark.parametrize(
    ("EnvCls", "mode", "says"),
    [
        (SilentScreen, "rgb_array", r" is None, of \['rgb_array'\]; expected 'rgb_array'. Let your class"),
        (make_silent, "rgb_array", r"Making environment 0: .* failed: .* 'render_mode'"),
        (Screen, "human", r"has no window, only \['rgb_array'\]. Write a video"),
        (lambda: 3, "rgb_array", "EnvAdapter: int has no observation_space"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_a_way_out(EnvCls, mode, says):
    with pytest.raises((ValueError, EnvError), match=says):
        screen(EnvCls, mode)


def test_odd_frames_are_filled(tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    file = VideoFile(tmp_path / "odd.mp4", 10)
    for _ in range(3):
        file.add(np.full((33, 51, 3), 200, np.uint8))
    file.close()
    assert next(imageio_ffmpeg.read_frames(str(tmp_path / "odd.mp4")))["source_size"] == (52, 34)


def test_plot_draws_and_names_close_columns(run, capsys):
    pytest.importorskip("matplotlib")
    for name, meant in (("ReturnAverag", "ReturnAverage"), ("Retrun", "ReturnAverage or"), ("Updates", "Diagnostics")):
        assert main(["plot", str(run.parent), "--y", name]) == 2
        assert f"did you mean {meant}" in capsys.readouterr().err
    assert main(["plot", str(run.parent)]) == 0
    assert (run.parent / "plots" / "curves.png").stat().st_size > 1000
    capsys.readouterr()
    assert main(["plot", str(run.parent), "--y", "Diagnostics/CumTime (s)"]) == 0  # in a folder of its own
    assert capsys.readouterr().out.splitlines()[0] == f"{run.parent}/plots/Diagnostics_CumTime__s_/curves.png"


def test_plot_takes_several_folders_and_tells_why_a_run_is_in_no_picture(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    record = {"runner": {"class": "rlpyt.runners:MinibatchRl", "settings": {"algo": {"class": "rlpyt.algos:PPO"}}}}
    for place in ("a/run_0", "a/run_1", "b/run_0", "b/run_1"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "params.json").write_text(json.dumps(record | {"own": place[0]}))
        (folder / "progress.csv").write_text("Diagnostics/CumSteps,ReturnAverage\n1,2\n")
    (tmp_path / "b/run_1/params.json").unlink()
    assert [run.name for run in find_runs(["a", "b/run_0"])] == ["a/run_0", "a/run_1", "b/run_0"]
    assert [run.name for run in find_runs(["a", "a/run_1"])] == ["run_0", "run_1"]
    assert main(["plot", "a", "b", "--page", "both.html"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "plots/curves.png"
    assert "note: b/run_1: not drawn, as its settings are not recorded\n" in err
    assert "<h1>a, b</h1>" in (tmp_path / "both.html").read_text()
    assert main(["plot", "a", "c"]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_episodes_are_written_to_the_files_that_are_named():
    assert [str(file) for file in numbered(Path("a.mp4"), 2)] == ["a_0.mp4", "a_1.mp4"]
    assert [str(file) for file in numbered(Path("films"), 1)] == ["films/episode_0.mp4"]


def test_a_run_that_failed_without_weights_is_told_so(tmp_path, capsys):
    with pytest.raises(ValueError), logger_context(tmp_path, 0, verbosity="quiet"):  # noqa: PT011
        raise ValueError("the first step was wrong")
    assert main(["eval", str(tmp_path / "run_0")]) == 2
    says = "has no weights: the run failed before the first row of its log (ValueError: the first step was wrong)."
    assert capsys.readouterr().err == f"rlpyt: {tmp_path}/run_0 {says}\n"


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


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["CartPole-v1"], 0, "saved state  exact"),
        (["tests.cli.test_view:Drawing"], 0, "It can be used."),
        (["tests.cli.test_view:Drawing", "--env-kwargs", "size=4"], 1, "expected shape (3,), got (4,)"),
        (["tests.cli.test_view:OnlyOne"], 0, "not compared, as there can be no second environment"),
    ],
)
def test_check_env_says_what_is_wrong(arguments, code, said, capsys):
    assert main(["check-env", *arguments]) == code
    assert said in capsys.readouterr().out
    assert OnlyOne.n_open == 0


@pytest.mark.parametrize(
    ("shape", "code", "said"),
    [
        ((2, 2, 3), 1, ["leave nothing of the image", "It can be used with a model of your own alone"]),
        ((3, 64, 64), 0, ["is read as   image divided by 255", "It can be used."]),
        ((64, 64), 0, ["64] flattened to 4,096 numbers", "looks like an image", "ChannelsFirst", "It can be used."]),
    ],
)
def test_check_env_builds_the_default_models(shape, code, said, capsys):
    text = ",".join(map(str, shape))
    assert (
        main(["check-env", "tests.cli.test_view:Pictures", "--env-kwargs", f"shape=[{text}]", "--steps", "4"]) == code
    )
    out = capsys.readouterr().out
    assert [words in out for words in said] == [True] * len(said)


class Pictures(Drawing):
    def __init__(self, shape: list[int]) -> None:
        images: Any = gymnasium.spaces.Box(0, 255, tuple(shape), np.uint8)
        self.observation_space = images

    def reset(self, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.uint8), {}

    def step(self, action):
        return np.zeros(self.observation_space.shape, np.uint8), 0.0, False, False, {}


class OnlyOne(Screen):
    """Environment of which a process can hold one, as of some emulators."""

    n_open = 0

    def __init__(self) -> None:
        super().__init__(size=3)
        if OnlyOne.n_open:
            raise RuntimeError("Cannot create multiple emulator instances per process")
        OnlyOne.n_open += 1

    def reset(self, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 1.0, False, True, {}

    def close(self):
        OnlyOne.n_open -= 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--sampler.batch-B", "1", "--evaluate"], "evaluation environment was made beside others .* --eval-beside"),
        (["--sampler.batch-B", "2"], "environment was made beside others .* CpuSampler"),
        (["--sampler.batch-B", "1", "--evaluate", "--eval-beside", "--sampler.eval-n-envs", "1"], ""),
    ],
)
def test_an_environment_of_which_a_process_can_hold_one_is_told_the_way_out(options, says, tmp_path, capsys):
    given = ["tests.cli.test_view:OnlyOne", "--log-dir", str(tmp_path), "--n-steps", "64", *options]
    assert main(["train", "ppo", *given, "--sampler.batch-T", "32", "--algo.minibatches", "1"]) == (2 if says else 0)
    assert re.search(says, " ".join(capsys.readouterr().err.split()))
    assert OnlyOne.n_open == 0


def test_bench_measures_the_samplers_that_are_asked_for(capsys):
    assert main(["bench", "CartPole-v1", "--sampler-type", "serial", "--batch-T", "4", "--seconds", "0.01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header, row = lines[3:5]
    assert header.split()[:3] == ["sampler", "steps/s", "us/step"]
    assert any(line.split()[0] == "float32" and line.endswith("the rule") for line in lines[5:] if line)
    name, rate, micros, *_ = row.split()
    assert name == "serial"
    assert float(rate.replace(",", "")) == pytest.approx(1e6 / float(micros), rel=0.05)
