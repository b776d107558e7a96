"""The site that `make docs` has built: links, no network, every name, and what a newcomer finds in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from docs.site.notebooks import DOCS, NOTEBOOKS
from tests.markdown import PAGES, ROOT
from tests.names_page import names_by_package
from tests.nightly.browser import PROGRAM, Browser

SITE = ROOT / "build" / "site"
HTML = sorted(SITE.rglob("*.html"))
PLAIN = [page for page in HTML if page.relative_to(SITE).parts[0] not in ("source", "404.html")]
"""Pages but those of source files, and the one that stands for every place that is not there."""
QUESTIONS = {
    "How do I train in an environment of my own?": ("own environment", "howto/own_environment"),
    "How do I go on with a run that SLURM has stopped?": ("resume slurm", "howto/resume"),
    "What does `valid` mean?": ("valid", "reference/glossary"),
    "What is the replay ratio?": ("replay ratio", "reference/glossary"),
    "Which settings does PPO have?": ("PPO settings", "reference/algorithms/ppo"),
    "How do I use a GPU?": ("GPU", "howto/cookbook"),
    "How do I load and play a trained agent?": ("trained agent play", "start/trained_agents"),
    "How do I send a run to Weights and Biases?": ("wandb", "howto/logging"),
    "How do I run several seeds and plot them?": ("seeds plot", "howto/read_results"),
    "How do I mask actions?": ("action mask", "howto/own_environment"),
}
"""A newcomer's ten questions, what to search for, and the page that must be among the first results."""
FIRST = 6
"""Results that are seen without scrolling."""

with_site = pytest.mark.skipif(not HTML, reason="make docs builds the site")
with_browser = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
pytestmark = with_site


class Links(HTMLParser):
    """What a page links to, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag == "a":
            self.links += [values["href"]] if "href" in values else []
        elif tag == "link":
            self.loads += [values["href"]] if values.get("rel") not in ("canonical", "next", "prev") else []
        self.loads += [values[name] for name in ("src", "srcset", "poster") if name in values]


@cache
def read(page: Path) -> Links:
    return Links(page)


@cache
def anchors(page: Path) -> set[str]:
    return set(re.findall(r'\b(?:id|name)="([^"]+)"', page.read_text()))


def targets(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files and anchors within the site that a page links to."""
    for link in read(page).links:
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = unquote(link).partition("#")
            yield ((page.parent / path).resolve() if path else page), anchor


def test_every_link_leads_to_a_page_and_its_anchor() -> None:
    lost = []
    for page in PLAIN:
        for target, anchor in set(targets(page)):
            if not target.exists() or (anchor and anchor not in anchors(target)):
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


def test_every_public_name_is_on_the_page_of_its_package() -> None:
    for package, names in names_by_package().items():
        text = (SITE / "reference" / "api" / f"{package}.html").read_text()
        assert [name for name in names if f">{name}<" not in text] == []


def test_entries_have_links_to_the_lines_of_their_source() -> None:
    text = (SITE / "reference" / "api" / "rlpyt.algos.html").read_text()
    lines = (ROOT / "rlpyt" / "algos" / "ppo.py").read_text().splitlines()
    [line] = re.findall(r'id="rlpyt\.algos\.PPO">.*?source/rlpyt/algos/ppo\.py\.html#L-(\d+)"', text, re.DOTALL)[:1]
    assert "class PPO" in "".join(lines[int(line) - 1 : int(line) + 1])  # its decorator comes first


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_have_outputs_and_a_file_for_jupyter(name: str) -> None:
    text = (SITE / f"{name}.html").read_text()
    assert text.count('class="output') >= 3
    assert 'src="data:image/png;base64,' in text
    notebook = json.loads((SITE / f"{name}.ipynb").read_text())
    assert notebook["nbformat"] == 4
    assert sum(len(cell.get("outputs", ())) for cell in notebook["cells"]) >= 3
    assert f'href="{Path(name).name}.ipynb"' in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def found(browser: Browser, words: str) -> list[str]:
    """Return the pages that the search shows, first ones first."""
    browser.open(f"{SITE.as_uri()}/search.html?q={quote(words)}")
    browser.wait_for(
        "document.querySelector('#search-results .search-summary, #search-results p')?.innerText.match(/found|match/)"
    )
    links = browser.evaluate("[...document.querySelectorAll('#search-results ul.search > li > a')].map(a => a.href)")
    return [link.removeprefix(f"{SITE.as_uri()}/").partition(".html")[0] for link in links]


@with_browser
@pytest.mark.parametrize(("words", "page"), QUESTIONS.values(), ids=QUESTIONS)
def test_the_search_answers_a_newcomers_question_from_files(browser: Browser, words: str, page: str) -> None:
    assert page in found(browser, words)[:FIRST]


WITH_PICTURES = sorted(
    page.relative_to(DOCS).with_suffix("").as_posix()
    for page in PAGES
    if ".svg)" in page.read_text() and page.parent != ROOT
)


@with_browser
@pytest.mark.parametrize("name", WITH_PICTURES)
def test_the_words_of_pictures_can_be_read_on_a_phone(browser: Browser, name: str) -> None:
    browser.open(f"{SITE.as_uri()}/{name}.html", 390, 844)
    drawn = "[...document.querySelectorAll('.content img[src$=\".svg\"]')]"
    assert set(browser.evaluate(f"{drawn}.map(image => image.width / image.naturalWidth)")) == {1}
    # The paragraph scrolls, and not the page.
    assert set(browser.evaluate(f"{drawn}.map(image => getComputedStyle(image.parentNode).overflowX)")) == {"auto"}
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390


@with_browser
def test_pictures_are_dark_where_the_button_of_the_page_says_so(browser: Browser) -> None:
    browser.open(f"{SITE.as_uri()}/{WITH_PICTURES[0]}.html", dark=False)
    for theme in ("dark", "light"):
        browser.evaluate(f"document.body.dataset.theme = '{theme}'")
        scheme = "getComputedStyle(document.querySelector('.content img[src$=\".svg\"]')).colorScheme"
        assert browser.evaluate(scheme) == theme


LOOKED_AT = (
    "start/gallery",
    "start/first_run",
    "index",
    "reference/algorithms/ppo",
    "reference/api/rlpyt.algos",
    "howto/replay",
    "search",
)


@with_browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_no_page_is_wider_than_the_screen(browser: Browser, name: str, width: int) -> None:
    browser.open(f"{SITE.as_uri()}/{name}.html", width, dark=width < 600)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)") == []
    assert "rlpyt" in browser.evaluate("document.title")
