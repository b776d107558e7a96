"""What SLURM says of a job, as read from its answers; the answers themselves are from a real one (`make slurm`)."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rlpyt import slurm
from rlpyt.slurm import CANCELLED, ENDINGS, REQUEUED, TIME_IS_OVER, WARNED, JobState, Slurm, ending_of
from tests.markdown import ROOT, tables

HEADER = ["who sends the signal", "SLURM shows", "who queues it again", "the run"]


@pytest.mark.parametrize(
    ("line", "restarts", "ending"),
    [
        ("7|COMPLETING|None|0|N/A|2026-01-01T10:00:00|", 0, CANCELLED),
        ("7|COMPLETING|None|1|N/A|2026-01-01T10:00:00|", 1, CANCELLED),
        ("7|COMPLETING|None|1|N/A|N/A|", 0, REQUEUED),
        ("7|PENDING|BeginTime|0|N/A|N/A|", 0, REQUEUED),
        ("7|COMPLETING|TimeLimit|2|N/A|2026-01-01T10:00:00|", 2, TIME_IS_OVER),
        ("7|COMPLETING|None|0|2026-01-01T10:00:00|2026-01-01T10:00:00|", 0, TIME_IS_OVER),
        ("7|COMPLETING|NodeDown|0|N/A|2026-01-01T10:00:00|", 0, TIME_IS_OVER),
        ("7|SIGNALING|None|0|2026-01-01T10:00:00|2026-01-01T10:01:00|", 0, WARNED),
        ("7|RUNNING|None|0|2026-01-01T10:00:00|2026-01-01T10:01:00|", 0, WARNED),
        ("7|RUNNING|None|3|N/A|2026-01-01T10:00:00|", 3, WARNED),
        ("", 0, WARNED),
    ],
)
def test_what_slurm_does_is_read_from_what_it_says(programs, line, restarts, ending):
    programs(squeue=f"echo '{line}'" if line else "exit 1")
    state = (slurm.states_of(["7"]) or {}).get("7")
    assert ending_of(state, restarts) is ending


def test_the_page_prints_the_table():
    rows = [[row.cause, row.shows, row.requeue, row.outcome] for row in ENDINGS]
    [found] = [table for table in tables(ROOT / "docs" / "howto" / "launching.md") if table[0] == HEADER]
    assert [list(row) for row in found[1:]] == rows, "\n".join(f"| {' | '.join(row)} |" for row in [HEADER, *rows])


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Give a function that makes programs of SLURM of lines of shell; there are no others."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(**lines: str) -> None:
        for name in ("squeue", "sacct", "scancel", "scontrol"):
            does = lines.get(name, "exit 1")
            (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\n{does}\n')
            (tmp_path / name).chmod(0o755)

    return make


def test_jobs_that_the_controller_has_forgotten_are_looked_up_in_accounting(programs, tmp_path):
    line = "8|RUNNING|None|0|N/A|2026-01-01T10:00:00|"
    programs(squeue=f"echo '{line}'", sacct=r"printf '7|CANCELLED by 1000\n9|TIMEOUT\n'")
    states = slurm.states_of(["7", "8", "9", "10"])
    assert states is not None
    assert {job: str(state) for job, state in states.items()} == {
        "7": "CANCELLED, by 1000",
        "8": "RUNNING",
        "9": "TIMEOUT",
        "10": "UNKNOWN, SLURM knows this job no more",
    }
    assert [job for job, state in states.items() if state.is_over] == ["7", "9", "10"]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2, "one question for all jobs"
    assert calls[1].endswith("-j 7,9,10")


def test_one_job_that_the_controller_does_not_know_is_no_failure_of_the_controller(programs):
    programs(squeue="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert slurm.states_of(["7"]) == {"7": JobState("UNKNOWN", "SLURM knows this job no more")}
    programs(squeue="echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    assert slurm.states_of(["7"]) is None


def test_a_launcher_asks_at_times_and_never_waits(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "_ASK_SECONDS", 1000.0)
    programs(squeue="sleep 0.5; echo '7|PENDING|Priority|0|N/A|N/A|'; echo '8|RUNNING|None|0|N/A|N/A|'")
    system = Slurm()
    start = time.monotonic()
    system.state("8")
    assert system.state("7") is None
    assert time.monotonic() < start + 0.4
    system._ask_at = 0.0
    end = time.monotonic() + 20
    while system.state("7") is None and time.monotonic() < end:
        time.sleep(0.02)
    waiting, running = system.state("7"), system.state("8")
    assert waiting is not None
    assert running is not None
    assert str(waiting) == "PENDING, Priority"
    assert (waiting.waits, running.waits) == (True, False)
    n = len((tmp_path / "calls").read_text().splitlines())
    for _ in range(100):
        system.state("7")
    assert len((tmp_path / "calls").read_text().splitlines()) == n


def test_without_slurm_there_is_no_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.states_of(["7"]) is None
    assert "squeue" not in os.listdir(tmp_path)
    assert "No such file" in slurm.requeue("7")


def test_a_users_own_filters_and_formats_of_slurm_change_no_answer(programs, monkeypatch):
    monkeypatch.setenv("SQUEUE_PARTITION", "other")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    programs(squeue='echo "7|RUNNING|$SQUEUE_PARTITION$SLURM_TIME_FORMAT|0|N/A|N/A|"')
    assert slurm.states_of(["7"]) == {"7": JobState("RUNNING", "standard")}


def test_the_end_of_a_job_is_known_in_the_hour_that_comes_twice(programs, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Zurich")
    programs(squeue='echo "7|RUNNING|None|0|N/A|2026-10-25T01:30:00$TZ|" | sed s/UTC0//')
    states = slurm.states_of(["7"])
    assert states is not None
    assert states["7"].end == datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp()
