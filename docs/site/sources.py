"""Pages of the source files that the documentation links to, with an anchor for every line.

The site shows the files that it was built from, so that a link leads to the same lines without a network.
"""

from __future__ import annotations

import importlib
import inspect
import os
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from docs.site.names import target_of
from docs.site.pages import DOCS, OF_PROJECT, ROOT

linked: set[Path] = set()
"""Files and folders that have been linked to."""


def uri_of(path: Path, docname: str) -> str:
    """Return the address of the page of a file or folder, from a page of the site."""
    linked.add(path)
    page = path.relative_to(ROOT) / "index.html" if path.is_dir() else Path(f"{path.relative_to(ROOT)}.html")
    return os.path.relpath(Path("source") / page, Path(docname).parent)


class LinksToSources(SphinxTransform):
    """Links of Markdown pages to files of the repository that are no pages of the site."""

    default_priority = 5

    def apply(self, **kwargs: Any) -> None:
        """Replace them, before Sphinx copies the files as downloads."""
        for node in list(self.document.findall()):
            if isinstance(node, download_reference | pending_xref) and node.get("reftype") == "myst":
                self.replace(node)

    def replace(self, node: nodes.Element) -> None:
        """Replace one, unless it leads to a page or nowhere."""
        target, _, anchor = str(node["reftarget"]).partition("#")
        # MyST has taken the ending off what it holds for a page.
        of_page = node.get("refdomain") == "doc"
        base = DOCS if of_page else (DOCS / self.env.docname).parent
        path = (base / f"{target}{'.md' if of_page else ''}").resolve()
        if not target or not path.exists() or (of_page and target in self.env.found_docs):
            return
        name = str(path.relative_to(ROOT))
        if name in (*OF_PROJECT, "docs/README.md"):
            node.attributes |= dict(
                refdomain="doc", refexplicit=True, reftargetid=node.get("reftargetid") or anchor or None
            )
            node["reftarget"] = OF_PROJECT.get(name, "index")
        else:
            new = nodes.reference("", "", *node.children, refuri=uri_of(path, self.env.docname), internal=True)
            node.replace_self(new)


class LinksToNames(SphinxTransform):
    """Code spans of Markdown pages that are a public name: the first one in a section leads to the reference."""

    default_priority = 6

    def apply(self, **kwargs: Any) -> None:
        """Link them."""
        linked_in: dict[int, set[str]] = {}
        for node in list(self.document.findall(nodes.literal)):
            target = target_of(node.astext()) if isinstance(node.parent, nodes.paragraph | nodes.entry) else None
            section: nodes.Node | None = node
            while section is not None and not isinstance(section, nodes.section):
                section = section.parent
            if target and "/" in self.env.docname and target not in (seen := linked_in.setdefault(id(section), set())):
                seen.add(target)
                link = pending_xref("", refdomain="py", reftype="obj", reftarget=target, refdoc=self.env.docname)
                node.replace_self(link)
                link.append(node)


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return where the source of a documented name begins; None for what has none, such as a constant."""
    try:
        thing: Any = importlib.import_module(info["module"])
        for name in info["fullname"].split("."):
            thing = inspect.getattr_static(thing, name) if inspect.isclass(thing) else getattr(thing, name)
        thing = inspect.unwrap(getattr(thing, "fget", None) or getattr(thing, "__func__", thing))
        file, (_, line) = inspect.getsourcefile(thing), inspect.getsourcelines(thing)
    except (AttributeError, TypeError, ValueError, OSError):
        return None
    if file is None or not Path(file).is_relative_to(ROOT / "rlpyt"):
        return None
    return uri_of(Path(file), f"reference/api/{info['module']}") + f"#L-{line}"


def write_pages(app: Sphinx, error: Exception | None) -> None:
    """Write a page for every file and folder that was linked to."""
    for folder in [path for path in linked if path.is_dir()]:
        linked.update(path for path in folder.iterdir() if path.is_file())
    template = Template((Path(__file__).parent / "templates" / "source.html").read_text())
    for path in sorted(linked) if error is None else ():
        name = str(path.relative_to(ROOT))
        page = Path(app.outdir) / "source" / (f"{name}/index.html" if path.is_dir() else f"{name}.html")
        page.parent.mkdir(exist_ok=True, parents=True)
        to_root = os.path.relpath(app.outdir, page.parent)
        body = listing(path) if path.is_dir() else highlighted(path)
        page.write_text(template.substitute(title=escape(app.config.html_title), name=name, root=to_root, body=body))


def listing(folder: Path) -> str:
    """Return the files of a folder that have pages."""
    files = [path for path in sorted(linked) if path.parent == folder and path.is_file()]
    return "".join(f'<li><a href="{path.name}.html">{escape(path.name)}</a></li>' for path in files)


def highlighted(path: Path) -> str:
    """Return a file as HTML with an anchor for every line."""
    try:
        text = path.read_text()
        lexer = get_lexer_for_filename(path.name, stripnl=False)
    except UnicodeDecodeError:
        return "This file is no text."
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    return highlight(text, lexer, HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.add_transform(LinksToSources)
    app.add_transform(LinksToNames)
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": False}
