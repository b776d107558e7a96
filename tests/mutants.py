"""`make mutants ROOM=functional`: mutation testing of a room of the library, by mutmut, in a copy of the repository.

    python -m tests.mutants ROOM [--sample N] [options of `mutmut run`]

mutmut makes each change that it knows, one at a time, and runs the room's own tests, `tests/<room>`. What no test
notices is listed at the end, and shown by `mutmut show` in the folder that is named. Of a large room N changes, drawn
at random and always the same, tell the share well enough: 400 of them to within 5 %. Nothing of it is kept. Tests on
Ray are left out: its cluster does not outlive the fork in which mutmut runs the tests of a change.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("rlpyt", "tests", "benchmarks", "examples", "experiments", "docs", "README.md", "pyproject.toml", "setup.py")
CONFIGURATION = """
[mutmut]
source_paths=rlpyt
only_mutate=rlpyt/{room}/*
pytest_add_cli_args_test_selection=tests/{room}
pytest_add_cli_args=
    -p
    no:cacheprovider
    -p
    no:xdist
    -m
    not ray
also_copy=
    {copied}
"""
MUTMUT = [sys.executable, "-m", "mutmut"]


def main(arguments: Sequence[str]) -> int:
    """Run mutmut over a room; return 0 if it could."""
    rooms = sorted(path.name for path in (ROOT / "rlpyt").iterdir() if (ROOT / "tests" / path.name).is_dir())
    parser = argparse.ArgumentParser(prog="make mutants", allow_abbrev=False)
    parser.add_argument("room", choices=rooms)
    parser.add_argument("--sample", type=int)
    args, options = parser.parse_known_args(arguments)
    folder = ROOT / ".mutants" / args.room
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    also = "\n    ".join(name for name in COPIED if name not in ("rlpyt", "setup.py"))
    (folder / "setup.cfg").write_text(CONFIGURATION.format(room=args.room, copied=also))
    if args.sample:
        run(folder, "none of them")  # makes all, and finds out which tests reach them
        made = sorted(name for name, _ in results(folder))
        options += random.Random(0).sample(made, min(args.sample, len(made)))
    code = run(folder, *options)
    found = [(name, state) for name, state in results(folder) if state != "not checked"]
    for name, state in found:
        if state != "killed":
            print(f"{state}: {name}")
    print(", ".join(f"{n} {state}" for state, n in Counter(state for _, state in found).most_common()))
    print(f"One of them: cd {folder.relative_to(ROOT)} && mutmut show NAME. All that mutmut printed: output.txt there.")
    return code


def run(folder: Path, *options: str) -> int:
    """Run mutmut; return its exit code."""
    with open(folder / "output.txt", "a") as output:
        command = [*MUTMUT, "run", *options]
        return subprocess.run(command, cwd=folder, stdout=output, stderr=output, check=False).returncode


def results(folder: Path) -> list[tuple[str, str]]:
    """Return the changes and what became of them."""
    done = subprocess.run(
        [*MUTMUT, "results", "--all", "true"], cwd=folder, capture_output=True, text=True, check=False
    )
    lines = [line.strip().partition(": ") for line in done.stdout.splitlines() if ": " in line]
    return [(name, state) for name, _, state in lines]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
