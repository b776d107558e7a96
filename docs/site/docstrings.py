"""Docstrings as reST: code in single backticks, indented blocks are code, settings are tables by group."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx

from docs.site.names import target_of
from rlpyt.settings import Scheduled, Settings, scheduled, setting_docs, settings_by_group

SECTION = re.compile(r"(Args|Raises|Returns|Yields|Attributes|Example|Examples|Note)(, .*)?:$")
LISTED = re.compile(r"\s*(?:[-*]|\d+\.) ")


def as_rest(text: str) -> str:
    """Return text of a docstring as reST: code spans, and no markup in the words between them."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    for i, part in enumerate(parts):
        if i % 2:
            code = part.strip("`")
            target = target_of(code)
            parts[i] = f":py:obj:`{code} <{target}>`" if target else f"``{code}``"
            parts[i] = ("\\ " if parts[i - 1][-1:].isalnum() else "") + parts[i]
            parts[i] += "\\ " if re.match(r"\w", parts[i + 1]) else ""
        else:
            parts[i] = re.sub(r"(?<!^)[*|\\]|^[*](?! )|^[|\\]|(?<=\w)_(?!\w)", r"\\\g<0>", part, flags=re.MULTILINE)
    return "".join(parts)


def rest_of(lines: list[str]) -> list[str]:
    """Return the lines of a docstring, without the indent of its source, as reST with Google's sections."""
    found: list[str] = []
    for are_code, group in groupby(_marked(lines), key=lambda pair: pair[0]):
        text = "\n".join(line for _, line in group)
        found += ["::", "", *text.split("\n")] if are_code else as_rest(text).split("\n")
    return [*found, ""]


def _marked(lines: list[str]) -> Iterator[tuple[bool, str]]:
    """Yield lines, and for each whether it is code: indented after an empty line, and below no section or list."""
    section = in_code = in_list = False
    before = ""
    for line in lines:
        if line and not line.startswith("    "):
            section, in_code = bool(SECTION.match(line)), False
        elif line and not before and not section and not in_list:
            in_code = True
        starts = bool(LISTED.match(line))
        if starts and not in_list and before and not section:
            yield False, ""  # reST sees a list only below an empty line
        in_list = starts or (in_list and (not line or line.startswith("  ")))
        yield in_code, line
        before = line


# ---- settings ----


def settings_tables(cls: type) -> Iterator[str]:
    """Yield the lines of a table of the settings of a class for each of their groups."""
    docs, by_name = setting_docs(cls), {f.name: f for f in fields(cls)}
    changing = scheduled(cls) if issubclass(cls, Scheduled) else {}
    for group, names in settings_by_group(cls).items():
        rows = [name for name in names if name in by_name]
        if rows:
            yield from ("", f".. rubric:: Settings{', ' + group if group else ''}", "")
            yield from (".. list-table::", "   :header-rows: 1", "   :class: settings", "")
            yield from ("   * - setting", "     - default", "     - what it does")
        for name in rows:
            text = " ".join(docs.get(name, "").split())
            about = [text, "May be a schedule." if name in changing else ""]
            yield f"   * - ``{name}``"
            yield f"     - {default_of(by_name[name])}"
            yield f"     - {as_rest(' '.join(filter(None, about)))}".rstrip()
    yield ""


def default_of(field: Field[Any]) -> str:
    """Return the default of a field as reST; a class or function by its name."""
    if field.default is MISSING:
        made = field.default_factory
        value = made() if made is not MISSING else MISSING
        return "required" if value is MISSING else f"``{value!r}``"
    return f"``{getattr(field.default, '__qualname__', None) or repr(field.default)}``"


def has_settings(thing: Any) -> bool:
    """Return whether something is a class whose settings are fields."""
    return inspect.isclass(thing) and issubclass(thing, Settings) and is_dataclass(thing)


# ---- Sphinx ----


def process(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Turn a docstring into reST; the table of a class takes the place of the list that `help` shows."""
    if has_settings(thing):
        listed = next((i for i, line in enumerate(lines) if re.match(r"Args(, .*)?:$", line)), len(lines))
        lines[:] = [*rest_of(lines[:listed]), *settings_tables(thing)]
    else:
        lines[:] = rest_of(lines)


def shorten(app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str, returns: str) -> Any:
    """Leave the settings out of a signature: the tables have them."""
    return ("(*, ...)", None) if has_settings(thing) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("autodoc-process-docstring", process, priority=400)  # napoleon's is 500
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True}
