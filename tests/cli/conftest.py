"""Settings of the tests of the command line, and what they share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rlpyt.cli import main
from tests.launching.conftest import _looks_often

__all__ = ["_looks_often"]


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, whose modules are forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def refused(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Sequence[str], str], None]:
    """Return a function that expects arguments to be refused: exit code 2, one message, and nothing written."""

    def check(arguments: Sequence[str], says: str) -> None:
        before = sorted(in_folder.rglob("*"))
        try:
            code: object = main(arguments)
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        assert (code, out) == (2, "")
        # tyro draws its messages in a box.
        said = " ".join("".join(" " if letter in "│─╭╮╰╯" else letter for letter in err).split())
        assert says in said
        assert "Traceback" not in err
        assert err.startswith("rlpyt: ") is (err.count("\n") == 1)
        assert sorted(path for path in in_folder.rglob("*") if "__pycache__" not in path.parts) == before

    return check
