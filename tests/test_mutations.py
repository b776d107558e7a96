"""The script that applies mutations tells the truth; those that the code has left behind it calls stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.run import Mutation, judge, load, main

MUTATIONS = load()


def test_every_mutation_has_a_name_of_its_own(capsys):
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS) > 100
    assert main(["--list", "0", MUTATIONS[-1].name]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0", str(len(MUTATIONS) - 1)]
    with pytest.raises(SystemExit, match="got 'no such'"):
        main(["--list", "no such"])


def test_a_mutation_is_killed_survives_or_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a second less for each pytest
    code = "def half(x):\n    return x / 2\n"
    (tmp_path / "half.py").write_text(code)
    (tmp_path / "test_half.py").write_text("from half import half\n\n\ndef test_half():\n    assert half(4) == 2\n")
    tests = ("test_half.py",)
    cases = [
        (Mutation("", "half.py", "x / 2", "x / 3", tests), "KILLED", "FAILED test_half.py::test_half"),
        (Mutation("", "half.py", "x / 2", "x * 0.5", tests), "SURVIVED", "test_half.py"),
        (Mutation("", "half.py", "x / 2", "0.5 * x", tests, "the same number"), "EQUIVALENT", "the same number"),
        (Mutation("", "half.py", "x", "y", tests), "STALE", "its old text stands 2 times in half.py"),
        (Mutation("", "half.py", "x / 2", "x /", tests), "STALE", "with its new text half.py is no Python: "),
        (Mutation("", "half.py", "x / 2", "", ("test_other.py",)), "STALE", "there are no tests test_other.py"),
        (Mutation("", "other.py", "x / 2", "", tests), "STALE", "there is no file other.py"),
    ]
    for mutation, word, why in cases:
        verdict = judge(mutation, tmp_path, timeout=100)
        assert (verdict.word, verdict.why[: len(why)]) == (word, why)
        assert (tmp_path / "half.py").read_text() == code
