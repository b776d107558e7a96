"""Settings of the whole suite, and what several of its folders use."""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, settings

from rlpyt.utils.process_start import PRELOAD
from rlpyt.utils.worker_main import MASTER_OF_FORKSERVER, ONE_THREAD
from tests.ray_kit import TwoNodes, two_nodes
from tests.tiers import pytest_addoption, pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]

# Two pytest processes share two cores: a team of threads beside a busy core is many times slower than one thread.
torch.set_num_threads(1)

WITH_TESTS = ("pytest", "tests.runners.runner_kit", "tests.samplers.row_reference", "tests.vector_toy_envs")
"""What workers import with a class of a test, beside the toys."""

# Pages that draw with pyplot would open windows where there is a screen, and wait for their end.
os.environ["MPLBACKEND"] = "Agg"

# On a busy machine an example may take seconds, and so may the choice of one.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# On a login node, or in a job, no test may find the real SLURM: its clients fail at once without a configuration. The
# tests that `make slurm` runs have one of their own.
if "RLPYT_SLURM" not in os.environ:
    for variable in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "SUBMITIT_"))]:
        del os.environ[variable]
    os.environ["SLURM_CONF"] = os.devnull

# A script that starts the suite in the background has it ignore SIGINT, and so would the processes of the tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _forkserver_knows_the_toys():
    """In a run of the whole suite, have every worker forked from a process that has imported the toys.

    A worker that imports them itself takes 0.35 s instead of 0.05 s to start, and the suite starts about a thousand.
    Without xdist it is the first worker that starts the forkserver, with what the library has it import: the same
    workers, later.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        # torch imports torch._dynamo with its first optimiser, of which each replica has one.
        libraries = ["rlpyt.runners", "rlpyt.agents", "rlpyt.algos", "torch._dynamo"]
        forkserver.set_forkserver_preload([*PRELOAD, *libraries, *WITH_TESTS])
        # Numpy starts its threads when it is imported.
        with mock.patch.dict(os.environ, {**ONE_THREAD, MASTER_OF_FORKSERVER: str(os.getpid())}):
            forkserver.ensure_running()


@pytest.fixture(scope="module", autouse=True)
def _modules_are_no_garbage():
    """Keep what is there before the tests of a file, such as all modules, out of the searches for garbage.

    Each run of a runner searches once: among the objects of torch and of the tests that takes 0.2 s, a third of a short
    run.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def run_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that does what `python script options` does in an empty folder, in this process.

    A process of its own takes 5 s of a core to import torch, as much for its forkserver, and 3 s for what torch
    imports with its first optimiser.
    """

    def run(script: Path, *options: str) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setattr(sys, "argv", [str(script), *options])
        runpy.run_path(str(script), run_name="__main__")

    return run


HALL = """
    import gymnasium, json, os, sys, torch, traceback

    for line in sys.stdin:
        code, path = json.loads(line)
        pid = os.fork()
        if pid == 0:
            file = os.open(path, os.O_WRONLY | os.O_CREAT)
            os.dup2(file, 1), os.dup2(file, 2)
            failed = 0
            try:
                exec(code, {"__name__": "__main__"})
            except BaseException:
                traceback.print_exc()
                failed = 1
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(failed)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Return a function that runs code in a process without the library and returns what it has printed.

    It is forked from one that has imported torch, which takes 5 s, in a folder that is not the repository.
    """
    folder = tmp_path_factory.mktemp("hall")
    command, pipe = [sys.executable, "-c", textwrap.dedent(HALL)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=folder) as hall:

        def run(code: str) -> str:
            path = folder / f"{len(list(folder.iterdir()))}.txt"
            assert hall.stdin is not None
            assert hall.stdout is not None
            print(json.dumps([textwrap.dedent(code), str(path)]), file=hall.stdin, flush=True)
            ended, out = hall.stdout.readline(), path.read_text()
            assert ended == "0\n", out
            return out

        yield run
        hall.kill()


@pytest.fixture(scope="session")
def ray_session() -> Iterator[TwoNodes]:
    """Yield a Ray cluster of two nodes, which starts once for all tests."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with two_nodes() as nodes:
        yield nodes


@pytest.fixture
def ray_cluster(ray_session: TwoNodes) -> Iterator[TwoNodes]:
    """Yield the cluster with both nodes, to which this process is connected for one test."""
    on_sigterm = signal.getsignal(signal.SIGTERM)
    ray_session.make_whole()
    yield ray_session
    ray_session.disconnect()
    signal.signal(signal.SIGTERM, on_sigterm)  # Ray has set its own, which processes that are forked later would have
