"""Grid of runs on a disk: its folder, its variants, and how each run stands."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rlpyt.launching.variants import check_grid, json_of, load_variant, save_variant
from rlpyt.logging.files import hold_lock
from rlpyt.logging.run_directory import PREEMPTED
from rlpyt.run_records import VARIANT_FILE, last_row, open_to_write, run_status, steps_kept
from rlpyt.utils.checks import whole_number

LOCK_FILE = "grid.lock"
WAIT_SECONDS = 120.0
"""Time in which runs of a launcher that was killed save their checkpoints."""
_STARTS_WITHOUT_PROGRESS = 5


@dataclass(frozen=True)
class GridRun:
    """Run of a grid."""

    log_dir: Path
    """Absolute folder of the variant."""
    run_ID: int
    """Number of the run among those of its variant."""
    name: str
    """Folder of the variant in the grid, and the number."""
    args: tuple[str, ...] = ()
    """Further arguments of the script."""

    @property
    def directory(self) -> Path:
        """Directory of the run, which the script makes."""
        return self.log_dir / f"run_{self.run_ID}"

    @property
    def directories(self) -> list[Path]:
        """Directories of all its starts, the newest one last: a script without resume takes `run_<ID>_1` next."""
        try:
            names = os.listdir(self.log_dir)
        except OSError:  # of a network folder, which must not end the launcher
            names = []
        found = [re.fullmatch(rf"run_{self.run_ID}_([0-9]+)", name) for name in names]
        beside = sorted((match for match in found if match), key=lambda match: int(match[1]))
        return [self.directory, *(self.log_dir / match[0] for match in beside)]

    @property
    def output(self) -> Path:
        """File of all that the run prints."""
        return self.log_dir / f"run_{self.run_ID}.txt"

    @property
    def is_finished(self) -> bool:
        """Whether the run has finished, at any start."""
        return bool(self.finished_directories)

    @property
    def finished_directories(self) -> list[Path]:
        """Directories of the starts that have finished."""
        return [directory for directory in self.directories if run_status(directory)[0] == "finished"]

    def last_row(self) -> dict[str, str]:
        """Return the newest whole row of the run's log; empty where there is none."""
        return last_row(self.directories[-1])

    def steps_kept(self) -> int:
        """Return the steps from which the run would go on, the most of all its starts; -1 if it would begin anew."""
        return max(steps_kept(directory) for directory in self.directories)

    def note(self, text: str) -> None:
        """Write lines behind what the run has printed, where the disk takes them."""
        with suppress(OSError), open(open_to_write(self.output, os.O_APPEND), "a", encoding="utf-8") as output:
            output.write(f"{text}\n")

    def tail(self, n_lines: int = 20) -> str:
        """Return the last lines that the run has printed."""
        try:
            lines = self.output.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            return f"(no output: {error})"
        return "\n".join(lines[-n_lines:])


@dataclass
class Progress:
    """Progress of a run that is started again and again: not for ever without any."""

    kept: int = -1
    """Most steps that were kept."""
    without: int = 0
    """Starts in succession that have kept no more."""

    def goes_on(self, kept: int) -> bool:
        """Count a start that has ended with exit code 85 and these `GridRun.steps_kept`; return whether to go on."""
        self.without = 0 if kept > self.kept else self.without + 1
        self.kept = max(kept, self.kept)
        return self.without < _STARTS_WITHOUT_PROGRESS

    def told(self) -> str:
        """Return why the run is not started again."""
        kept = "nothing" if self.kept < 0 else f"{self.kept:,} steps"
        return (
            f"has ended {self.without} times with exit code {PREEMPTED}, that of a run to go on with, and kept no more "
            f"than before: {kept}. It is not started again"
        )


def runs_of_grid(
    folder: Path,
    variants: Sequence[Mapping[str, object]],
    log_dirs: Sequence[str],
    runs_per_setting: int,
    common_args: Sequence[object] = (),
    runs_args: Sequence[Sequence[object]] | None = None,
) -> list[GridRun]:
    """Return the runs of a grid: first one of each variant, then another one of each."""
    n_runs = whole_number("A grid", "runs_per_setting", runs_per_setting, 1)
    if runs_args is not None and len(runs_args) != len(variants):
        raise ValueError(
            f"A grid: got {len(runs_args)} runs_args for {len(variants)} variants; expected one list for each. "
            "Arguments of all runs are common_args."
        )
    check_grid(variants, log_dirs, runs_args)
    for variant, log_dir in zip(variants, log_dirs, strict=True):
        _check_same(variant, folder / log_dir)
    own_args = runs_args or [()] * len(variants)
    return [
        GridRun(folder / log_dir, run_ID, f"{log_dir}/{run_ID}", tuple(map(str, [*common_args, *args])))
        for run_ID in range(n_runs)
        for log_dir, args in zip(log_dirs, own_args, strict=True)
    ]


def save_grid(folder: Path, variants: Sequence[Mapping[str, object]], log_dirs: Sequence[str]) -> None:
    """Write each variant into its folder."""
    for variant, log_dir in zip(variants, log_dirs, strict=True):
        save_variant(variant, folder / log_dir)


def _check_same(variant: Mapping[str, object], log_dir: Path) -> None:
    if not (log_dir / VARIANT_FILE).exists():
        return
    before = load_variant(log_dir)
    if json_of(before, log_dir) != json_of(variant, log_dir):
        raise ValueError(
            f"A grid: {log_dir} has runs of the variant {before!r:.300}; got {dict(variant)!r:.300}. Choose another "
            "experiment_title or dir_name, or remove that folder."
        )


@contextmanager
def held_grid(folder: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[int]:
    """Hold the folder of a grid for one launcher, until it and all its runs, which inherit the lock, have ended.

    The longest time to wait is for runs of a launcher that was killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, end, said = folder / LOCK_FILE, time.monotonic() + wait_seconds, False
    while (lock := take_lock(path)) is None:
        holder = path.read_text(errors="replace")[:100] or "another process"
        is_alive = Path(f"/proc/{holder.rpartition(' ')[2]}").exists()
        if is_alive or time.monotonic() > end:
            raise RuntimeError(
                f"Launching {folder}: {holder} launches it, or runs that it has started go on. Wait for its end, or "
                "choose another experiment_title."
            )
        if not said:
            print(f"Waiting for runs in {folder} that another launcher has started and that save their work now.")
            said = True
        time.sleep(0.1)
    try:
        yield lock
    finally:
        os.close(lock)


def take_lock(path: Path) -> int | None:
    """Return the descriptor of a lock; None if another process holds it. Without locks it is free, with a warning."""
    try:
        lock, unsupported = hold_lock(path, f"process {os.getpid()}")
    except BlockingIOError:
        return None
    if unsupported is not None:
        warnings.warn(
            f"{path.parent} cannot be locked ({unsupported}); going on without. Nothing keeps a second launcher or "
            "searcher from the same runs: start one alone.",
            stacklevel=3,
        )
    return lock
