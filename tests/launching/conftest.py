"""Settings of the tests of launching."""

from __future__ import annotations

import pytest

from rlpyt.launching import experiments, trials


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a launcher in this process look at its runs more often: runs of tests take 0.1 s."""
    monkeypatch.setattr(experiments, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(trials, "_LOOK_SECONDS", 0.1)
