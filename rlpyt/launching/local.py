"""Back end of this machine: each run slot is some cores and GPUs, and each run a pinned process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from rlpyt.launching.affinity import Slots
from rlpyt.launching.back_end import Started
from rlpyt.launching.grid import GridRun
from rlpyt.launching.machine import Machine, shared_cores
from rlpyt.run_records import open_to_write
from rlpyt.utils.processes import available_cpus
from rlpyt.utils.worker_main import CORES, PR_SET_PDEATHSIG, STOP_SIGNALS

_LIBC = ctypes.CDLL(None)  # loaded before a process is forked


class LocalRun(Started):
    """Process of a run, whose process group is its own, so that Ctrl-C reaches the launcher alone."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the run goes on.

        What is left of the processes of a run that has not finished is killed: the next start would meet them.
        """
        code = self._process.poll()
        if code:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return code

    def stop(self, signum: int) -> None:
        """Send a signal."""
        self._process.send_signal(signum)


class LocalSlots:
    """Run slots of this machine, by the code of an affinity; see `run_experiments`."""

    def __init__(self, code: str, set_egl_device: bool = False) -> None:
        self._all = Slots.from_code(code)
        self._set_egl_device = set_egl_device
        if self._all.run_slot >= 0:
            raise ValueError(f"Launching: the affinity {code!r} names one run slot; expected the code of all slots.")
        self.n_slots = self._all.n_slots
        self._machine = Machine.of_this_process()
        if self._all.n_parallel and not self._machine.has_own_cores:
            self._all = replace(self._all, set_affinity=0)  # runs of other launchers may be on the same cores
        self._check()

    def _check(self) -> None:
        code = self._all.code
        if self._all.n_parallel > len(self._machine.cores):
            raise ValueError(
                f"Launching: the affinity {code!r} has {self.n_slots} runs side by side; expected at most one for each "
                f"of the {len(self._machine.cores)} cores that this process may use. Take fewer."
            )
        if self._all.n_parallel and self._all.n_gpu > len(self._machine.devices):
            raise ValueError(
                f"Launching: the affinity {code!r} has {self._all.n_gpu} GPUs; torch sees "
                f"{len(self._machine.devices)}. Take fewer."
            )
        allowed = set(available_cpus())
        beyond = sorted({cpu for i in range(self.n_slots) for cpu in self.cpus(i)} - allowed)
        if beyond and self._all.set_affinity:
            raise ValueError(
                f"Launching: the affinity {code!r} uses the cores {beyond}; this process may use {sorted(allowed)}. "
                "Name others, or take quick_affinity_code, which reads what it may use."
            )

    def cpus(self, slot: int) -> list[int]:
        """Return the logical CPUs of a slot."""
        shared = self._all.n_parallel
        cores = shared_cores(self._machine.cores, slot, shared) if shared else self._slot(slot).cores()
        return sorted(cpu for core in cores for cpu in core.cpus)

    def _slot(self, slot: int) -> Slots:
        return replace(self._all, run_slot=slot)

    def start(self, slot: int, run: GridRun, script: str, inherited: int) -> LocalRun:
        """Start a run."""
        code, cpus = self._slot(slot).code, self.cpus(slot) if self._all.set_affinity else []
        run.log_dir.mkdir(parents=True, exist_ok=True)
        return LocalRun(start_process(run, script, code, self._environment(slot), partial(_prepare, cpus), inherited))

    def _environment(self, slot: int) -> dict[str, str]:
        gpus: list[str] = []
        changes: dict[str, str] = {}
        if not self._all.set_affinity:  # nothing else tells a run its share
            changes[CORES] = str(len(self.cpus(slot)))
        if self._all.n_parallel and self._all.n_gpu:
            first = slot * self._all.n_replicas % self._all.n_gpu
            gpus = [*self._machine.devices[first : first + self._all.n_replicas]]
            changes["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        elif self._all.n_gpu:
            gpus = [*map(str, self._slot(slot).gpus())]
        if self._set_egl_device and gpus:
            changes |= {"EGL_DEVICE_ID": gpus[0], "MUJOCO_EGL_DEVICE_ID": gpus[0]}
        return changes


def _prepare(cpus: Sequence[int]) -> None:
    if cpus:
        with suppress(OSError):  # cores that were taken away meanwhile: the run, which pins its processes, says so
            os.sched_setaffinity(0, cpus)
    end_with_parent()


def start_process(
    run: GridRun, script: str, code: str, environment: Mapping[str, str], prepare: Callable[[], None], *inherited: int
) -> subprocess.Popen[bytes]:
    """Start the process of a run, in a process group of its own; it adds to the output of an earlier start.

    `prepare` is called in the new process, which keeps the descriptors `inherited` open.
    """
    with open(open_to_write(run.output, os.O_APPEND), "ab") as output:
        return subprocess.Popen(
            [sys.executable, script, code, str(run.log_dir), str(run.run_ID), *run.args],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            pass_fds=inherited,
            process_group=0,
            preexec_fn=prepare,
        )


def end_with_parent() -> None:
    """Ask the kernel to end this process by SIGTERM, so that it saves a checkpoint, when its parent dies.

    Its parent may block the signals that end a run, as processes of Ray do: the run would inherit that.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def script_path(script: str | os.PathLike[str]) -> str:
    """Return the absolute path of a script, which must be there."""
    path = Path(script).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"Launching: there is no script {path}; expected a Python file. Give its path.")
    return str(path)
