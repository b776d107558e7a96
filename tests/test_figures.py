"""Figures of learning: their commands, their page, and studies that are stopped and go on."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from experiments import figures, gallery
from experiments.peers import PEERS
from rlpyt.cli.algorithms import ALGORITHMS
from tests.results.grid_kit import write_run


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, path in dict(ROOT=".", DATA="data/figures", NOTES=".", PAGE="figures.md", PICTURES="figures").items():
        monkeypatch.setattr(figures, name, tmp_path / path)
    figures.PAGE.write_text(f"# Figures\n\n{figures.BEGIN}\n{figures.END}\n")
    return tmp_path


def test_every_line_is_an_algorithm_of_the_command_line_in_a_folder_of_its_own() -> None:
    for figure in figures.FIGURES.values():
        assert {line.algo for line in figure.lines if not line.is_peer} <= set(ALGORITHMS)
        assert {line.algo for line in figure.lines if line.is_peer} <= set(PEERS)
        assert len({line.name for line in figure.lines}) == len(figure.lines)


def test_a_page_has_means_over_seeds_and_keeps_the_figures_that_are_not_written_anew(folders: Path) -> None:
    for key, algo, scores in (("cartpole", "ppo", (1.0, 3.0)), ("pendulum", "sac", (-200.0,))):
        for seed, score in enumerate(scores):
            write_run(figures.DATA / key / algo / f"run_{seed}", [(90, 7.0), (100, score)], seed=seed)
    write_run(figures.DATA / "cartpole" / "a2c" / "run_0", status="killed")
    figures.report(["cartpole"])
    page = figures.PAGE.read_text()
    # 2 +- t(0.975; 1) * 1, by hand
    assert "| ppo | 2 (-10.71 to 14.71) | 2 |  | `rlpyt launch ppo CartPole-v1 --n-steps 100000" in page
    assert "a2c" not in page
    assert (figures.PICTURES / "cartpole.png").stat().st_size > 1_000
    figures.report(["pendulum"])
    both = figures.PAGE.read_text()
    assert both.index("## cartpole") < both.index("## pendulum")
    assert "| sac | -200 | 1 |" in both
    figures.report(["cartpole", "pendulum"])
    assert figures.PAGE.read_text() == both


def test_curves_of_earlier_sittings_are_kept_and_added_to(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_0 = write_run(figures.DATA / "cartpole" / "ppo" / "run_0", [(90, 7.0), (100, 1.0)], seed=0)
    figures.report(["cartpole"])
    shutil.rmtree(run_0)
    write_run(figures.DATA / "cartpole" / "ppo" / "run_1", [(90, 7.5), (100, 3.0)], seed=1)
    figures.report(["cartpole"])
    lines = (folders / "figures/cartpole.csv").read_text().split()
    assert lines == ["method,seed,step,return", "ppo,0,90,7", "ppo,0,100,1", "ppo,1,90,7.5", "ppo,1,100,3"]
    assert "| ppo | 2 (-10.71 to 14.71) | 2 |" in figures.PAGE.read_text()

    started = []

    def finishes(command: list[str], seconds: float) -> bool:
        started.append(command[4])
        return True

    monkeypatch.setattr(figures, "finishes", finishes)
    with (folders / "figures/cartpole.csv").open("a") as file:
        file.write("ppo,2,100,2\n")
    assert figures.run(["cartpole"], 1.0, None)
    assert started == [line.algo for line in figures.FIGURES["cartpole"].lines if line.algo != "ppo"]


def test_a_command_is_ended_in_order_when_the_time_is_over(tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"""
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path({str(said)!r}).write_text("stopped in order")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
    assert not figures.finishes([sys.executable, "-c", script], 2.0)
    assert said.read_text() == "stopped in order"
    assert figures.finishes([sys.executable, "-c", "pass"], 60.0)
    assert not figures.finishes([sys.executable, "-c", "raise SystemExit(1)"], 60.0)


def test_an_unknown_figure_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        figures.main(["cartpol"])
    assert "there is no figure cartpol; expected some of cartpole" in capsys.readouterr().err


@pytest.mark.usefixtures("folders")
def test_the_gallery_is_written_with_the_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(gallery, "write_page", lambda: written.append(sorted(figures.PICTURES.glob("*.png"))))
    write_run(figures.DATA / "cartpole" / "ppo" / "run_0", [(100, 7.0)])
    assert figures.main(["cartpole", "--report"]) == 0
    assert written == [[figures.PICTURES / "cartpole.png"]]
