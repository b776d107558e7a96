"""Commands that are offered at the end of a run."""

from __future__ import annotations

import shlex
from pathlib import Path

from rlpyt.cli.show import trust_options
from rlpyt.envs.video import has_display
from rlpyt.run_records import PARAMS_FILE, PROGRESS_FILE, newest_checkpoint, read_json


def next_steps(directory: Path, path: str) -> list[str]:
    """Return lines with the commands that show a run, film its agent and draw its curves.

    What a command lacks, such as a package or an environment that draws itself, it says itself. `path` is the directory
    as a user would type it.
    """
    run = shlex.quote(path)
    lines = [f"What it was: rlpyt show {run}"]
    if any(directory.glob("*.pkl")) or newest_checkpoint(directory) is not None:
        video = "" if has_display() else f" --video {shlex.quote(path.rstrip('/') + '.mp4')}"
        lines.append(f"How it acts: rlpyt play {run}{video}{trust_options(read_json(directory / PARAMS_FILE)[0])}")
    if (directory / PROGRESS_FILE).exists():
        lines.append(f"How it learned: rlpyt plot {run}")
    return lines
