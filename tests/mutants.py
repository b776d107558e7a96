"""`make mutants ROOM=functional`: mutation testing of a room of the library, by mutmut, in a copy of the repository.

python -m tests.mutants ROOM [options of `mutmut run`]

mutmut makes each change that it knows, one at a time, and runs the room's own tests, `tests/<room>`. What no test
notices is listed at the end, and shown by `mutmut show` in the folder that is named. Nothing of it is kept. Tests on
Ray are left out: its cluster does not outlive the fork in which mutmut runs the tests of a change.
"""

from __future__ import annotations

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


def main(arguments: Sequence[str]) -> int:
    """Run mutmut over a room; return 0 if it could."""
    if not arguments or not (ROOT / "tests" / arguments[0]).is_dir():
        rooms = sorted(path.name for path in (ROOT / "rlpyt").iterdir() if (ROOT / "tests" / path.name).is_dir())
        print(f"make mutants: got ROOM={arguments[0] if arguments else ''}; expected one of {', '.join(rooms)}.")
        return 2
    room, *options = arguments
    folder = ROOT / ".mutants" / room
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    also = "\n    ".join(name for name in COPIED if name not in ("rlpyt", "setup.py"))
    (folder / "setup.cfg").write_text(CONFIGURATION.format(room=room, copied=also))
    mutmut = [sys.executable, "-m", "mutmut"]
    with open(folder / "output.txt", "w") as output:
        done = subprocess.run([*mutmut, "run", *options], cwd=folder, stdout=output, stderr=output, check=False)
    results = subprocess.run(
        [*mutmut, "results", "--all", "true"], cwd=folder, capture_output=True, text=True, check=False
    )
    found = [line.strip().partition(": ") for line in results.stdout.splitlines() if ": " in line]
    for name, _, state in found:
        if state != "killed":
            print(f"{state}: {name}")
    print(", ".join(f"{n} {state}" for state, n in Counter(state for _, _, state in found).most_common()))
    print(f"One of them: cd {folder.relative_to(ROOT)} && mutmut show NAME. All that mutmut printed: output.txt there.")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
