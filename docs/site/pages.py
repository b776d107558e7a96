"""Pages of the site that are made of other files when it is built: the start page, those of the project, the reference.

They are written beside the pages that people write, where git ignores them: Markdown as `.markdown`, and reST.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from docs.site.docstrings import as_rest, rest_of
from docs.site.names import homes
from rlpyt.cli.algorithms import ALGORITHMS
from rlpyt.settings import Scheduled, scheduled
from tests.names_page import names_by_package
from tests.test_algorithm_pages import ALGORITHMS as CLASSES

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OF_PROJECT = {
    "README.md": "project/readme",
    "CHANGELOG.md": "project/changelog",
    "CONTRIBUTING.md": "project/contributing",
    "SECURITY.md": "project/security",
}
"""Files of the repository that are pages of the site."""
START = """
```sh
make train                               # install; PPO on CartPole, in a minute or two
.venv/bin/rlpyt train sac Pendulum-v1    # any algorithm in any environment
```

The [tutorial](start/tutorial.md) leads from there to an algorithm of your own, the
[cookbook](howto/cookbook.md) has short answers, and the [reference](reference/api/index.rst) every
class and function.
"""
"""What the start page has below the first words of README.md."""


class Shelf(NamedTuple):
    """Heading of docs/README.md, and the pages that are listed under it."""

    title: str
    pages: list[str]


def shelves() -> list[Shelf]:
    """Return the shelves of docs/README.md, each page on the first that names it."""
    _, *sections = re.split(r"^## ", (DOCS / "README.md").read_text(), flags=re.MULTILINE)
    found: list[Shelf] = []
    for section in sections:
        names = dict.fromkeys(re.findall(r"\]\(([\w/]+)\.md(?:#[\w-]*)?\)", section))
        found.append(
            Shelf(section.partition(":")[0], [name for name in names if all(name not in s.pages for s in found)])
        )
    return found


def toctree(names: Iterable[str], *options: str) -> str:
    """Return a reST list of pages."""
    return "\n".join([".. toctree::", *(f"   :{option}" for option in options), "", *(f"   {n}" for n in names), ""])


def start_page() -> str:
    """Return what README.md says first, and docs/README.md with the shelves as lists of pages, in Markdown."""
    lists = []
    for title, names in shelves():
        kept = [name for name in names if not name.startswith("reference/algorithms/")]
        own = ["reference/algorithms/index", "reference/api/index"] if title == "Reference" else []
        lists.append(toctree([*own, *kept], "hidden:", f"caption: {title}"))
    lists.append(toctree(OF_PROJECT.values(), "hidden:", "caption: Project"))
    about = (ROOT / "README.md").read_text().partition("\n## ")[0].replace("(docs/", "(")
    pages = re.sub(r"^## ([\w ]+): .*$", r"## \1", (DOCS / "README.md").read_text(), flags=re.MULTILINE)
    shelf_by_shelf = pages.partition("\n\n")[2]
    return f"{about}\n\n{START}\n{shelf_by_shelf}" + "".join(f"\n```{{eval-rst}}\n{text}```\n" for text in lists)


def project_page(file: str) -> str:
    """Return a Markdown file of the repository, with links as from its page of the site."""
    return re.sub(r"\]\((?!\w+:|#)", "](../../", (ROOT / file).read_text()).replace(
        "../../docs/pictures", "../pictures"
    )


# ---- the reference ----


def heading(text: str, line: str) -> str:
    """Return a reST heading."""
    return f"{text}\n{line * len(text)}\n\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a reST table."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [head, *rows]:
        lines += [f"   {mark} - {cell}".rstrip() for mark, cell in zip("*" + " " * len(row), row, strict=False)]
    return "\n".join(lines) + "\n\n"


def link(path: str, text: str = "") -> str:
    """Return a link to a documented name."""
    return f":py:obj:`{text or path.rpartition('.')[2]} <{path}>`"


def kind(thing: Any) -> str:
    """Return by which directive a thing is documented; what a call of typing made, such as an alias, is data."""
    if inspect.isclass(thing):
        return "class"
    return "function" if inspect.isroutine(thing) else "data"


def text_of(package: str, name: str) -> str:
    """Return the docstring of a public name; that of a constant is the string below it, in a file of the package."""
    thing = getattr(importlib.import_module(package), name)
    if kind(thing) != "data":
        return inspect.getdoc(thing) or ""
    for file in sorted((ROOT / package.replace(".", "/")).glob("*.py")):
        for node, text in pairwise(ast.parse(file.read_text()).body):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
            if named and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                return inspect.cleandoc(str(text.value.value))
    return ""


def summary(text: str) -> str:
    """Return the first sentence of a docstring as reST in one line."""
    first = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    return as_rest(re.split(r"(?<=\.) (?=[A-Z`])", first)[0])


def package_page(package: str, names: list[str]) -> str:
    """Return the page of a package: what it is, a table of its names, and each of them."""
    module = importlib.import_module(package)
    paths = {name: homes()[id(getattr(module, name))] for name in names}
    text = heading(package, "=") + f".. automodule:: {package}\n   :no-members:\n\n.. py:currentmodule:: {package}\n\n"
    text += table(
        ("name", "what it is"), [(link(paths[name], name), summary(text_of(package, name))) for name in names]
    )
    own = [name for name in names if paths[name] == f"{package}.{name}"]
    for title, of_kind in (("Classes", "class"), ("Functions", "function"), ("Other names", "data")):
        entries = [entry(package, name) for name in own if kind(getattr(module, name)) == of_kind]
        text += heading(title, "-") + "".join(entries) if entries else ""
    return text


def entry(package: str, name: str) -> str:
    """Return the directive of a name."""
    of_kind = kind(getattr(importlib.import_module(package), name))
    if of_kind == "data":
        text = textwrap.indent("\n".join(rest_of(text_of(package, name).splitlines())), "   ")
        return f".. py:data:: {name}\n\n{text}\n\n"
    options = "   :members:\n   :show-inheritance:\n" if of_kind == "class" else ""
    return f".. auto{of_kind}:: {name}\n{options}\n"


def packages_page(packages: Iterable[str]) -> str:
    """Return the list of the packages."""
    rows = [
        (f":doc:`{name} <{name}>`", summary(inspect.getdoc(importlib.import_module(name)) or "")) for name in packages
    ]
    about = "All that a script imports, by package, with the docstrings of the code. Other names may change.\n\n"
    return (
        heading("Classes and functions", "=")
        + about
        + table(("package", "what it has"), rows)
        + toctree(packages, "hidden:")
    )


# ---- the algorithms ----


def algorithms_page() -> str:
    """Return the list of the algorithms: their names on the command line, metrics and schedules."""
    pages = next(shelf.pages for shelf in shelves() if shelf.title == "Reference")
    names = [name.rpartition("/")[2] for name in pages if name.startswith("reference/algorithms/")]
    text = heading("Algorithms", "=") + "A page for each, with formula, code, settings, metrics and details.\n\n"
    text += toctree(names, "maxdepth: 1") + "\n" + heading("On the command line", "-")
    text += "``rlpyt train ALGO ENV``, with one of these names (:doc:`/start/command_line`):\n\n"
    rows = [(f"``{name}``", ", ".join(of.actions), of.about) for name, of in ALGORITHMS.items()]
    text += table(("name", "actions", "what it is"), rows) + heading("Metrics and schedules", "-")
    text += "What each class logs, and which of its settings may be schedules "
    text += "(:doc:`/howto/own_algorithm`; :doc:`/reference/glossary` says what the columns mean):\n\n"
    rows = [
        (link(homes()[id(c)]), listed(c.opt_info_fields), listed(scheduled(c) if issubclass(c, Scheduled) else []))
        for c in CLASSES
    ]
    return text + table(("class", "metrics", "may be schedules"), rows)


def listed(names: Iterable[str]) -> str:
    """Return names as code, with commas."""
    return ", ".join(f"``{name}``" for name in names)


# ---- all of them ----


def made() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every page that is made."""
    yield "index.markdown", start_page()
    for file, name in OF_PROJECT.items():
        yield f"{name}.markdown", project_page(file)
    yield "reference/algorithms/index.rst", algorithms_page()
    packages = names_by_package()
    yield "reference/api/index.rst", packages_page(packages)
    for package, names in packages.items():
        yield f"reference/api/{package}.rst", package_page(package, names)


def write(app: Sphinx) -> None:
    """Write the pages that are made, where they have changed."""
    for name, text in made():
        file = DOCS / name
        file.parent.mkdir(exist_ok=True, parents=True)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
