"""The site that `make docs` has built: links, no network, every name, and what a newcomer finds in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from tests.markdown import PAGES, ROOT
from tests.names_page import names_by_package
from tests.nightly.browser import PROGRAM, Browser

SITE = ROOT / "build" / "site"
HTML = sorted(SITE.rglob("*.html"))
QUESTIONS = {
    "How do I train in an environment of my own?": ("own environment", "howto/own_environment"),
    "How do I go on with a run that SLURM has stopped?": ("resume slurm", "howto/resume"),
    "What does `valid` mean?": ("valid", "reference/glossary"),
    "What is the replay ratio?": ("replay ratio", "reference/glossary"),
    "Which settings does PPO have?": ("PPO settings", "reference/algorithms/ppo"),
    "How do I use a GPU?": ("GPU", "howto/speed"),
    "How do I load and play a trained agent?": ("trained agent play", "start/trained_agents"),
    "How do I send a run to Weights and Biases?": ("wandb", "howto/logging"),
    "How do I run several seeds and plot them?": ("seeds plot", "howto/results"),
    "How do I mask actions?": ("action mask", "howto/own_environment"),
}
"""A newcomer's ten questions, what to search for, and the page that must be among the first results."""
FIRST = 6
"""Results that are seen without scrolling."""

with_site = pytest.mark.skipif(not HTML, reason="make docs builds the site")
with_browser = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
pytestmark = with_site


class Links(HTMLParser):
    """What a page links to, loads, and has as anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a":
            self.links += [values["href"]] if "href" in values else []
        elif tag == "link":
            self.loads += [values["href"]] if values.get("rel") not in ("canonical", "next", "prev") else []
        self.loads += [values[name] for name in ("src", "srcset", "poster") if name in values]


@cache
def read(page: Path) -> Links:
    return Links(page)


def targets(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files and anchors within the site that a page links to."""
    for link in read(page).links:
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = unquote(link).partition("#")
            yield ((page.parent / path).resolve() if path else page), anchor


def test_every_link_leads_to_a_page_and_its_anchor() -> None:
    lost = []
    for page in HTML:
        for target, anchor in targets(page):
            target = target / "index.html" if target.is_dir() else target
            if page.name == "404.html":
                continue
            if not target.exists() or (anchor and anchor not in read(target).anchors):
                lost.append((str(page.relative_to(SITE)), str(target), anchor))
    assert lost == []


def test_no_page_loads_anything_from_a_network() -> None:
    loads = {(page.name, url) for page in HTML for url in read(page).loads}
    assert len(loads) > 100
    assert [(page, url) for page, url in loads if re.match(r"(\w+:)?//", url)] == []
    sheets = "".join(sheet.read_text() for sheet in SITE.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:\w+:)?//[^)]*", sheets) == []


def test_every_page_of_docs_is_a_page_of_the_site() -> None:
    names = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in PAGES if page.name != "README.md"]
    assert [name for name in names if not (SITE / name).exists()] == []


def test_every_public_name_has_an_entry_with_its_source() -> None:
    entries: dict[str, set[str]] = {}
    for package in names_by_package():
        page = SITE / "reference" / "api" / f"{package}.html"
        text = page.read_text()
        sources = set(re.findall(r'href="\.\./\.\./(source/rlpyt/[\w/]+\.py\.html#L-\d+)"', text))
        assert sources or package == "rlpyt"
        entries[package] = read(page).anchors
    known = set().union(*entries.values())
    short = {anchor.rpartition(".")[2] for anchor in known if anchor.startswith("rlpyt.")}
    assert [name for names in names_by_package().values() for name in names if name not in short] == []


def test_moved_pages_lead_to_the_new_ones() -> None:
    text = (SITE / "own_environment.html").read_text()
    assert 'url=howto/own_environment.html"' in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def found(browser: Browser, words: str) -> list[str]:
    """Return the pages that the search shows, first ones first."""
    browser.open(f"file://{SITE}/search.html?q={quote(words)}")
    browser.wait_for(
        "document.querySelector('#search-results .search-summary, #search-results p')?.innerText.match(/found|match/)"
    )
    links = browser.evaluate("[...document.querySelectorAll('#search-results ul.search > li > a')].map(a => a.href)")
    return [re.sub(rf".*{SITE}/|\.html.*", "", link) for link in links]


@with_browser
@pytest.mark.parametrize(("words", "page"), QUESTIONS.values(), ids=QUESTIONS)
def test_the_search_answers_a_newcomers_question_from_files(browser: Browser, words: str, page: str) -> None:
    assert page in found(browser, words)[:FIRST]


LOOKED_AT = ("index", "reference/algorithms/ppo", "reference/api/rlpyt.algos", "howto/replay", "search")


@with_browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_no_page_is_wider_than_the_screen(browser: Browser, name: str, width: int) -> None:
    browser.open(f"file://{SITE}/{name}.html", width, dark=width < 600)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)") == []
    assert "rlpyt" in browser.evaluate("document.title")
