"""Runs in a real terminal, and Ctrl-C: signals are left to the master, and what ends ends in order."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlpyt.logging import logger_context, run_directory
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.runners.signals import Preemption, signals_as_exceptions
from tests.runners.runner_kit import is_alive, named_memory, nightly, status_of, wait_for

ROOT = Path(__file__).parents[2]

TERMINALS = """
    import gc, json, os, pty, select, signal, sys, threading, time
    from pathlib import Path

    def train(directory, kind, start_method, Runner):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a script ignore it
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and with nohup this one
        sampler = make_sampler(kind, SlowEnv, env_kwargs={"seconds": 0.02}, start_method=start_method)
        run(directory, "ppo", sampler, getattr(runners, Runner), n_steps=1e9, checkpoint_interval_steps=1e6)

    def sample(directory):
        seen = []
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            signal.signal(number, lambda signum, frame: seen.append(signum))
        made = []

        def start():
            for kind, method in (("cpu2", "forkserver"), ("gpu2", "fork")):
                sampler, agent = make_sampler(kind, PrintingEnv, start_method=method), make_algo("ppo")[1]
                sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, seed=3))
                made.append(sampler)

        thread = threading.Thread(target=start)  # where no handlers can be set
        thread.start()
        thread.join()
        warnings.simplefilter("always")
        bar = ProgBarCounter(10)
        for i in range(4):
            if i:
                while len(seen) < i:
                    time.sleep(0.01)
                bar.update(i)
                print_line("goes on")
                print("goes on")
                warnings.warn("goes on")
            for sampler in made:
                sampler.obtain_samples(i)
            (directory / f"sampled{i}").touch()
        assert seen == list(numbers), seen
        assert [signal.getsignal(number).__name__ for number in numbers] == ["<lambda>"] * 3
        for sampler in made:
            sampler.shutdown()
        made.clear()
        del sampler
        gc.collect()
        assert not [p for p in multiprocessing.active_children()]
        assert not anonymous_memory()
        (directory / "done").touch()
        sys.exit(7)

    if __name__ == "__main__":  # workers import this file too, and need nothing of it
        import multiprocessing, warnings
        import torch._dynamo
        from rlpyt import runners
        from rlpyt.logging import ProgBarCounter
        from rlpyt.logging.sinks import print_line
        from rlpyt.types import Run
        from tests.runners.runner_kit import anonymous_memory, make_algo, make_sampler, run
        from tests.toy_envs import PrintingEnv, SlowEnv

        while line := sys.stdin.readline():
            job, directory, *args = json.loads(line)
            pid, terminal = pty.fork()
            if pid == 0:
                try:
                    {"train": train, "sample": sample}[job](Path(directory), *args)
                finally:
                    sys.stdin = None
                break
            print(pid, flush=True)
            with open(directory + "/shown", "wb") as file:
                line = ""
                while line != "close\\n":
                    ready, _, _ = select.select([terminal, sys.stdin], [], [])
                    if terminal in ready:
                        file.write(os.read(terminal, 10000))
                    line = sys.stdin.readline() if sys.stdin in ready else ""
                    if line == "Ctrl-C\\n":
                        os.write(terminal, b"\\x03")
            os.close(terminal)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Terminals:
    """Process that runs jobs, each with a terminal of its own, so that torch is imported once."""

    def __init__(self, process: Any) -> None:
        self.process = process

    def tell(self, text: str) -> None:
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    @contextmanager
    def job(self, *args: str) -> Iterator[psutil.Process]:
        self.tell(json.dumps(args))
        job = psutil.Process(int(self.process.stdout.readline()))
        try:
            yield job
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)

    def exit_code(self) -> int:
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def terminals(tmp_path_factory):
    script = tmp_path_factory.mktemp("terminals") / "terminals.py"
    script.write_text(textwrap.dedent(TERMINALS))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield Terminals(process)
        process.kill()


def test_signals_to_all_processes_are_left_to_the_master(terminals, tmp_path):
    """The forkserver is started by a second thread, and the workers print all the time."""
    with terminals.job("sample", str(tmp_path)) as master:
        wait_for((tmp_path / "sampled0").exists, 60, "the samplers did not start")
        family = [master, *master.children(recursive=True)]
        assert len(family) >= 7
        assert {os.getpgid(process.pid) for process in family} == {master.pid}, "for Ctrl-Z"
        terminals.tell("Ctrl-C")
        wait_for((tmp_path / "sampled1").exists, 20, "lost by Ctrl-C")
        os.killpg(master.pid, signal.SIGTERM)
        wait_for((tmp_path / "sampled2").exists, 20, "lost by SIGTERM")
        assert all(is_alive(process) for process in family)
        terminals.tell("close")
        wait_for((tmp_path / "done").exists, 20, "lost by a closed terminal")
        wait_for(lambda: not any(is_alive(p) for p in family), 15, "processes are left")
    assert terminals.exit_code() == 7, "not 120, with which Python ends if it cannot write what it has printed"
    shown = (tmp_path / "shown").read_text()
    assert "a step" in shown
    assert "Error" not in shown


@pytest.mark.parametrize(
    ("kind", "start_method", "runner"), [nightly("gpu2", "forkserver", "MinibatchRl"), ("cpu2", "fork", "AsyncRl")]
)
def test_a_run_whose_terminal_is_closed_ends_in_order(kind, start_method, runner, terminals, tmp_path):
    with terminals.job("train", str(tmp_path), kind, start_method, runner) as master:
        wait_for((tmp_path / "run_0" / "progress.csv").exists, 60, "the run did not start")
        family = [master, *master.children(recursive=True)]
        assert len(family) >= 3
        assert not any(named_memory(process.pid) for process in family)
        os.killpg(master.pid, signal.SIGHUP)  # as a shell does before it ends, and the kernel sends it again
        time.sleep(0.05)
        terminals.tell("close")
        wait_for(lambda: not any(is_alive(p) for p in family), 15, "processes are left")
    assert terminals.exit_code() == PREEMPTED
    assert status_of(tmp_path)["status"] == "interrupted"
    assert "SIGHUP" in status_of(tmp_path)["exception"]["message"]


def test_signals_that_come_together_are_one_request(monkeypatch):
    now = 100.0
    monkeypatch.setattr("rlpyt.runners.signals.time.monotonic", lambda: now)
    preemption = Preemption()
    assert not preemption.defer(signal.SIGHUP), "there is no checkpoint to end with"
    preemption.begin(inf)
    assert preemption.defer(signal.SIGTERM)
    assert preemption.defer(signal.SIGHUP)
    assert preemption.reason == "SIGTERM was sent"
    assert not preemption.defer(signal.SIGINT), "Ctrl-C pressed again"
    now = 103.0
    assert not preemption.defer(signal.SIGTERM)


def test_a_hangup_is_ignored_once_the_run_has_ended_by_it():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with signals_as_exceptions(lambda signum: True):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        with signals_as_exceptions(lambda signum: True):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# ---- Ctrl-C: the run and the script around it stop, with a line instead of a traceback ----


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
