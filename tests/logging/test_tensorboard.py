"""TensorBoard: the group of every column, rows after a resume, and histograms."""

from __future__ import annotations

import importlib
import io
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.logging import TensorBoardSink, logger_context, read_progress
from rlpyt.logging.tensorboard_sink import tag_of
from rlpyt.results import EpisodeVideo
from rlpyt.runners import Histograms, HookError, MinibatchRl
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.seeds import global_streams
from tests.runners.runner_kit import make_algo, make_sampler, run
from tests.toy_envs import BareEnv, CountingEnv, OldBareEnv

Image = pytest.importorskip("PIL.Image", reason="needs the extra tensorboard")
accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="needs the extra tensorboard"
)


@pytest.fixture(autouse=True)
def _files_have_few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one second are read in the order of their numbers as texts: the tenth of a process before the ninth."""
    writer = "tensorboard.summary.writer.event_file_writer"
    monkeypatch.setattr(f"{writer}._global_uid", importlib.import_module(writer).AtomicCounter(0))


def events_in(directory: Path) -> Any:
    events = accumulator.EventAccumulator(str(directory), size_guidance={accumulator.HISTOGRAMS: 0})
    events.Reload()
    return events


@pytest.mark.parametrize(
    ("column", "tag"),
    [
        ("ReturnAverage", "Return/Average"),
        ("valueLossStd", "Loss/valueLoss/Std"),
        ("lossAfterMax", "Loss/lossAfter/Max"),
        ("qGradNormMin", "Gradient/qGradNorm/Min"),
        ("Diagnostics/CumTime (s)", "Time/CumTime (s)"),
        ("Diagnostics/StepsPerSecond", "Time/StepsPerSecond"),
        ("Diagnostics/DataAgeMax", "Diagnostics/DataAgeMax"),
        ("mine", "mine"),
        ("Mine/ForceMax", "Mine/Force/Max"),
        ("Max", "Max"),
        ("note/loss", "note/loss"),
    ],
)
def test_columns_are_in_groups(column, tag):
    assert tag_of(column) == tag


def test_a_run_that_goes_on_shows_each_row_once(tmp_path):
    for steps, resume in (((10, 20, 30), False), ((30, 40), True)):
        sink = TensorBoardSink(tmp_path)
        if resume:
            sink.rewind(20)
        for step in steps:
            row: dict[str, Any] = {"x": float(step + resume), "ReturnAverage": float("nan"), "note": "text"}
            sink.write(row | {"valueLossAverage": 1.0, "Loss/valueLoss/Average": 2.0}, step)
        sink.close()
    events = events_in(tmp_path)
    assert [(event.step, event.value) for event in events.Scalars("x")] == [(10, 10), (20, 20), (30, 31), (40, 41)]
    assert events.Tags()["tensors"] == ["note/text_summary"]
    values = {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"][2:]}
    # Columns of one tag are two curves.
    assert values == {"Loss/valueLoss/Average_2": [1.0] * 4, "Loss/valueLoss/Average": [2.0] * 4}


def test_histograms_of_parameters_gradients_and_actions(tmp_path):
    algo, agent = make_algo("ppo")
    settings: dict[str, Any] = dict(seed=3, log_interval_steps=40, settings=ComputeSettings())
    hooks = [Histograms(every_n_rows=2)]
    with logger_context(tmp_path, 0):
        MinibatchRl(algo, agent, make_sampler(), 120, hooks=hooks, **settings).train()
    events = events_in(tmp_path / "run_0" / "histograms")
    tags = events.Tags()["histograms"]
    names = [name for module in agent.networks.modules() for name, _ in module.named_parameters()]
    assert len([tag for tag in tags if tag.startswith("Parameters/")]) == len(names)
    assert len([tag for tag in tags if tag.startswith("Gradients/")]) == len(names)
    assert [event.step for event in events.Histograms("Actions/0")] == [40, 120]
    value = events.Histograms("Actions/0")[-1].histogram_value
    assert 10 < value.num < 20, "rows that are not valid are left out"
    assert 0 <= value.min <= value.max <= 2


class Drawn(CountingEnv):
    """Environment whose image shows how many steps the episode has had."""

    render_mode = "rgb_array"
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  as gymnasium has it

    n_drawn = 0
    canvas = np.zeros((4, 6, 3), np.uint8)  # drawn into again and again

    def reset(self, **kwargs: Any) -> Any:
        self.n_drawn = 0
        random.random(), np.random.random(), torch.rand(1)
        return super().reset(**kwargs)

    def render(self) -> Any:
        self.n_drawn += 1
        self.canvas[:] = 20 * self.n_drawn
        return self.canvas


@pytest.mark.parametrize(("n_frames", "shown"), [(500, 6), (3, 3)])
def test_videos_of_episodes_leave_the_numbers_and_the_random_streams_of_the_run(tmp_path, monkeypatch, n_frames, shown):
    moved: list[bool] = []

    def on_row(self: EpisodeVideo, *args: Any) -> None:
        before = repr(global_streams())
        write(self, *args)
        moved.append(repr(global_streams()) != before)

    write = EpisodeVideo.on_row
    monkeypatch.setattr(EpisodeVideo, "on_row", on_row)
    hook = EpisodeVideo(Drawn, {"lengths": [5]}, every_n_rows=2, n_frames=n_frames, deterministic=False)
    rows = []
    for name, hooks in (("without", []), ("with", [hook])):
        run(tmp_path / name, hooks=hooks, n_steps=120)
        columns = read_progress(tmp_path / name / "run_0")
        rows.append({key: list(x) for key, x in columns.items() if "Time" not in key and "PerSecond" not in key})
    assert repr(rows[0]) == repr(rows[1]), "repr, as nan is in it"
    assert moved == [False] * 3
    images = events_in(tmp_path / "with" / "run_0" / "video").Images("Evaluation/Episode")
    assert [image.step for image in images] == [40, 120]
    for image in images:
        video = Image.open(io.BytesIO(image.encoded_image_string))
        assert (image.width, image.height, video.n_frames) == (6, 4, shown)
        assert video.info["duration"] == 50
        assert [_gray(video, i) for i in range(shown)] == [20 * (i + 1) for i in range(shown)]


@pytest.mark.parametrize("EnvCls", [BareEnv, OldBareEnv])
def test_videos_of_any_environment_that_a_sampler_takes(tmp_path, EnvCls):
    hook = EpisodeVideo(EnvCls, {"render_mode": "rgb_array"})
    sampler = SerialSampler(EnvCls, {}, batch_T=10, batch_B=1, max_decorrelation_steps=0)
    run(tmp_path, sampler=sampler, n_steps=10, log_interval_steps=10, hooks=[hook])
    (image,) = events_in(tmp_path / "run_0" / "video").Images("Evaluation/Episode")
    video = Image.open(io.BytesIO(image.encoded_image_string))
    assert [_gray(video, i) for i in range(video.n_frames)] == [20, 40, 60, 80]


@pytest.mark.parametrize(
    ("EnvCls", "env_kwargs", "said"),
    [
        (CountingEnv, {}, "a video needs the render mode 'rgb_array', got None"),
        (BareEnv, {}, "its spaces are .*; expected those of the agent"),
        (OldBareEnv, {"no": 1}, "Making environment 0: OldBareEnv"),
    ],
)
def test_a_video_that_cannot_be_is_refused_before_the_run_starts(tmp_path, EnvCls, env_kwargs, said):
    with pytest.raises(HookError, match=said):
        run(tmp_path, hooks=[EpisodeVideo(EnvCls, env_kwargs)])
    assert not (tmp_path / "run_0" / "progress.csv").exists()


def test_a_run_that_goes_on_keeps_the_distance_of_rows(tmp_path):
    for n_steps in (120, 240):
        algo, agent = make_algo("ppo")
        options: Any = dict(seed=3, log_interval_steps=40, settings=ComputeSettings(), checkpoint_interval_steps=40)
        with logger_context(tmp_path, 0, resume="auto"):
            MinibatchRl(algo, agent, make_sampler(), n_steps, hooks=[Histograms(every_n_rows=2)], **options).train()
    found = events_in(tmp_path / "run_0" / "histograms").Histograms("Actions/0")
    assert [event.step for event in found] == [40, 120, 200]


def _gray(video: Any, i: int) -> int:
    video.seek(i)
    value: int = video.convert("RGB").getpixel((0, 0))[0]
    return value


@pytest.mark.parametrize(
    "make", [Histograms, lambda: EpisodeVideo(CountingEnv), lambda: TensorBoardSink("run")], ids=lambda make: ""
)
def test_what_needs_tensorboard_says_what_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"(Histograms|EpisodeVideo|TensorBoardSink): .*pip install rlpyt\[tensor"):
        make()
