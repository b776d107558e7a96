"""Process of the run slots on another machine, whose `main` an actor of Ray starts.

It takes pickled calls from standard input, and answers each. It ends with its input, and the kernel then sends SIGTERM
to its runs, as to those of a launcher that dies. An actor of Ray could not own the runs: Ray kills the children of a
process that it ends, so they would save no checkpoint.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rlpyt.launching.affinity import quick_affinity_code
from rlpyt.launching.grid import WAIT_SECONDS, GridRun
from rlpyt.launching.local import LocalRun, LocalSlots
from rlpyt.launching.machine import Machine
from rlpyt.launching.variants import VARIANT_FILE
from rlpyt.logging.files import lock_file, open_lock
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.utils.calls import CallServer

Codes: TypeAlias = dict[int, int | str]
"""Exit codes of runs that have ended, by the number of their start; a text for one that could not start."""


@dataclass(frozen=True)
class Order:
    """Order to start a run, in plain data."""

    number: int
    """Number of the start, which no other of the launcher has."""
    slot: int
    script: str
    log_dir: str
    run_ID: int
    name: str
    args: list[str]


class NodeSlots:
    """Run slots of this machine, whose runs wait for those of the same directory elsewhere.

    A run holds the file `run_<run_ID>.lock` of its variant's folder. So a run of a node that only seems lost, or of a
    launcher that was killed, has saved its work before the same run goes on here.

    Args:
        code: of the affinity, see `rlpyt.launching.LocalSlots`; None is `quick_affinity_code` for the cores of Ray.
        set_egl_device: whether a run renders on its GPU.
        max_slots: most slots where there is no code.
        wait_seconds: longest time to wait for another holder of a run.

    Raises:
        ValueError: if the code does not fit this machine.
    """

    def __init__(
        self, code: str | None, set_egl_device: bool, max_slots: int, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        if code is None:
            machine = Machine.of_this_process()
            code = quick_affinity_code(len(machine.devices) or min(max_slots, len(machine.cores)))
        self._slots, self._wait_seconds = LocalSlots(code, set_egl_device), wait_seconds
        self.n_slots = self._slots.n_slots
        self._waiting: dict[int, tuple[Order, float]] = {}
        self._runs: dict[int, LocalRun] = {}
        self._codes: Codes = {}

    def start(self, order: Order) -> None:
        """Start a run, as soon as no other process holds it."""
        self._waiting[order.number] = order, time.monotonic() + self._wait_seconds
        self.poll()

    def poll(self) -> Codes:
        """Return the exit codes of the runs that have ended."""
        for order, end in list(self._waiting.values()):
            self._try(order, end)
        for number, run in list(self._runs.items()):
            if (code := run.poll()) is not None:
                self._codes[number] = code
                del self._runs[number]
        return self._codes

    def stop(self, number: int, signum: int) -> None:
        """Send a signal to a run; one that has not started ends."""
        if number in self._runs:
            self._runs[number].stop(signum)
        elif self._waiting.pop(number, None) is not None:
            self._codes[number] = PREEMPTED

    def _try(self, order: Order, end: float) -> None:
        run = GridRun(Path(order.log_dir), order.run_ID, order.name, tuple(order.args))
        missing = [path for path in (Path(order.script), run.log_dir / VARIANT_FILE) if not path.is_file()]
        if missing:
            self._give_up(order, f"there is no {missing[0]}; script and grid must be on a file system of all nodes")
            return
        lock = open_lock(run.log_dir / f"run_{run.run_ID}.lock")
        try:
            if _is_held_elsewhere(lock):
                if time.monotonic() > end:
                    self._give_up(order, f"another process has held the run for {self._wait_seconds:g} s; end it")
                return
            self._runs[order.number] = self._slots.start(order.slot, run, order.script, lock)
            del self._waiting[order.number]
        except OSError as error:
            self._give_up(order, f"the run cannot start: {error}")
        finally:
            os.close(lock)

    def _give_up(self, order: Order, why: str) -> None:
        del self._waiting[order.number]
        self._codes[order.number] = why


def _is_held_elsewhere(lock: int) -> bool:
    try:
        lock_file(lock)  # without locks, the run directory is refused to a second process where it can be
    except BlockingIOError:
        return True
    return False


class NodeServer(CallServer):
    """Server of the process of a node's run slots."""

    _slots: NodeSlots

    def open(self, code: str | None, set_egl_device: bool, max_slots: int) -> int | str:
        """Make the slots, see `NodeSlots`; return their number, or why the code does not fit this machine."""
        try:
            self._slots = NodeSlots(code, set_egl_device, max_slots)
        except (ValueError, OSError) as error:
            return str(error)
        return self._slots.n_slots

    def start(self, order: Order) -> None:
        """Start a run, as soon as no other process holds it."""
        self._slots.start(order)

    def poll(self) -> Codes:
        """Return the exit codes of the runs that have ended."""
        return self._slots.poll()

    def stop(self, number: int, signum: int) -> None:
        """Send a signal to a run."""
        self._slots.stop(number, signum)


def main() -> None:
    """Answer calls until standard input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no reply
    server = NodeServer()
    with suppress(EOFError):
        while True:
            pickle.dump(server(pickle.load(sys.stdin.buffer)), replies)
            replies.flush()
