"""What SLURM says of a job, as read from its answers; the answers themselves are from a real one (`make slurm`)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rlpyt import slurm
from rlpyt.slurm import CANCELLED, REQUEUED, TIME_IS_OVER, WARNED, JobState, Slurm, ending_of
from tests.launching.kit import put_programs

FORGOTTEN = JobState("UNKNOWN", "SLURM knows this job no more")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Give a function that makes programs of SLURM of lines of shell; there are no others."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(**lines: str) -> None:
        for name in ("squeue", "sacct"):
            put_programs(tmp_path, **{name: f'echo {name} "$@" >> {tmp_path}/calls\n{lines.get(name, "exit 1")}'})

    return make


@pytest.mark.parametrize(
    ("line", "restarts", "ending"),
    [
        ("7|COMPLETING|None|0|N/A|2026-01-01T10:00:00|", 0, CANCELLED),
        ("7|COMPLETING|None|1|N/A|2026-01-01T10:00:00|", 1, CANCELLED),
        ("7|COMPLETING|None|1|N/A|N/A|", 0, REQUEUED),
        ("7|PENDING|BeginTime|0|N/A|N/A|", 0, REQUEUED),
        ("7|COMPLETING|TimeLimit|2|N/A|2026-01-01T10:00:00|", 2, TIME_IS_OVER),
        ("7|COMPLETING|None|0|2026-01-01T10:00:00|2026-01-01T10:00:00|", 0, TIME_IS_OVER),
        ("7|SIGNALING|None|0|2026-01-01T10:00:00|2026-01-01T10:01:00|", 0, WARNED),
        ("7|RUNNING|None|3|N/A|2026-01-01T10:00:00|", 3, WARNED),
        ("", 0, WARNED),
    ],
)
def test_what_slurm_does_is_read_from_what_it_says(programs, line, restarts, ending):
    programs(squeue=f"echo '{line}'" if line else "exit 1")
    state = (slurm.states_of(["7"]) or {}).get("7")
    assert ending_of(state, restarts) is ending


@pytest.mark.parametrize(
    ("squeue", "states"),
    [
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", {"7": FORGOTTEN}),
        ("echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1", None),
        # A user's own filters and formats change no answer, and the time is that of no hour that comes twice.
        (
            'echo "7|RUNNING|$SQUEUE_PARTITION$SLURM_TIME_FORMAT|0|N/A|2026-10-25T01:30:00$TZ|" | sed s/UTC0//',
            {"7": JobState("RUNNING", "standard", end=datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp())},
        ),
    ],
    ids=["a forgotten job", "no controller", "a user's variables"],
)
def test_an_answer_is_told_from_none(programs, monkeypatch, squeue, states):
    for name, value in (("SQUEUE_PARTITION", "other"), ("SLURM_TIME_FORMAT", "relative"), ("TZ", "Europe/Zurich")):
        monkeypatch.setenv(name, value)
    programs(squeue=squeue)
    assert slurm.states_of(["7"]) == states


def test_jobs_that_the_controller_has_forgotten_are_looked_up_in_accounting(programs, tmp_path):
    line = "8|RUNNING|None|0|N/A|2026-01-01T10:00:00|"
    programs(squeue=f"echo '{line}'", sacct=r"printf '7|CANCELLED by 1000\n9|TIMEOUT\n'")
    states = slurm.states_of(["7", "8", "9", "10"])
    assert states is not None
    told = {"7": "CANCELLED, by 1000", "8": "RUNNING", "9": "TIMEOUT", "10": str(FORGOTTEN)}
    assert {job: str(state) for job, state in states.items()} == told
    assert [job for job, state in states.items() if state.is_over] == ["7", "9", "10"]
    _, sacct = (tmp_path / "calls").read_text().splitlines()
    assert sacct.endswith("-j 7,9,10"), "one question for all jobs"


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
    assert (str(waiting), waiting.waits, running.waits) == ("PENDING, Priority", True, False)
    n = len((tmp_path / "calls").read_text().splitlines())
    for _ in range(100):
        system.state("7")
    assert len((tmp_path / "calls").read_text().splitlines()) == n


def test_without_slurm_there_is_no_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.states_of(["7"]) is None
    assert "No such file" in slurm.requeue("7")
