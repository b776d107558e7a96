from __future__ import annotations

import io
import json
import math
import sys

import pytest

from rlpyt.logging import Logger, ProgBarCounter, plot_progress, read_progress
from tests.logging.test_live_table import Screen


@pytest.fixture
def run_dir(tmp_path):
    logger = Logger(tmp_path)
    for i, returns in enumerate([[], [1.0, 3.0], [2.0, 6.0]]):
        logger.record_tabular("Diagnostics/CumSteps", 100 * i)
        logger.record_tabular_misc_stat("Return", returns)
        if i == 2:
            logger.record_tabular("late", "text")
        logger.dump_tabular(100 * i)
    return tmp_path


def test_read_progress(run_dir):
    progress = read_progress(run_dir)
    assert list(progress)[:2] == ["Diagnostics/CumSteps", "ReturnAverage"]
    assert progress["Diagnostics/CumSteps"] == [0.0, 100.0, 200.0]
    assert math.isnan(progress["ReturnAverage"][0])
    assert progress["ReturnAverage"][1:] == [2.0, 4.0]
    assert all(math.isnan(value) for value in progress["late"])


def test_read_progress_of_a_row_that_is_being_written(tmp_path):
    file = tmp_path / "progress.csv"
    for torn in (b"3", b"3,1", b"3,12", "3,\u00e9".encode()[:-1]):
        file.write_bytes(b"a,b\n1,2\n" + torn)
        assert read_progress(tmp_path) == {"a": [1.0], "b": [2.0]}
    file.write_text("a,b\n1,2\n3,12\n")
    assert read_progress(tmp_path) == {"a": [1.0, 3.0], "b": [2.0, 12.0]}
    file.write_text("a,")
    assert read_progress(tmp_path) == {}


def test_read_progress_of_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*progress.csv, expected a run directory"):
        read_progress(tmp_path)


@pytest.fixture
def figures(monkeypatch):
    """Return a list of the figures that are drawn from here on."""
    module = pytest.importorskip("matplotlib.figure", reason="needs the extra plot")
    found = []

    def kept_figure(**settings):
        found.append(figure_class(**settings))
        return found[-1]

    figure_class = module.Figure
    monkeypatch.setattr(module, "Figure", kept_figure)
    return found


def test_plot_draws_the_numbers(run_dir, figures):
    path = plot_progress(run_dir)
    assert path == run_dir / "learning_curve.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    plot_progress(run_dir, y="ReturnMax")
    of_average, of_maximum = (figure.axes[0] for figure in figures)
    assert of_average.lines[0].get_xydata().tolist() == [[100, 2], [200, 4]]
    [band] = of_average.collections
    ys = band.get_paths()[0].vertices[:, 1]
    assert (min(ys), max(ys)) == (1, 6)
    assert of_maximum.lines[0].get_xydata().tolist() == [[100, 3], [200, 6]]
    assert not of_maximum.collections
    assert (of_average.get_xlabel(), of_average.get_ylabel()) == ("environment steps", "ReturnAverage")


@pytest.mark.parametrize(
    ("algo", "sampler", "title"),
    [
        ("PPO", {"EnvCls": {"name": "gymnasium:make"}, "env_kwargs": {"id": "CartPole-v1"}}, "PPO on CartPole-v1 ({})"),
        ("SAC", {"env_kwargs": {"domain": "cheetah", "task": "run"}}, "SAC on cheetah-run ({})"),
        ("DQN", {"EnvCls": {"name": "my_envs:Maze"}, "env_kwargs": None}, "DQN on Maze ({})"),
        (None, None, "{}"),
    ],
)
def test_a_plot_says_what_was_trained_where(run_dir, figures, algo, sampler, title):
    record = {"algo": {"class": algo}, "runner": {"settings": {"sampler": {"settings": sampler}}}}
    (run_dir / "params.json").write_text(json.dumps(record))
    plot_progress(run_dir)
    assert figures[0].axes[0].get_title() == title.format(run_dir.name)


def test_plot_errors(run_dir, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    with pytest.raises(ValueError, match=r"got column 'Score', expected one of \['Diagnostics/CumSteps'"):
        plot_progress(run_dir, y="Score")
    with pytest.raises(ValueError, match="no run directory"):
        plot_progress(None)
    assert plot_progress(run_dir, y="late").exists()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"plot_progress.*pip install rlpyt\[plot\]"):
        plot_progress(run_dir)


def look_at(monkeypatch) -> Screen:
    """Not a fixture: pytest puts its own streams back between fixtures and test."""
    terminal = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_bar_shows_progress_and_time_left_on_a_terminal(monkeypatch):
    terminal = look_at(monkeypatch)
    now = 100.0
    monkeypatch.setattr("rlpyt.logging.progress.time.monotonic", lambda: now)
    bar = ProgBarCounter(60)
    now = 110.0
    bar.update(15)
    assert f"next row [{'█' * 7}{'░' * 23}]  25% | 0:30 left" in terminal.text
    halfway = terminal.text
    bar.update(10)
    assert terminal.text == halfway
    bar.update(60)
    bar.update(90)
    bar.stop()
    bar.stop()
    assert terminal.text.count(f"[{'█' * 30}] 100% | 0:10 in all") == 1


def test_stop_completes_a_bar_of_no_counts(monkeypatch):
    terminal = look_at(monkeypatch)
    bar = ProgBarCounter(0)
    bar.update(0)
    assert "in all" not in terminal.text
    bar.stop()
    bar.update(1)
    assert terminal.text.count("in all") == 1


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_a_bar_without_a_terminal_is_silent(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    bar = ProgBarCounter(60)
    bar.update(30)
    bar.stop()
    assert stream is None or stream.getvalue() == ""
