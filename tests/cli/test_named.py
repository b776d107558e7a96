"""Hooks and trackers that the command line names, and the settings of the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rlpyt.cli import main
from rlpyt.cli.named import recorded_trackers, tracking_of
from rlpyt.cli.train import start_of
from rlpyt.logging.tracker_sink import TrackerSink
from rlpyt.results import find_runs
from rlpyt.settings import all_settings

SHORT = ["--n-steps", "64", "--sampler.batch-T", "8", "--verbosity", "quiet"]


def params_of(run: str) -> Any:
    return json.loads((Path(run) / "params.json").read_text())


# ---- hooks ----


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        (["StopOnReturn(5e2,n_rows=2)"], [{"threshold": 500.0, "column": "ReturnAverage", "n_rows": 2}]),
        (["StopOnReturn(threshold=1, column=Diagnostics/CumSteps)"], [{"column": "Diagnostics/CumSteps"}]),
        (["StopOnReturn(1),StopOnReturn(2)", "StopOnReturn(3)"], [{"threshold": x} for x in (1.0, 2.0, 3.0)]),
    ],
)
def test_hooks_are_named_with_their_settings(texts, settings):
    hooks = map(all_settings, start_of(["ppo", "CartPole-v1", "--hooks", *texts]).runner.hooks)
    assert all(wanted.items() <= found.items() for found, wanted in zip(hooks, settings, strict=True))


@pytest.mark.parametrize("change", [[], ["--sampler.env-kwargs", "max_episode_steps=9"]])
def test_a_video_is_of_the_environment_of_evaluations(change):
    pytest.importorskip("tensorboard")
    (hook,) = start_of(["ppo", "CartPole-v1", "--hooks", "EpisodeVideo(every_n_rows=2)", *change]).runner.hooks
    kwargs = {"id": "CartPole-v1", "render_mode": "rgb_array", **({"max_episode_steps": 9} if change else {})}
    assert all_settings(hook)["env_kwargs"] == kwargs
    assert all_settings(hook)["every_n_rows"] == 2


def test_hooks_are_recorded_and_start_again_with_the_run(tmp_path, capsys):
    hooks = ["--hooks", "StopOnReturn(30,column=Diagnostics/CumSteps)"]
    steps = ["--log-interval-steps", "1", "--n-steps", "192", "--log-dir", str(tmp_path)]
    assert main(["train", "ppo", "CartPole-v1", *SHORT, *steps, *hooks]) == 0
    run = tmp_path / "run_0"
    assert "was to be reached" in json.loads((run / "status.json").read_text())["stopped"]
    assert all_settings(start_of([str(run)]).runner.hooks[0])["threshold"] == 30
    assert main(["show", str(run)]) == 0
    assert "hooks = StopOnReturn(threshold=30,column=Diagnostics/CumSteps)" in capsys.readouterr().out
    assert all_settings(start_of([str(run), "--hooks", "StopOnReturn(40)"]).runner.hooks[0])["threshold"] == 40


# ---- trackers ----


@dataclass(eq=False)
class FakeSink(TrackerSink):
    """Tracker that keeps what it was given."""

    kind: ClassVar[str] = "wandb"
    opened: ClassVar[list[tuple[str, str | None, str | None]]] = []
    steps: ClassVar[list[int]] = []

    project: str
    group: str | None = None
    tracking_uri: str | None = None
    entity: str | None = None

    def open(self, directory: Path, known: str | None) -> str:
        self.opened.append((self.project, self.group, known))
        return known or "the-run"

    def log_settings(self, params: Mapping[str, object]) -> None:
        pass

    def log(self, row: Mapping[str, object], step: int) -> None:
        self.steps.append(step)


@pytest.fixture
def fake(monkeypatch):
    FakeSink.opened.clear()
    FakeSink.steps.clear()
    monkeypatch.setattr("rlpyt.cli.named.WandbSink", FakeSink)
    return FakeSink


def test_a_run_goes_on_in_its_trackers_and_starts_again_with_them(fake, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    folder = tmp_path / "of_seeds"
    given = ["--log-dir", str(folder), "--track", "wandb(project=mine)", "tensorboard", "--snapshot-mode", "all"]
    given += ["--line-columns", "gradNorm", "entropy"]
    assert main(["train", "ppo", "CartPole-v1", *SHORT, *given]) == 0
    run = folder / "run_0"
    assert fake.opened == [("mine", "of_seeds", None)]
    assert params_of(run)["track"] == ["wandb(project=mine)", "tensorboard"]
    n_files = len([*run.glob("events.out.*")])
    assert n_files == 1

    steps = [*fake.steps]
    assert main(["resume", str(run), "--n-steps", "128"]) == 0
    assert fake.opened[1:] == [("mine", "of_seeds", "the-run")]
    assert fake.steps[: len(steps)] == steps
    assert fake.steps == sorted({*fake.steps})
    assert len([*run.glob("events.out.*")]) == 2
    assert "plan:" not in capsys.readouterr().out, "it stays quiet"

    assert main(["train", str(run), "--smoke"]) == 0
    assert fake.opened[2:] == [("mine", "of_seeds", None)]
    logger = params_of(folder / "run_1")["logger"]
    assert logger["line_columns"] == ["gradNorm", "entropy"]
    assert (logger["use_summary_writer"], logger["verbosity"], logger["snapshot_mode"]) == (True, "quiet", "all")
    # Where rows go is no setting of the method.
    assert "track" not in find_runs(folder)[0].settings


def test_a_resumed_run_can_be_given_a_tracker_and_be_heard(fake, tmp_path, capsys):
    assert main(["train", "ppo", "CartPole-v1", *SHORT, "--log-dir", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "run_0"), "--track", "wandb", "--verbosity", "table"]) == 0
    assert fake.opened == [("ppo_CartPole-v1", tmp_path.name, None)]
    assert "A larger n_steps lets it go on" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["tracking_uri=http://elsewhere", "entity=others"])
def test_a_record_does_not_choose_where_rows_are_sent(place, fake):
    text = f"wandb({place})"
    assert len(tracking_of([text], "p", "g").sinks) == 1
    with pytest.raises(ValueError, match=r"expected no (tracking_uri|entity), as a record must not choose where"):
        tracking_of([text], "p", "g", recorded=True)
    for track in ("wandb", [3], [["wandb"]]):
        with pytest.raises(ValueError, match="expected a list of trackers"):
            recorded_trackers({"track": track})
    with pytest.raises(ValueError, match="Expected some of tensorboard"):
        recorded_trackers({"track": ["os:system"]})
