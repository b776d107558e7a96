"""Pictures and the page of a study; a browser opens the page where there is one."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rlpyt.results import mean_interval, plot_curves, plot_improvement, plot_scores, plot_study, read_study, write_page
from tests.nightly.browser import PROGRAM, Browser
from tests.results.grid_kit import write_run

pytest.importorskip("matplotlib", reason="needs the extra plot")

EVIL = """"'><script>document.title='injected'</script><img src=x onerror="document.title='injected'">"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Two methods with three seeds; one run has failed after its first row, and one has an evil name and message."""
    for i, rate in enumerate((1, 2)):
        for seed in range(3):
            rows = [(100, rate + seed), (200, 10 * rate + seed)]
            failed = (i, seed) == (1, 2)
            write_run(
                tmp_path / f"grid/lr_{rate}/run_{seed}",
                rows[:1] if failed else rows,
                settings={"learning_rate": rate},
                seed=seed,
                status="failed" if failed else "finished",
                exception={"type": "ValueError", "message": EVIL},
            )
    return tmp_path / "grid"


def test_curves_are_the_mean_and_its_interval(grid):
    study = read_study(grid)
    [axes] = plot_curves(study).axes
    solid = {line.get_color(): line for line in axes.lines if line.get_linewidth() == 1.8}
    first, second = solid.values()
    assert points(first) == [[100, 2], [200, 11]]
    # At step 200 one of the three runs is missing: the solid line ends.
    np.testing.assert_array_equal(second.get_ydata(), [3, math.nan])
    dotted = [line for line in axes.lines if line.get_linewidth() == 1.4]
    assert points(dotted[1]) == [[100, 3], [200, 20.5]]
    band = axes.collections[0].get_paths()[0].vertices
    low, high = mean_interval([[1.0], [2.0], [3.0]])[1:]
    ends = [y for x, y in np.asarray(band).tolist() if x == 100]
    assert (min(ends), max(ends)) == (low[0], high[0])
    # Two runs get no band.
    assert 200 not in np.asarray(axes.collections[1].get_paths()[0].vertices)[:, 0]


def test_scores_and_improvement_are_those_of_finished_runs(grid):
    study = read_study(grid)
    axes = plot_scores(study, repetitions=50).axes
    assert [a.get_title() for a in axes] == ["interquartile mean", "mean"]
    assert [points(line)[0][0] for line in axes[1].lines] == [11, 20.5]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["learning_rate=1", "learning_rate=2"]
    [bar] = plot_improvement(study, repetitions=50).axes[0].patches
    assert bar.get_extents().width == 0


def test_of_many_methods_the_best_is_compared_with_each_other_one(tmp_path):
    for rate in range(7):
        write_run(tmp_path / f"{rate}/run_0", [(100, -abs(rate - 3))], settings={"learning_rate": rate})
    study = read_study(tmp_path)
    axes = plot_improvement(study, repetitions=2).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["learning_rate=3"] * 6
    axes = plot_scores(study).axes[0]
    assert (len(axes.lines), len(axes.patches)) == (7, 0), "one run has no interval"


@pytest.mark.parametrize(
    ("module", "draw"), [("matplotlib.figure", plot_study), ("scipy.special", plot_study), ("jinja2", write_page)]
)
def test_a_missing_package_is_named(grid, monkeypatch, module, draw):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ImportError, match=rf"package {module.partition('.')[0]} was not found.*pip install rlpyt\[plot\]"
    ):
        draw(grid)


def test_pictures_are_written_also_of_runs_that_go_on(grid, tmp_path):
    assert [path.name for path in plot_study(grid)] == ["curves.png", "scores.png", "improvement.png", "profiles.png"]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in (grid / "plots").iterdir())
    write_run(tmp_path / "new/run_0", rows=(), status="running")
    assert plot_study(tmp_path / "new", out=tmp_path / "pictures") == [tmp_path / "pictures/curves.png"]
    # Pictures of scores would be those of other runs.
    write_run(grid / "other/run_0", env="Pendulum-v1")
    assert [path.name for path in plot_study(grid)] == ["curves.png"]
    assert [path.name for path in (grid / "plots").iterdir()] == ["curves.png"]


def test_any_text_can_be_drawn(tmp_path):
    """A dollar would start a formula, a label that begins with _ would be left out."""
    for i, text in enumerate([r"$\frac$", "_hidden", "line\nbreak\x00", "x" * 500]):
        write_run(tmp_path / f"{i}/run_0", algo=text, settings={"text": text}, env=text)
    path = write_page(tmp_path)
    assert path.stat().st_size > 10_000


def points(line) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()


class Page(HTMLParser):
    """Elements and texts of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def evil_grid(grid: Path) -> Path:
    write_run(grid / f"lr_1/run_{EVIL.replace('/', '')}", env=EVIL, algo=EVIL, settings={"text": EVIL}, seed=10)
    return grid


def test_a_page_is_one_file_that_no_name_gets_into(grid):
    page = Page(write_page(evil_grid(grid)))
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == 1
    assert names.count("table") == 2
    assert [str(attributes["src"])[:26] for tag, attributes in page.tags if tag == "img"] == [
        "data:image/svg+xml;base64,"
    ]
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert not any(name in ("href", "action", "srcset") for _, attributes in page.tags for name in attributes)
    assert f"ValueError: {EVIL}" in page.texts
    [policy] = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert re.fullmatch(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-[^']+'", policy or ""
    )
    [script] = re.findall("<script>(.*)</script>", write_page(grid).read_text(encoding="utf-8"), re.DOTALL)
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in (policy or "")
    for status in ("finished", "failed"):
        assert any(status in text.split() for text in page.texts)
    # On a phone pictures and tables scroll.
    assert "@media (max-width: 44rem)" in " ".join(page.texts)
    for inner, outer in (("img", {}), ("table", {"class": "wide"})):
        assert all(page.tags[i - 1][1] == outer for i, name in enumerate(names) if name == inner)


@pytest.mark.nightly
@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
def test_a_browser_shows_and_sorts_the_page(grid):
    """Pictures load, a click sorts by number, and no script from a name runs."""
    page = write_page(evil_grid(grid))
    seeds = "[...document.querySelectorAll('#runs tbody tr')].map(row => row.cells[3].textContent).join(' ')"
    click = "document.querySelector('#runs th.number button').click()"
    with Browser() as browser:
        browser.open(page.as_uri())
        assert browser.evaluate("[...document.images].filter(image => image.naturalWidth > 100).length") == 1
        assert browser.evaluate(f"{click}; {seeds}") == "0 0 1 1 2 2 10"
        assert browser.evaluate(f"{click}; {seeds}") == "10 2 2 1 1 0 0"
        assert browser.evaluate("document.title") == "grid"
