"""Ctrl-C: the run and the script around it stop, with a line instead of a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from rlpyt.logging import logger_context, run_directory
from tests.runners.runner_kit import status_of

SCRIPT = """
    import signal, sys
    from pathlib import Path
    from tests.runners.runner_kit import run

    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a script ignore it
    for name in "ab":
        run(Path(sys.argv[1]) / name, "ppo", n_steps=1e9)
    print("not reached")
"""


def test_ctrl_c_ends_a_script_with_one_line(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command, pipe = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path)], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            deadline = time.monotonic() + 120
            while not (tmp_path / "a" / "run_0" / "progress.csv").exists():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, "the run did not start"
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT, "130 in a shell"
    assert "Traceback" not in out + err
    assert err == ""
    assert out.splitlines()[-1] == f"Interrupted by Ctrl-C. What was saved stays in {tmp_path}/a/run_0."
    assert not (tmp_path / "b").exists()
    status = status_of(tmp_path / "a")
    assert status["status"] == "interrupted"
    assert "KeyboardInterrupt" in status["exception"]["traceback"]


def test_the_interrupt_goes_on_and_other_errors_are_shown(tmp_path, monkeypatch):
    shown: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    with pytest.raises(KeyboardInterrupt) as info, logger_context(tmp_path):
        raise KeyboardInterrupt
    other = KeyboardInterrupt()
    for error in (info.value, other, ZeroDivisionError()):
        sys.excepthook(type(error), error, None)
    assert shown[0] is other
    assert len(shown) == 2


def test_ctrl_c_twice_prints_no_traceback_either(tmp_path, monkeypatch):
    shown: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))

    def write_json(path: Path, value: Any) -> None:
        if value["status"] == "interrupted":
            raise KeyboardInterrupt("again")

    monkeypatch.setattr(run_directory, "write_json", write_json)
    with pytest.raises(KeyboardInterrupt, match="again") as info, logger_context(tmp_path):
        raise KeyboardInterrupt
    sys.excepthook(KeyboardInterrupt, info.value, None)
    assert shown == []


def test_an_interrupt_that_was_caught_keeps_nothing_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", lambda *args: None)

    class Replay:
        pass

    def train() -> None:
        replay = Replay()
        kept.append(weakref.ref(replay))
        raise KeyboardInterrupt

    kept: list[weakref.ref[Replay]] = []
    for _ in range(2):
        with contextlib.suppress(KeyboardInterrupt), logger_context(tmp_path):
            train()
    assert [replay() for replay in kept] == [None, None]
