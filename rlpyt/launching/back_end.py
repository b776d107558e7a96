"""Back end of a queue of runs: the place where they go on, and what it says of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from rlpyt.launching.grid import GridRun, Progress


class SlotLost(RuntimeError):
    """Error of a run whose slot is gone: it has not failed, and goes on in another slot."""


class RunRefused(RuntimeError):
    """Error of a run that has failed and is not started again: it cannot start, or was ended by someone's will."""


class Started(Protocol):
    """Run that a back end has started."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the run goes on.

        Raises:
            SlotLost: if the slot is gone.
            RunRefused: if the run has failed, and another start would be in vain or unwanted.
        """

    def waiting(self) -> str | None:
        """Return what a job system says of a run in its queue, if it says something; None once the run goes on."""
        return None

    def stop(self, signum: int) -> None:
        """Send a signal: the first SIGTERM asks the run to save its work and end."""


@dataclass
class Launched:
    """Run of the queue, and how it stands."""

    run: GridRun
    state: str = "waits"
    slot: int | None = None
    failures: int = 0
    progress: Progress | None = None
    """None before the first start."""
    waiting: str | None = None
    """What the job system says of a run in its queue."""
    lock: int = -1
    """Descriptor that the run keeps open."""
    started: float = 0.0
    ended_early: float = 0.0
    process: Started | None = field(default=None, repr=False)


class BackEnd(Protocol):
    """Place where runs go on, a number of them side by side."""

    n_slots: int

    def start(self, slot: int, run: GridRun, script: str, inherited: int) -> Started:
        """Start a run in a free slot.

        Runs that end with the launcher keep the descriptor `inherited` open: it is the lock of the grid.

        Raises:
            RunRefused: if another process has the run.
        """
