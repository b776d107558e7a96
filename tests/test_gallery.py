"""The gallery of the trained agents: its page is that of the code, and its films are small and whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageSequence

from experiments import gallery

NAMES = sorted(path.name for path in gallery.TRAINED.iterdir())


def test_the_page_is_that_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "gallery.md"
    page.write_text(gallery.PAGE.read_text().replace("### cartpole_ppo", "### another"))
    text = gallery.PAGE.read_text()
    monkeypatch.setattr(gallery, "PAGE", page)
    gallery.write_page()
    agents, curves = page.read_text().split("## Over seeds")
    assert text.split("## Over seeds")[0] == agents, "write it again: python -m experiments.gallery"
    assert "(../notes/figures/cartpole.png)" in curves  # `make figures` writes the page with each picture
    assert [name for name in NAMES if f"\n### {name}\n" not in text] == []


def durations(file: Path) -> list[float]:
    """Return the seconds of the pictures of a film; those that are like the one before are joined with it."""
    with Image.open(file) as film:
        return [frame.info["duration"] / 1000 for frame in ImageSequence.Iterator(film)]


@pytest.mark.parametrize("name", NAMES)
def test_films_and_curves_are_there_and_small(name: str) -> None:
    film, curve = (gallery.PICTURES / f"{name}.{kind}" for kind in ("gif", "png"))
    assert len(durations(film)) > 20
    for file in (film, curve):
        with Image.open(file) as image:
            assert image.width >= gallery.WIDTH
        assert file.stat().st_size < 300_000


def test_a_film_has_every_second_frame_of_an_episode_at_the_pace_of_the_environment(tmp_path: Path) -> None:
    gallery.film("cartpole_ppo", tmp_path / "film.gif", max_steps=20)
    assert sum(durations(tmp_path / "film.gif")) == pytest.approx(11 * 2 / 50)  # of 21 frames: 0, 2, ..., 20
