from __future__ import annotations

import concurrent.futures
import errno
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlpyt.logging import (
    RunDirectoryError,
    SilentLogger,
    current_logger,
    load_snapshot,
    logger_context,
    silent_context,
)
from rlpyt.logging.run_directory import hold_run_directory
from tests.logging.test_logger import ListSink, log_row


def read_json(directory: Path, name: str) -> dict:
    return json.loads((directory / name).read_text())


def test_files_of_a_run(tmp_path, capsys):
    with logger_context(tmp_path, 7, "pong", {"algo": {"discount": 0.9}, "EnvCls": dict}) as logger:
        assert current_logger() is logger
        assert logger.directory == tmp_path / "run_7"
        assert read_json(tmp_path / "run_7", "status.json")["status"] == "running"
        logger.log("hello")
        log_row(logger, 1, a=1)
        logger.save_itr_params(0, {"itr": 0})
    directory = tmp_path / "run_7"
    assert {path.name for path in directory.iterdir()} == set(FILES)
    assert capsys.readouterr().out.splitlines()[0] == f"run directory: {directory}"
    debug = (directory / "debug.log").read_text()
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \| hello$", debug, re.MULTILINE)
    status = read_json(directory, "status.json")
    assert status["status"] == "finished"
    assert status["pid"] == os.getpid()
    assert status["host"] == socket.gethostname()
    assert status["seconds"] >= 0
    assert f"pid {os.getpid()} on host" in (directory / "run.lock").read_text()
    params = read_json(directory, "params.json")
    assert params["name"] == "pong"
    assert params["run_ID"] == 7
    assert params["algo"] == {"discount": 0.9}
    assert params["EnvCls"] == "builtins.dict"
    assert set(params["versions"]) == {"rlpyt", "torch", "numpy", "gymnasium", "python"}
    assert params["argv"] == sys.argv
    assert load_snapshot(directory / "params.pkl") == {"itr": 0}


def test_git_commit_of_the_working_directory(tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with logger_context("data", 0):
        pass
    assert read_json(repository / "data" / "run_0", "params.json")["git_commit"] is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    with logger_context("data", 1):
        pass
    assert read_json(repository / "data" / "run_1", "params.json")["git_commit"] == head


@pytest.mark.parametrize("run_ID", [None, 5])
def test_starts_at_once_get_different_directories(tmp_path, run_ID):
    def start() -> Path:
        with hold_run_directory(tmp_path, run_ID) as directory:
            (directory / "progress.csv").write_text("a\n")
        return directory

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        directories = {job.result() for job in [pool.submit(start) for _ in range(40)]}
    numbered = [f"run_{i}" for i in range(40)] if run_ID is None else ["run_5", *(f"run_5_{i}" for i in range(1, 40))]
    assert {directory.name for directory in directories} == set(numbered)


def test_prefix_of_date_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with logger_context("pong", 0, override_prefix=False) as logger:
        assert re.fullmatch(rf"{re.escape(str(tmp_path))}/data/local/\d{{8}}/\d{{6}}/pong/run_0", str(logger.directory))
    with logger_context("data/pong", 0, override_prefix=False) as logger:
        assert logger.directory == tmp_path / "data" / "pong" / "run_0"
    with logger_context("pong", 0) as logger:
        assert logger.directory == tmp_path / "pong" / "run_0"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ZeroDivisionError("division by zero"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(128 + signal.SIGTERM), "interrupted"),
        (SystemExit(85), "interrupted"),
        (SystemExit(0), "finished"),
        (SystemExit(None), "finished"),
        (SystemExit(1), "failed"),
        (SystemExit("no such game"), "failed"),
    ],
)
def test_endings_are_recorded_and_everything_is_put_back(tmp_path, error, status):
    sink, before = ListSink(), current_logger()
    with pytest.raises(type(error)), logger_context(tmp_path, 0, sinks=[sink]):
        raise error
    assert current_logger() is before
    assert sink.n_closed == 1
    recorded = read_json(tmp_path / "run_0", "status.json")
    assert recorded["status"] == status
    if status == "finished":
        assert "exception" not in recorded
    else:
        exception = recorded["exception"]
        assert (exception["type"], exception["message"]) == (type(error).__name__, str(error))
        assert "raise error" in exception["traceback"]
    with logger_context(tmp_path, 0) as logger:  # no results were left: the lock is free and the place too
        assert logger.directory == tmp_path / "run_0"
    assert "exception" not in read_json(tmp_path / "run_0", "status.json")


def test_contexts_nest(tmp_path):
    with logger_context(tmp_path, 0) as outer:
        with logger_context(tmp_path, 1) as inner:
            assert current_logger() is inner
            log_row(inner, 1, a=1)
        assert current_logger() is outer
        log_row(outer, 1, a=1)
        with (
            pytest.raises(RunDirectoryError, match=f"in use by pid {os.getpid()}"),
            logger_context(tmp_path, 0, if_taken="refuse"),
        ):
            pass
        assert current_logger() is outer
    for run in ("run_0", "run_1"):
        assert (tmp_path / run / "progress.csv").read_text() == "a\n1\n"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_process_does_not_write_to_its_parents_files(tmp_path):
    with logger_context(tmp_path, 0) as logger:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if current_logger().directory is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert current_logger() is logger


def test_results_are_not_written_over_by_chance(tmp_path):
    with logger_context(tmp_path, 0, log_params={"old": 1}) as logger:
        log_row(logger, 1, a=1)
        logger.save_itr_params(0, {"old": 1})
    before = {path.name: path.read_bytes() for path in (tmp_path / "run_0").iterdir() if path.name != "run.lock"}
    with (
        pytest.raises(
            RunDirectoryError, match=r"run_0 already holds the results of a run \(params.pkl, progress.csv\)"
        ) as error,
        logger_context(tmp_path, 0, if_taken="refuse"),
    ):
        pass
    assert "resume" not in str(error.value), "which appends rows and trains from the start"
    after = {path.name: path.read_bytes() for path in (tmp_path / "run_0").iterdir() if path.name != "run.lock"}
    assert after == before

    (tmp_path / "run_0" / "notes.txt").write_text("of the user")
    (tmp_path / "run_0" / "params.pkl.tmp-123").write_text("of a killed process")
    with logger_context(tmp_path, 0, overwrite=True):
        names = {path.name for path in (tmp_path / "run_0").iterdir()}
        assert names == {"run.lock", "status.json", "params.json", "debug.log", "notes.txt"}
        assert "old" not in read_json(tmp_path / "run_0", "params.json")


def test_a_script_started_again_gets_a_directory_beside_the_first(tmp_path, capsys):
    for run_ID in (0, "lr=0.1", None):
        for _ in range(3):
            with logger_context(tmp_path, run_ID) as logger:
                log_row(logger, 1, a=1)
    # The ID that is recorded is the directory's; a grid's own ID 1 is another run than the second run of ID 0.
    recorded = {path.name: read_json(path, "params.json")["run_ID"] for path in tmp_path.iterdir()}
    named = ["0_1", "0_2", "lr=0.1", "lr=0.1_1", "lr=0.1_2"]
    assert recorded == {"run_0": 0, **{f"run_{i}": i for i in (1, 2, 3)}, **{f"run_{name}": name for name in named}}
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run directory")]
    taken = " (run_0 is taken by another run)"
    assert lines[:3] == [f"run directory: {tmp_path}/{run}" for run in ("run_0", f"run_0_1{taken}", f"run_0_2{taken}")]
    assert "taken" not in "".join(lines[6:])


def test_resume_goes_on_with_the_files(tmp_path):
    with logger_context(tmp_path, 0, log_params={"old": 1}, resume=True) as logger:
        log_row(logger, 1, a=1)
        state = logger.state_dict()
        log_row(logger, 1, a=1)
    with logger_context(tmp_path, 0, log_params={"new": 2}, resume=True) as logger:
        logger.load_state_dict(state)
        log_row(logger, 2, b=2)
    assert (tmp_path / "run_0" / "progress.csv").read_text() == "a,b\n1,\n,2\n"
    params = read_json(tmp_path / "run_0", "params.json")
    assert (params["old"], params["new"]) == (1, 2)
    assert (tmp_path / "run_0" / "debug.log").read_text().count("run directory: ") == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"run_ID": 0, "overwrite": True, "resume": True}, "expected at most one"),
        ({"resume": True}, "resume=True without a run_ID"),
        ({"run_ID": "../other"}, "got run_ID '../other', expected a number or a name"),
        ({"if_taken": "ask"}, r"got if_taken='ask', expected one of \('next', 'refuse'\)"),
        ({"snapshot_mode": "first"}, "got snapshot_mode 'first'"),
        ({"verbosity": "loud"}, "got 'loud', expected one of"),
    ],
)
def test_wrong_settings_leave_nothing_behind(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message), logger_context(tmp_path / "new", **settings):
        pass
    assert not (tmp_path / "new").exists()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_directory_of_another_process_is_refused_until_it_dies(tmp_path):
    begun, of_run = multiprocessing.Pipe(duplex=False)
    if (pid := os.fork()) == 0:
        try:
            with logger_context(tmp_path, 0):
                of_run.send("begun")
                time.sleep(60)
        finally:
            os._exit(1)
    assert begun.recv() == "begun"
    try:
        choices: list[dict[str, Any]] = [{"if_taken": "refuse"}, {"overwrite": True}, {"resume": True}]
        for choice in choices:
            with pytest.raises(RunDirectoryError, match="run_ID=None") as error, logger_context(tmp_path, 0, **choice):
                pass
            holder = f"pid {pid} on host {socket.gethostname()}"
            assert f"{tmp_path / 'run_0'} is in use by {holder}" in str(error.value)
        for run_ID, name in ((None, "run_1"), (0, "run_0_1")):
            with logger_context(tmp_path, run_ID) as logger:
                assert logger.directory == tmp_path / name
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert read_json(tmp_path / "run_0", "status.json")["status"] == "running"
    with logger_context(tmp_path, 0):
        pass
    assert read_json(tmp_path / "run_0", "status.json")["status"] == "finished"


def test_file_system_without_locks_is_used_with_a_warning(tmp_path, monkeypatch):
    def no_flock(descriptor, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_flock)
    with pytest.warns(UserWarning, match="cannot be locked"), logger_context(tmp_path, 0):
        pass
    assert read_json(tmp_path / "run_0", "status.json")["status"] == "finished"


def test_a_full_disk_does_not_hide_how_a_run_has_ended(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail() -> None:
        with logger_context(tmp_path, 0):
            monkeypatch.setattr("rlpyt.logging.run_directory.write_json", full)
            raise ZeroDivisionError

    with (
        pytest.warns(UserWarning, match="status.json could not be written: .*Errno 28"),
        pytest.raises(ZeroDivisionError),
    ):
        fail()


@pytest.mark.parametrize("options", [dict(resume="auto"), dict(overwrite=False, if_taken="refuse")])
def test_an_error_of_the_disk_is_not_an_empty_folder(tmp_path, monkeypatch, options):
    """From Python 3.12 on Path.glob takes it for one, and what seems to be no run would be removed."""
    manifest = tmp_path / "run_0" / "checkpoints" / "000000000007" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")

    listdir = os.listdir

    def fails(folder="."):
        if Path(folder) == manifest.parent:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))
        return listdir(folder)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", fails)
        with pytest.raises(OSError, match="Input/output"), logger_context(tmp_path, 0, **options):
            pass
    assert manifest.exists()


def test_summary_writer_writes_events_and_changes_no_column(tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    for run_ID in (0, 1):
        with logger_context(tmp_path, run_ID, use_summary_writer=bool(run_ID)) as logger:
            logger.record_tabular_misc_stat("Return", [1.0, 3.0])
            logger.dump_tabular(10)
        assert len(list((tmp_path / f"run_{run_ID}").glob("events.out.tfevents.*"))) == run_ID
    assert (tmp_path / "run_0" / "progress.csv").read_bytes() == (tmp_path / "run_1" / "progress.csv").read_bytes()


@pytest.mark.parametrize("rank", [0, 1])
def test_of_the_processes_of_a_launcher_only_the_first_has_the_directory(rank, tmp_path, monkeypatch, capsys):
    for name, value in {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, str(value))
    with logger_context(tmp_path, 0) as logger:
        assert current_logger() is logger
        logger.log("hello")
        logger.record_tabular("x", 1)
        logger.record_tabular_misc_stat("y", [1.0, 2.0])
        logger.dump_tabular(10)
        logger.save_itr_params(0, {"w": 1})
        logger.record_params({"a": 1})
    assert isinstance(logger, SilentLogger) == (rank == 1)
    assert [path.name for path in tmp_path.iterdir()] == ["run_0"][: 1 - rank]
    assert ("hello" in capsys.readouterr().out) == (rank == 0)
    assert not isinstance(current_logger(), SilentLogger)


def test_a_silent_logger_keeps_warnings_and_shows_no_bar():
    with silent_context() as logger:
        logger.warn("a worker was lost")
        logger.warn_once("key", "found by all")
        assert (logger.take_warnings(), logger.take_warnings()) == (["a worker was lost"], [])
        assert not logger.shows_progress
    assert current_logger().shows_progress


FOLDERS = ("checkpoints", "histograms")
FILES = ("run.lock", "debug.log", "progress.csv", "status.json", "params.json", "params.pkl")


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_run_writes_through_no_link(tmp_path, name):
    """An archive may carry links: a run that goes on in it must not change what they lead to."""
    with logger_context(tmp_path / "data", 0) as logger:
        log_row(logger, 1, a=1)
    path, victim = tmp_path / "data/run_0" / name, tmp_path / "victim"
    path.unlink(missing_ok=True)
    precious = victim / "000000000009" if name in FOLDERS else victim
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("precious")
    path.symlink_to(victim)
    with (
        pytest.raises(RunDirectoryError, match=f"{name} is a link to .*cp -rL"),
        logger_context(tmp_path / "data", 0, resume=True),
    ):
        pass
    assert precious.read_text() == "precious"
