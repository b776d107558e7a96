"""`make gravest`: does the suite notice the forty gravest mistakes? Makes them one at a time, and runs the tests named.

    python -m tests.nightly.gravest                all of them
    python -m tests.nightly.gravest V-trace GAE    those with one of these words in their name

`gravest.toml` has them. Each replaces `old` by `new` in one `file`, in a copy of the repository; then its `tests` run
until the first failure. KILLED says that a test failed, SURVIVED that none did, STALE that the old text does not stand
in the file once. The exit status is 0 if all were killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = (".git", ".venv", ".bench", ".nightly", ".hypothesis", "__pycache__", ".*_cache", "*.egg-info")
SECONDS = 900
"""Longest time of the tests of one mistake."""


class Mutation(NamedTuple):
    """One change that makes the library wrong."""

    name: str
    """What is wrong with it."""
    file: str
    old: str
    new: str
    tests: list[str]


def verdict(mutation: Mutation, root: Path) -> str:
    """Return what becomes of a mutation in a copy of the repository."""
    file = root / mutation.file
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    if before.count(mutation.old) != 1:
        return "STALE"
    file.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return "SURVIVED" if tests_pass(mutation.tests, root) else "KILLED"
    finally:
        file.write_text(before, encoding="utf-8")


def tests_pass(tests: Sequence[str], root: Path) -> bool:
    """Return whether no test of some files fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    # Without bytecode: that of a mutated file of the same size and second would be taken for the next.
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode not in (0, 1, 2):  # 2: the mutated module cannot even be imported
        raise RuntimeError(f"pytest gave {done.returncode}: {done.stdout[-500:]}")
    return done.returncode == 0


def main(words: Sequence[str]) -> int:
    """Judge the mutations that are asked for; return the exit status."""
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["mutation"]
    mutations = [Mutation(**entry) for entry in entries]
    count: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="gravest-") as folder:
        copy = shutil.copytree(ROOT, Path(folder, "copy"), ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
        for mutation in mutations:
            if not words or any(word in mutation.name for word in words):
                word = verdict(mutation, copy)
                count[word] += 1
                print(f"{word:9} {mutation.name}", flush=True)
    print(", ".join(f"{n} {word.lower()}" for word, n in count.most_common()))
    return int(set(count) != {"KILLED"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
