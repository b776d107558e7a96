from __future__ import annotations

import io
import json
import math
import sys

import pytest

from rlpyt.logging import Logger, ProgBarCounter, plot_progress, read_progress


@pytest.fixture
def run_dir(tmp_path):
    logger = Logger(tmp_path)
    for i, returns in enumerate([[], [1.0, 3.0], [2.0, 6.0]]):
        logger.record_tabular("Diagnostics/CumSteps", 100 * i)
        logger.record_tabular_misc_stat("Return", returns)
        if i == 2:
            logger.record_tabular("late", "text")
            logger.record_tabular("lossAverage", 0.5)
            logger.record_tabular("lossStd", 0.1)
        logger.dump_tabular(100 * i)
    return tmp_path


def test_read_progress(run_dir):
    progress = read_progress(run_dir)
    assert list(progress)[:2] == ["Diagnostics/CumSteps", "ReturnAverage"]
    assert progress["Diagnostics/CumSteps"] == [0.0, 100.0, 200.0]
    assert math.isnan(progress["ReturnAverage"][0])
    assert progress["ReturnAverage"][1:] == [2.0, 4.0]
    assert all(math.isnan(value) for value in progress["late"])
    assert [math.isnan(value) for value in progress["lossAverage"]] == [True, True, False]


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


@pytest.mark.parametrize(
    ("y", "n_bands", "low", "high"),
    [("ReturnAverage", 1, 1.0, 6.0), ("lossAverage", 1, 0.4, 0.6), ("ReturnMax", 0, None, None)],
)
def test_plot_draws_the_numbers(run_dir, figures, y, n_bands, low, high):
    path = plot_progress(run_dir, y=y)
    assert path == run_dir / "learning_curve.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    [axes] = figures[0].axes
    [line] = axes.lines
    finite = [value for value in read_progress(run_dir)[y] if not math.isnan(value)]
    assert list(line.get_ydata()) == finite
    assert len(axes.collections) == n_bands
    if n_bands:
        ys = axes.collections[0].get_paths()[0].vertices[:, 1]
        assert (min(ys), max(ys)) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(
    ("params", "title"),
    [
        (("PPO", {"EnvCls": {"name": "gymnasium:make"}, "env_kwargs": {"id": "CartPole-v1"}}), "PPO on CartPole-v1"),
        (("SAC", {"env_kwargs": {"domain": "cheetah", "task": "run"}}), "SAC on cheetah-run"),
        (("DQN", {"EnvCls": {"name": "my_envs:Maze"}, "env_kwargs": None}), "DQN on Maze"),
        ((None, None), ""),
    ],
)
def test_a_plot_says_what_was_trained_where(run_dir, figures, params, title):
    algo, sampler = params
    record = {"algo": {"class": algo}, "runner": {"settings": {"sampler": {"settings": sampler}}}}
    (run_dir / "params.json").write_text(json.dumps(record))
    plot_progress(run_dir)
    [axes] = figures[0].axes
    assert axes.get_title() == (f"{title} ({run_dir.name})" if title else run_dir.name)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "ReturnAverage")


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


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True

    def fileno(self):
        return 2


def look_at(monkeypatch) -> Terminal:
    """Not a fixture: pytest puts its own streams back between fixtures and test."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", Terminal())
    return terminal


def test_bar_shows_progress_and_time_left_on_a_terminal(monkeypatch):
    terminal = look_at(monkeypatch)
    now = 100.0
    monkeypatch.setattr("rlpyt.logging.progress.time.monotonic", lambda: now)
    bar = ProgBarCounter(60)
    now = 110.0
    bar.update(15)
    assert f"next row [{'█' * 7}{'░' * 23}]  25% | 0:30 left\n" in terminal.getvalue()
    halfway = terminal.getvalue()
    bar.update(10)
    assert terminal.getvalue() == halfway
    bar.update(60)
    bar.update(90)
    bar.stop()
    bar.stop()
    assert terminal.getvalue().count(f"[{'█' * 30}] 100% | 0:10 in all") == 1


@pytest.mark.parametrize(("total", "count"), [(0, 0), (3, 1), (5, 0)])
def test_stop_completes_a_bar_of_few_or_no_counts(monkeypatch, total, count):
    terminal = look_at(monkeypatch)
    bar = ProgBarCounter(total)
    bar.update(count)
    assert "in all" not in terminal.getvalue()
    bar.stop()
    bar.update(total + 1)
    assert terminal.getvalue().count("in all") == 1


@pytest.mark.parametrize("stream", ["none", "closed", "dumb", "file", "gone"])
def test_a_bar_without_a_terminal_is_silent(monkeypatch, tmp_path, recwarn, stream):
    terminal = look_at(monkeypatch)
    if stream == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    elif stream != "gone":
        with open(tmp_path / "file", "w+") as file:
            monkeypatch.setattr(sys, "stderr", {"none": None, "file": io.StringIO()}.get(stream, file))
    bar = ProgBarCounter(60)
    if stream == "gone":
        terminal.close()
    bar.update(30)
    bar.stop()
    assert terminal.closed or terminal.getvalue() == ""
    assert not recwarn.list
