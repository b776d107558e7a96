"""One run that is killed again and again: it ends with the numbers of the run that was left alone.

    python benchmarks/kill_soak.py --kills 200
    python benchmarks/kill_soak.py --kills 50 --algo sac --env cheetah --sampler serial

The run is started with the same command each time, and gets SIGKILL: in turn at a random time of its start, at a random
time after it has gone on, and while it saves. Only its main process is killed, as the kernel does that is out of
memory. After all kills it is left alone, and compared with the other run: parameters and all other state, and
`progress.csv` without columns of time. Nothing may outlive a kill: no process, no shared memory, no temporary file.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from resume_kit import Started, files_left, first_difference, steps_saved
from resume_matrix import ALGOS, ENVS, SAMPLERS, B, Case, T, parts_of

from rlpyt.core import Metrics
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.types import TrajInfo

LOG_ITRS, CHECKPOINT_ITRS = 10, 7
"""Iterations between rows of the log, and between checkpoints; no common divisor."""
MARK = "iterations_done"
"""File of the number of iterations that the run has done, for the count of what a kill costs."""
MOMENTS = ("start", "run", "save")


class MarkedRl(MinibatchRl):
    """Runner that notes every iteration in a file."""

    mark: Path

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Note the iteration."""
        super().store_diagnostics(itr, traj_infos, metrics)
        self.mark.write_text(str(itr + 1))


def train(case: Case, log_dir: str, n_itr: int, start_method: str | None = None) -> None:
    """Begin the run, or go on with it."""
    rows = T * B
    runner = MarkedRl(
        **parts_of(case, start_method),
        n_steps=n_itr * rows,
        log_interval_steps=LOG_ITRS * rows,
        checkpoint_interval_steps=CHECKPOINT_ITRS * rows,
    )
    with logger_context(log_dir, run_ID=0, resume="auto", snapshot_mode="none") as logger:
        assert logger.directory is not None
        runner.mark = logger.directory / MARK
        runner.train()


class Killed(NamedTuple):
    """What a kill cost."""

    moment: str
    lost: int
    """Iterations since the newest checkpoint."""
    resumed_after: float | None
    """Seconds from the start of the process to its first iteration; None if it did not come so far."""


class Soak:
    """Run that is killed.

    Args:
        command: of the run, less its folder.
        fork: what a fork does instead of the command, given its folder; None for the command.
        folder: for both runs.
        rng: of the moments.
    """

    def __init__(
        self, command: Sequence[str], fork: Callable[[str], object] | None, folder: Path, rng: random.Random
    ) -> None:
        self.command, self.fork, self.folder, self.rng = command, fork, folder, rng
        self.run_dir = folder / "killed" / "run_0"
        self.start_seconds = 0.0  # from the start of a process to its first iteration, as measured last

    def start(self, name: str = "killed") -> Started:
        """Start a run, or go on with it."""
        log_dir = str(self.folder / name)
        command = [*self.command, "--log_dir", log_dir]
        run = None if self.fork is None else partial(self.fork, log_dir)
        return Started(command, self.folder / f"{name}.txt", self.folder / "tmp", run)

    def leave_alone(self, n_kills: int) -> float:
        """Let a run go on to its end; return the seconds that this took, of which the kills take their moments."""
        began = time.monotonic()
        run = self.start("alone")
        run.wait_until((self.folder / "alone" / "run_0" / MARK).exists)
        self.start_seconds = time.monotonic() - began
        self._finish(run, "alone")
        seconds = time.monotonic() - began
        self._longest = min(1.5, (seconds - self.start_seconds) / n_kills)  # so that no run ends before its last kill
        return seconds

    def finish(self) -> None:
        """Let the run that was killed go on to its end."""
        self._finish(self.start(), "killed")

    def _finish(self, run: Started, name: str) -> None:
        code = run.wait(3600.0)
        if code:
            raise RuntimeError(f"exit code {code}: the output is in {self.folder / name}.txt")

    def kill(self, moment: str) -> tuple[Killed | None, list[str]]:
        """Start the run and kill it; return what it cost, None if it was at its end before, and what outlived it."""
        before, began = self._mark_time(), time.monotonic()
        run = self.start()
        goes_on: float | None = None
        if moment == "start":
            run.wait_until(lambda: time.monotonic() - began > self._start_time)
            goes_on = time.monotonic() - began if self._mark_time() != before else None
        elif run.wait_until(lambda: self._mark_time() != before):
            goes_on = self.start_seconds = time.monotonic() - began
            if moment == "save":
                earlier = self._saves_begun()
                run.wait_until(lambda: bool(self._saves_begun() - earlier))
                time.sleep(self.rng.uniform(0.0, 0.02))
            else:
                time.sleep(self.rng.uniform(0.0, self._longest))
        if run.process.poll() is not None:
            if run.process.returncode:
                raise RuntimeError(f"exit code {run.process.returncode}: the output is in {self.folder}/killed.txt")
            return None, []
        left = run.kill()
        lost = max(0, self._n_done() - steps_saved(self.run_dir) // (T * B)) if goes_on else 0
        return Killed(moment, lost, goes_on), left

    def draw(self) -> None:
        """Draw the time of the next kill during a start."""
        self._start_time = self.rng.uniform(0.0, self.start_seconds)

    def _mark_time(self) -> int:
        """Return when the run has noted an iteration last; 0 if never."""
        mark = self.run_dir / MARK
        return mark.stat().st_mtime_ns if mark.exists() else 0

    def _n_done(self) -> int:
        """Return the iterations that are noted; the file is empty if the kill came while it was written."""
        return int((self.run_dir / MARK).read_text() or 0)

    def _saves_begun(self) -> set[str]:
        """Return the names of the checkpoints, also of one that is being written."""
        return {place.name for place in (self.run_dir / "checkpoints").glob("[0-9]*")}


def main() -> None:
    """Read the options; run the run, or kill it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--algo", choices=list(ALGOS), default="dqn")
    parser.add_argument("--env", choices=list(ENVS), default="cartpole")
    parser.add_argument("--sampler", choices=list(SAMPLERS), default="cpu")
    parser.add_argument("--n_itr", type=int, default=None, help="40 for each kill by default")
    parser.add_argument("--seed", type=int, default=None, help="of the moments; drawn by default")
    parser.add_argument("--forks", action="store_true", help="start forks of this process, which is faster")
    parser.add_argument("--keep", default=None, help="folder that the runs stay in; it must not exist")
    parser.add_argument("--log_dir", help=argparse.SUPPRESS)
    args = parser.parse_args()
    n_itr = args.n_itr or 40 * args.kills
    case = Case(args.algo, args.env, args.sampler)
    if args.log_dir:
        train(case, args.log_dir, n_itr)
        return
    names = ("algo", "env", "sampler")
    command = [__file__, *(x for name in names for x in (f"--{name}", getattr(args, name))), "--n_itr", str(n_itr)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary)
        folder.mkdir(exist_ok=args.keep is None)
        fork = partial(train, case, n_itr=n_itr, start_method="fork") if args.forks else None
        sys.exit(soak(Soak(command, fork, folder, random.Random(args.seed)), args.kills))


def soak(run: Soak, n_kills: int) -> int:
    """Kill a run so often, and compare it with one that is left alone; return the exit code."""
    left: list[str] = []
    killed: list[Killed] = []
    alone = run.leave_alone(n_kills)
    print(f"The run that was left alone took {alone:.0f} s.", flush=True)
    start = time.monotonic()
    while len(killed) < n_kills:
        run.draw()
        result, outlived = run.kill(MOMENTS[len(killed) % len(MOMENTS)])
        left += outlived
        if result is None:
            print(f"The run came to its end after {len(killed)} kills; give a larger --n_itr.")
            break
        killed.append(result)
        if len(killed) % 10 == 0:
            print(
                f"{len(killed)} kills, {steps_saved(run.run_dir):,} steps, {time.monotonic() - start:.0f} s", flush=True
            )
    run.finish()
    left += files_left(run.folder / "tmp")
    report(killed)
    difference = first_difference(run.run_dir, run.folder / "alone" / "run_0")
    print(f"Compared with the run that was left alone: {difference or 'identical'}.")
    print(f"Left behind: {', '.join(left) or 'nothing'}.")
    return int(difference is not None or bool(left) or len(killed) < n_kills)


def report(killed: Sequence[Killed]) -> None:
    """Print what the kills have cost."""
    for moment in MOMENTS:
        some = [kill for kill in killed if kill.moment == moment]
        lost = [kill.lost for kill in some]
        went_on = [kill.resumed_after for kill in some if kill.resumed_after is not None]
        text = f"{len(some)} kills at: {moment}, {len(went_on)} of them after an iteration"
        if went_on:
            text += f"; the first one came after {median(went_on):.2f} s (median), {max(went_on):.2f} s at most"
            text += f"; lost were {mean(lost):.1f} iterations (mean), {max(lost)} at most"
        print(text)


if __name__ == "__main__":
    main()
