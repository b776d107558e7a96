"""Grids on this machine: pinned runs, failures, kills of runs and of the launcher, and the grid that goes on."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from rlpyt.launching import launched_run, quick_affinity_code, run_experiments, save_variant
from rlpyt.launching.experiments import Launched, Queue, Runs, signals_to
from rlpyt.launching.grid import held_grid, runs_of_grid
from rlpyt.launching.local import LocalSlots
from rlpyt.launching.table import GridTable
from tests.launching.kit import ONE, QUICK, SLOW, TWO, script, starts, wait_until, when
from tests.pairs import others_nightly

CORES = sorted(os.sched_getaffinity(0))
CODE = f"{min(2, len(CORES))}aut"


def launch(tmp_path, rest, runs_per_setting=1, code=CODE, grid=TWO, file=None, **kwargs):
    path, data_dir, file = script(tmp_path, rest), tmp_path / "data", file or io.StringIO()
    code = run_experiments(path, code, "study", runs_per_setting, *grid, data_dir=data_dir, file=file, **kwargs)
    return code, file.getvalue()


def output(tmp_path, name, run_ID=0):
    return (tmp_path / "data/study" / name / f"run_{run_ID}.txt").read_text()


def started(tmp_path, name, run_ID=0):
    return starts(tmp_path / "data/study" / name / f"run_{run_ID}")


# ---- a grid that goes well ----


def test_all_runs_finish_each_on_the_cores_of_its_slot(tmp_path):
    exit_code, table = launch(tmp_path, QUICK, runs_per_setting=2, common_args=["--a"], runs_args=[["b"], ["c"]])
    assert exit_code == 0
    assert "4 finished" in table
    lines = [output(tmp_path, name, i) for name in TWO[1] for i in (0, 1)]
    pinned = {line.partition("cores ")[2].partition(" code")[0] for line in lines}
    assert pinned <= {f"[{cpu}]" for cpu in CORES} if len(CORES) > 1 else {str(CORES)}
    assert "code 0slt_" in lines[0]
    assert "['--a', 'b']" in lines[0]
    assert "['--a', 'c']" in lines[2]


@pytest.mark.parametrize(
    ("code", "visible"), [("1aut_4gpu", ["5"]), ("1aut_4gpu_3gpr", ["5,6,7"]), ("1aut_4gpu_4gpr", ["5,6,7,8"])]
)
def test_a_run_sees_as_many_gpus_as_it_has_replicas(code, visible, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7,8")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    launch(tmp_path, f"print('sees', [os.environ['CUDA_VISIBLE_DEVICES']])\n{QUICK}", code=code)
    assert f"sees {visible}" in output(tmp_path, "x_1")


def test_a_second_call_leaves_finished_runs_out(tmp_path):
    launch(tmp_path, QUICK)
    exit_code, table = launch(tmp_path, 'raise AssertionError("started again")', runs_per_setting=1)
    assert exit_code == 0
    assert "of which 2 have finished before" in table
    exit_code, table = launch(tmp_path, QUICK, runs_per_setting=2)
    assert (len(started(tmp_path, "x_1")), len(started(tmp_path, "x_2", 1))) == (1, 1)


def test_a_run_that_leaves_no_record_in_its_folder_is_told_of(tmp_path):
    exit_code, table = launch(tmp_path, 'if "x_1" in log_dir: sys.exit(0)\n' + QUICK)
    assert exit_code == 0
    assert table.count("has no status.json of a finished run") == 1
    assert "x_1/0 ended with exit code 0, but " in table


def test_runs_without_pinning_keep_all_cores_and_are_told_their_number(tmp_path, monkeypatch):
    """So do runs in a job without binding: the launchers of all jobs on the node would pin theirs to the same cores."""
    launch(tmp_path, QUICK, code=f"{CODE}_0saf")
    assert f"cores {CORES}" in output(tmp_path, "x_1")
    assert f"may keep busy {max(1, len(CORES) // 2)}" in output(tmp_path, "x_1")
    monkeypatch.setenv("SLURM_JOB_ID", "109")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    if len(CORES) > 1:
        assert quick_affinity_code(use_gpu=False) == "1aut_0saf"
        launch(tmp_path, QUICK, code="1aut", grid=([{"x": 3}], ["x_3"]))
        assert f"cores {CORES} code 0slt_1aut_0saf" in output(tmp_path, "x_3")
        assert "may keep busy 1" in output(tmp_path, "x_3")


def test_a_second_start_in_a_directory_beside_the_first_finishes_the_run(tmp_path):
    """A script without resume writes nothing into the directory of a run that was killed."""
    beside = """
if n_starts == 1:
    os.kill(os.getpid(), signal.SIGKILL)
folder = folder.with_name(folder.name + "_1")
folder.mkdir()
(folder / "progress.csv").write_text("Diagnostics/CumSteps,ReturnAverage\\n7,3\\n")
"""
    _, table = launch(tmp_path, beside + QUICK, grid=ONE)
    assert "x_1/0 finished, steps 7, return 3" in table
    for other in ("run_0_1_1", "run_00_1", "run_0_name"):
        (tmp_path / "data/study/x_1" / other).mkdir()
    _, table = launch(tmp_path, "1 / 0", grid=ONE)
    assert "of which 1 have finished before" in table


def test_a_grid_outlives_its_terminal(tmp_path):
    class Closed(io.StringIO):
        def write(self, text):
            raise OSError(5, "Input/output error")

        def isatty(self):
            return True

    path = script(tmp_path, QUICK)
    assert run_experiments(path, CODE, "study", 1, *TWO, data_dir=tmp_path / "data", file=Closed()) == 0


# ---- runs that fail, are killed, or are preempted ----


def test_a_failed_run_is_started_again_and_then_reported_with_its_last_lines(tmp_path):
    exit_code, table = launch(tmp_path, 'variant["x"] == 1 and 1 / 0\n' + QUICK)
    assert exit_code == 1
    assert "1 failed, 1 finished" in table
    assert table.count("x_1/0 failed with exit code 1") == 2
    assert "ZeroDivisionError: division by zero" in table
    assert "failed: x_1/0, see " in table
    assert len(started(tmp_path, "x_1")) == 2
    exit_code, table = launch(tmp_path, "1 / 0", retries=0)
    assert table.count("failed with exit code") == 1


def test_a_killed_run_is_started_again_and_does_not_meet_what_it_had_started(tmp_path):
    child = """
if n_starts == 1:
    pid = os.fork()
    if not pid:
        time.sleep(300)
    (folder / "child").write_text(str(pid))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    exit_code, table = launch(tmp_path, child + QUICK, grid=ONE)
    assert exit_code == 0
    assert "was ended by SIGKILL" in table
    assert output(tmp_path, "x_1").count("run 0 pid") == 2, "the second start writes behind the first"
    pid = int((tmp_path / "data/study/x_1/run_0/child").read_text())
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 20)


# ---- the launcher is stopped or killed ----


def has_started(tmp_path):
    return all(started(tmp_path, name) for name in TWO[1][: min(2, len(CORES))])


@pytest.fixture
def _no_signal_is_ignored():
    """A signal that is ignored, as under nohup, stays so."""
    before = {signum: signal.signal(signum, lambda *_: None) for signum in (signal.SIGHUP, signal.SIGUSR1)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("_no_signal_is_ignored")
@pytest.mark.parametrize(
    ("signum", "expected"),
    others_nightly(
        [(signal.SIGINT, 130), (signal.SIGTERM, 85), (signal.SIGHUP, 85), (signal.SIGUSR1, 85)],
        [(signal.SIGINT, 130), (signal.SIGUSR1, 85)],
    ),
)
def test_a_signal_lets_the_runs_save_their_work_and_tells_how_to_go_on(tmp_path, signum, expected):
    when(lambda: has_started(tmp_path), lambda: os.kill(os.getpid(), signum))
    exit_code, text = launch(tmp_path, SLOW, runs_per_setting=2)
    n = min(2, len(CORES))
    assert exit_code == expected
    assert f"{signum.name}: {n} runs save their work" in text
    assert f"{n} stopped" in text
    assert "go on: start the grid again with the same command" in text
    assert not any(psutil.pid_exists(pid) for name in TWO[1] for pid in started(tmp_path, name))
    assert '"interrupted"' in (tmp_path / "data/study/x_1/run_0/status.json").read_text()


@pytest.mark.parametrize("ignored", ["SIGTERM", "SIGTERM SIGINT"])
def test_a_second_signal_ends_runs_at_once_that_do_not_end(tmp_path, monkeypatch, ignored):
    """SIGINT, as a run that saves its work takes a second SIGTERM for the first one; and SIGKILL in the end."""
    monkeypatch.setattr("rlpyt.launching.experiments._KILL_SECONDS", 20.0 if ignored == "SIGTERM" else 0.3)
    table = io.StringIO()

    def twice():
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: "1 runs save their work" in table.getvalue())
        os.kill(os.getpid(), signal.SIGTERM)

    when((tmp_path / "data/study/x_1/run_0/ready").exists, twice)
    rest = f'for name in "{ignored}".split():\n    signal.signal(getattr(signal, name), signal.SIG_IGN)\n'
    exit_code, text = launch(tmp_path, rest + '(folder / "ready").touch()\n' + SLOW, grid=ONE, file=table)
    assert exit_code == 85
    assert "1 runs end at once" in text
    assert ("KeyboardInterrupt" in output(tmp_path, "x_1")) == (ignored == "SIGTERM")


def test_a_launcher_that_fails_itself_lets_its_runs_save_their_work(tmp_path, monkeypatch):
    def fails(self, runs):
        if started(tmp_path, "x_1"):
            raise RuntimeError("no table")

    monkeypatch.setattr(GridTable, "show", fails)
    with pytest.raises(RuntimeError, match="no table"):
        launch(tmp_path, SLOW, grid=ONE)
    status = tmp_path / "data/study/x_1/run_0/status.json"
    wait_until(lambda: status.exists() and "interrupted" in status.read_text())


def test_a_signal_does_not_wait_until_each_run_was_looked_at(tmp_path):
    """Where a job system is away, each look takes a minute."""

    class Away:
        n_slots = 4
        n_looks = 0

        def start(self, *_):
            return self

        def poll(self):
            self.n_looks += 1
            if self.n_looks == 6:  # of the first run, once all four have started
                queue.stop(signal.SIGTERM)
            return -signal.SIGTERM if self.n_looks > 6 else None

        def waiting(self):
            return ""

        def stop(self, signum):
            assert self.n_looks == 6

    runs = [Launched(run) for run in runs_of_grid(tmp_path, [{}], ["."], 4)]
    queue = Queue(Runs(runs), Away(), "", 0, GridTable(tmp_path, io.StringIO()))
    queue.work()
    assert queue.exit_code() == 85


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    """So nohup keeps a grid."""
    queue = Queue(Runs(), LocalSlots("1aut"), "", 0, GridTable(tmp_path, io.StringIO()))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_to(queue):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


LAUNCHER = """
from rlpyt.launching import run_experiments
run_experiments({script!r}, {code!r}, "study", 2, *{grid!r}, data_dir={data!r})
"""


def test_a_killed_launcher_leaves_no_run_behind_and_the_next_one_goes_on(tmp_path):
    names = dict(script=str(script(tmp_path, SLOW)), code=CODE, grid=TWO, data=str(tmp_path / "data"))
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER.format(**names)], stdout=subprocess.DEVNULL)
    wait_until(lambda: has_started(tmp_path))
    runs = psutil.Process(launcher.pid).children()
    launcher.kill()
    launcher.wait()
    exit_code, table = launch(tmp_path, QUICK, runs_per_setting=2)
    assert exit_code == 0
    wait_until(lambda: not any(run.is_running() for run in runs))
    assert "4 finished" in table
    assert len(started(tmp_path, "x_1")) == 2


AT_85 = """
steps = {steps}
(folder / "progress.csv").write_text(f"Diagnostics/CumSteps,ReturnAverage\\n{{steps}},3\\n")
if {has_checkpoint}:
    place = folder / "checkpoints" / f"{{steps:012d}}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "manifest.json").write_text("{{}}")
n_starts < 8 and finish("interrupted", 85)
"""


@pytest.mark.parametrize("has_checkpoint", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_run_that_is_preempted_again_and_again_fails_if_it_keeps_no_more_steps(tmp_path, has_checkpoint):
    exit_code, table = launch(tmp_path, AT_85.format(steps=70, has_checkpoint=has_checkpoint) + QUICK, grid=ONE)
    assert exit_code == 1
    assert "x_1/0 has ended 5 times with exit code 85" in table
    assert "kept no more than before: 70 steps" in table
    assert len(started(tmp_path, "x_1")) == 6, "the first start has kept steps"
    shutil.rmtree(tmp_path / "data")
    more = AT_85.format(steps="10 * n_starts", has_checkpoint=has_checkpoint)
    assert launch(tmp_path, more + QUICK, grid=ONE, retries=0)[0] == 0


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_grid_on_a_file_system_without_locks_runs_with_a_warning(tmp_path, monkeypatch, number):
    def no_flock(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", no_flock)
    with pytest.warns(UserWarning, match="study cannot be locked .* Nothing keeps a second launcher"):
        assert launch(tmp_path, QUICK, grid=ONE)[0] == 0


def test_a_run_that_the_disk_keeps_from_its_start_has_failed_and_the_others_go_on(tmp_path, monkeypatch):
    start = LocalSlots.start

    def refuses_one(self, slot, run, *args):
        if run.name == "x_1/0":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return start(self, slot, run, *args)

    monkeypatch.setattr(LocalSlots, "start", refuses_one)
    exit_code, table = launch(tmp_path, QUICK)
    assert exit_code == 1
    assert "x_1/0: [Errno 28]" in table
    assert "1 failed, 1 finished" in table


def test_two_launchers_do_not_run_one_grid(tmp_path):
    with held_grid(tmp_path / "data/study"), pytest.raises(RuntimeError, match="launches it, or runs that it has"):
        launch(tmp_path, QUICK)


def test_a_second_launcher_waits_for_runs_of_a_killed_one_and_then_gives_up(tmp_path):
    (tmp_path / "study").mkdir()
    with open(tmp_path / "study/grid.lock", "w") as lock:
        lock.write("process 999999999")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError), held_grid(tmp_path / "study", wait_seconds=0.0):
            pass
        threading.Timer(0.5, lock.close).start()
        with held_grid(tmp_path / "study", wait_seconds=20.0):
            assert lock.closed


# ---- bad input, before anything starts ----


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (dict(code="1slt_2cpu"), "names one run slot"),
        (dict(code="4096aut"), "at most one for each"),
        (dict(code="4096cpu_4096cpr"), "this process may use"),
        (dict(code="1aut_64gpu"), "torch sees"),
        (dict(grid=([], [])), "0 variants"),
        (dict(grid=([{"x": 1}, {"x": 1}], ["a", "b"])), "same variant"),
        (dict(runs_per_setting=0), "runs_per_setting is 0"),
        (dict(runs_args=[[]]), "1 runs_args for 2 variants"),
        (dict(retries=-1), "retries is -1"),
    ],
)
def test_a_wrong_grid_starts_nothing(tmp_path, changes, text):
    with pytest.raises(ValueError, match=text):
        launch(tmp_path, QUICK, **changes)
    with pytest.raises(FileNotFoundError, match="there is no script"):
        run_experiments(tmp_path / "none.py", CODE, "study", 1, *TWO, data_dir=tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_another_grid_in_the_same_folder_is_refused(tmp_path):
    launch(tmp_path, QUICK)
    with pytest.raises(ValueError, match=r"has runs of the variant {'x': 1}; got {'x': 5}"):
        launch(tmp_path, QUICK, grid=([{"x": 5}], ["x_1"]))
    same = [{"x": float("nan"), "sizes": (1, 2)}], ["nan"]
    assert [launch(tmp_path, QUICK, grid=same)[0] for _ in range(2)] == [0, 0]


# ---- the script's side ----


def test_a_script_knows_whether_it_was_launched(tmp_path):
    save_variant({"algo": {"epochs": 3}}, tmp_path)
    run = launched_run(["0slt_1cpu", str(tmp_path), "4", "--x"])
    assert run is not None
    assert (run.log_dir, run.run_ID, run.variant, run.args) == (str(tmp_path), 4, {"algo": {"epochs": 3}}, ("--x",))
    assert run.affinity["master_cpus"] == [0]
    assert launched_run([]) is None
    assert launched_run(["--smoke"]) is None
    with pytest.raises(ValueError, match="expected an affinity code, a folder and a run_ID"):
        launched_run(["0slt_1cpu", str(tmp_path)])


def test_the_table_of_a_terminal_is_redrawn_and_hides_runs_that_do_not_fit(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((60, 6)))
    monkeypatch.setenv("TERM", "xterm")  # without one nothing is redrawn
    terminal = Terminal()
    grid = ([{"x": i} for i in range(4)], [f"x_{i}" for i in range(4)])
    run_experiments(script(tmp_path, QUICK), CODE, "study", 1, *grid, data_dir=tmp_path / "data", file=terminal)
    text = terminal.getvalue()
    assert "\x1b[4F\x1b[J" in text, "the table of four lines was removed before the next one"
    last = text.rpartition("\x1b[J")[2]
    assert last.splitlines()[0].split() == ["run", "state", "slot", "steps", "return", "minutes"]
    assert "and 2 more" in last
    assert all(len(line) < 60 for line in last.splitlines()[:4])
