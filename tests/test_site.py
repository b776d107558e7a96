"""What the site of the documentation is made of, without Sphinx; `make docs` tests what was built of it."""

from __future__ import annotations

import json
import re
from os.path import normpath
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.site.docstrings import as_rest, rest_of, settings_tables
from docs.site.names import homes, short_names, target_of
from docs.site.notebooks import BLOCK, NOTEBOOKS, as_jupyter, outputs_of, with_outputs
from docs.site.pages import DOCS, OF_PROJECT, algorithms_page, package_page, project_page, shelves, start_page
from rlpyt.agents import R2d1Agent
from rlpyt.algos import PPO, R2D1
from rlpyt.settings import settings_by_group
from tests.markdown import PAGES, ROOT
from tests.names_page import names_by_package


def test_every_page_is_on_one_shelf_in_the_order_of_the_readme() -> None:
    found = shelves()
    assert [shelf.title for shelf in found] == ["Start", "How to", "Reference", "Notes"]
    names = [name for shelf in found for name in shelf.pages]
    assert len(names) == len(set(names))
    assert {DOCS / f"{name}.md" for name in names} == {p for p in PAGES if p.name != "README.md"}
    assert names[0] == "start/tutorial"


def test_the_start_page_lists_all_shelves_and_leaves_the_names_of_folders_out() -> None:
    page = start_page()
    assert re.findall(":caption: (.*)", page) == ["Start", "How to", "Reference", "Notes", "Project"]
    assert re.findall("^## (.*)", page, re.MULTILINE) == ["Start", "How to", "Reference", "Notes"]
    assert page.startswith("# rlpyt\n")


@pytest.mark.parametrize("file", OF_PROJECT)
def test_pages_of_the_project_keep_their_links(file: str) -> None:
    place = (DOCS / OF_PROJECT[file]).parent  # which is there once a site was built
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", project_page(file))
    assert [link for link in links if "://" not in link and not Path(normpath(place / link)).exists()] == []


def test_the_lock_of_the_site_has_what_the_extra_asks_for() -> None:
    [extra] = re.findall(r'extras\["docs"\] = \[(.*)\]', (ROOT / "setup.py").read_text())
    lines = (ROOT / ".ci" / "docs.lock").read_text().splitlines()
    lock = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    wanted = [Requirement(text) for text in re.findall('"(.*?)"', extra)]
    assert len(wanted) == 4
    assert all(r.specifier.contains(lock[canonicalize_name(r.name)]) for r in wanted)
    versions = (ROOT / ".ci" / "requirements.lock").read_text().lower()
    assert [name for name in lock if f"\n{name}==" in versions] == [], "two locks, two versions"


# ---- the reference ----


def test_every_public_name_has_an_entry_in_one_package() -> None:
    text = {package: package_page(package, names) for package, names in names_by_package().items()}
    for path in homes().values():
        package, _, name = path.rpartition(".")
        assert re.search(rf"^\.\. (auto\w+|py:data):: {name}$", text[package], re.MULTILINE), path


def test_a_name_is_a_link_unless_it_is_that_of_a_setting_or_of_two_things() -> None:
    assert target_of("PPO") == "rlpyt.algos.PPO"
    assert target_of("PPO.learn") == "rlpyt.algos.PPO.learn"
    assert target_of("R2d1Agent") == homes()[id(R2d1Agent)]
    assert "n_step_return" not in short_names()  # a function, and a setting of every replay
    assert target_of("PPO()") is target_of("batch_T") is None


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("a `b c`", "a ``b c``"),
        ("of `PPO`s", r"of :py:obj:`PPO <rlpyt.algos.PPO>`\ s"),
        ("*args and x_, y_t", r"\*args and x\_, y_t"),
        ("|x| * 2", r"\|x\| \* 2"),
        ("* item", "* item"),
    ],
)
def test_words_of_a_docstring_are_no_markup(text: str, rest: str) -> None:
    assert as_rest(text) == rest


def test_an_indented_block_is_code_but_below_a_section_or_in_a_list() -> None:
    lines = ["Text.", "", "    L = a * b", "", "Args:", "    x: of `y`", "", "- one", "  two"]
    assert rest_of(lines) == [
        *["Text.", "", "::", "", "    L = a * b", "", "Args:", "    x: of ``y``", "", "- one", "  two", ""],
    ]


@pytest.mark.parametrize("AlgoCls", [PPO, R2D1])
def test_the_tables_have_every_setting_by_group(AlgoCls: type) -> None:
    text = "\n".join(settings_tables(AlgoCls))
    groups = settings_by_group(AlgoCls)
    assert [name for names in groups.values() for name in names] == re.findall(r"\* - ``(\w+)``", text)
    assert text.count(".. rubric:: Settings") == len([names for names in groups.values() if names])
    assert "``int = 4``" in text or AlgoCls is not PPO


def test_the_list_of_algorithms_has_names_metrics_and_schedules() -> None:
    text = algorithms_page()
    assert "``ppo_lstm``" in text
    assert re.search(r"PPO <rlpyt\.algos\.PPO>`\n     - ``loss``.*``clipFraction``.*\n     - .*``ratio_clip``", text)


# ---- notebooks ----


def test_a_notebook_shows_what_its_blocks_print_their_last_values_and_their_figures() -> None:
    blocks = [
        "x = 3\nprint('begun')\nx + 4",
        "from matplotlib import pyplot as plt\n_ = plt.figure().subplots().set_title('a < b')\nplt.show()",
        "class Own: ...\nimport pickle\npickle.loads(pickle.dumps(Own)) is Own",
    ]
    text = "# Title\n\nWords.\n\n" + "\nMore words.\n\n".join(f"```python\n{block}\n```\n" for block in blocks)
    outputs = outputs_of("page", [found[1] for found in BLOCK.finditer(text)])
    assert [output.text for output in outputs] == ["begun\n7\n", "", "True\n"]
    assert [[one.about for one in output.pictures] for output in outputs] == [[], ["a < b"], []]
    page = with_outputs(text, outputs)
    assert page.index("x + 4\n```\n") < page.index(":class: output\n\nbegun\n7\n```\n") < page.index("More words.")
    assert re.search('<p class="output"><img alt="a &lt; b" src="data:image/png;base64,iVBOR', page)
    cells = json.loads(as_jupyter(text, outputs))["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown", "code", "markdown", "code"]
    assert cells[1]["source"] == blocks[0]
    assert cells[1]["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "begun\n7\n"}]
    assert [*cells[3]["outputs"][0]["data"]] == ["image/png"]


def test_a_block_that_fails_ends_the_build_with_its_place() -> None:
    with pytest.raises(
        RuntimeError, match=r'(?s)docs/start/page\.md: a block has failed.*"block 2", line 1.*ZeroDivisionError'
    ):
        outputs_of("start/page", ["x = 0\n", "1 / x\n"])


def test_every_page_that_calls_itself_a_notebook_is_run() -> None:
    called = [page for page in PAGES if page.read_text().partition("\n")[0].endswith("(notebook)")]
    assert {page.relative_to(DOCS).with_suffix("").as_posix() for page in called} == set(NOTEBOOKS)
