"""Settings of the documentation site, which `make docs` builds from the pages of docs/ and the docstrings of rlpyt."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import rlpyt  # noqa: E402  (found by the line above)
from docs.site.sources import linkcode_resolve  # noqa: E402, F401  (sphinx.ext.linkcode asks for it)

project = "rlpyt"
author = "The rlpyt authors"
project_copyright = author
version = release = rlpyt.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
    "sphinx_copybutton",
    "docs.site.pages",
    "docs.site.sources",
    "docs.site.docstrings",
    "docs.site.notebooks",
]
root_doc = "index"
source_suffix = {".md": "markdown", ".markdown": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["README.md", "site", "_build"]
suppress_warnings = ["myst.header"]  # a page that is included begins with its own title

# GitHub's anchors of headings, which the links of the pages name.
myst_heading_anchors = 4
myst_links_external_new_tab = False

smartquotes = False  # --option is no dash
default_role = "code"
highlight_language = "none"  # blocks that do not say theirs are formulas, and commands
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False  # what is returned has a name here, and not a type
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"rlpyt {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "site" / "scorer.js")
templates_path = ["templates"]
html_additional_pages = {"404": "404.html"}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = "$ "
copybutton_selector = "div[class*=highlight-]:not(.output) > div.highlight > pre"
