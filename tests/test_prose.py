"""The prose of the pages: wrapped lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.markdown import PAGES, ROOT, split

COLUMNS = 100

every_page = pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda p: p.name
)


def too_wide(text: str) -> list[str]:
    """Return the lines of prose over 100 columns; the target of a link takes none, as it cannot be broken."""
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    return [line for line in lines if len(re.sub(r"\]\([^)]*\)", "]", line)) > COLUMNS]


@every_page
def test_prose_is_wrapped(page: Path) -> None:
    assert too_wide(split(page)[0]) == []
