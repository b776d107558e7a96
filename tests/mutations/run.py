"""Does the suite notice when the library is wrong? Applies mutations, one at a time, and runs the tests named.

    python tests/mutations/run.py                    all of them: hours on two cores
    python tests/mutations/run.py 3 17 "LSTM"        those of these numbers, and those with this in their name
    python tests/mutations/run.py --list             numbers and names

`mutations.toml` has the mutations. Each replaces `old` by `new` in one `file`, in a copy of the repository; then its
`tests` run until the first failure: test files or folders, or groups of them that stand at its head. One is

    KILLED      if a test fails,
    SURVIVED    if none does: a test is missing, or the mutation changes nothing that can be seen,
    EQUIVALENT  if it is known to change nothing, for the reason given in its field `equivalent`; it is not run,
    STALE       if its old text does not stand in its file exactly once, its new one makes no Python of it (which
                any test would notice), or a test file is not there,
    UNKNOWN     if the tests took longer than --timeout, or pytest could not run them.

The exit status is 0 if all that were run are killed. `tests/test_mutations.py` sees to it that none is stale. To add
one, write it at the end of the file and run it by its name; what survives needs a test first.
"""

from __future__ import annotations

import argparse
import ast
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutations.toml")
NOT_COPIED = (".git", ".venv", ".bench", ".hypothesis", "__pycache__", ".*_cache", "*.egg-info")


class Mutation(NamedTuple):
    """One change that makes the library wrong."""

    name: str
    """What is wrong with it."""
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""
    """Why it changes nothing that can be seen, where it does not."""


class Verdict(NamedTuple):
    """What became of a mutation."""

    word: str
    why: str = ""
    seconds: float = 0.0


def load(path: Path = LIST) -> list[Mutation]:
    """Return the mutations of a file, their tests written out."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = content.get("groups", {})
    mutations = []
    for entry in content["mutation"]:
        tests = [test for name in entry.pop("tests") for test in groups.get(name, [name])]
        mutations.append(Mutation(**entry, tests=tuple(dict.fromkeys(tests))))
    return mutations


def staleness(mutation: Mutation, root: Path = ROOT) -> str:
    """Return why a mutation cannot be applied to a repository; nothing if it can."""
    file = root / mutation.file
    if not file.is_file():
        return f"there is no file {mutation.file}"
    text = file.read_text(encoding="utf-8")
    count = text.count(mutation.old)
    if count != 1:
        return f"its old text stands {count} times in {mutation.file}; expected once"
    missing = [test for test in mutation.tests if not (root / test).exists()]
    if missing or not mutation.tests:
        return f"there are no tests {', '.join(missing) or 'named'}"
    if mutation.old == mutation.new:
        return "its new text is the old one"
    try:
        ast.parse(text.replace(mutation.old, mutation.new))
    except SyntaxError as error:
        return f"with its new text {mutation.file} is no Python: {error}"
    return ""


def judge(mutation: Mutation, root: Path, timeout: float) -> Verdict:
    """Apply a mutation to a copy of the repository, run its tests, and take it back."""
    stale = staleness(mutation, root)
    if stale:
        return Verdict("STALE", stale)
    if mutation.equivalent:
        return Verdict("EQUIVALENT", mutation.equivalent)
    file = root / mutation.file
    before = file.read_text(encoding="utf-8")
    start = time.monotonic()
    try:
        file.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
        word, why = run_tests(mutation.tests, root, timeout)
    finally:
        file.write_text(before, encoding="utf-8")
    return Verdict(word, why, time.monotonic() - start)


def run_tests(tests: Sequence[str], root: Path, timeout: float) -> tuple[str, str]:
    """Run test files until one fails; return the verdict and what it rests on."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    # Without bytecode: that of a mutated file of the same size and second would be taken for the next.
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return "UNKNOWN", f"its tests took longer than {timeout:g} s"
        finally:
            end_group(process)
    if process.returncode == 0:
        return "SURVIVED", ", ".join(tests)
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if process.returncode in (1, 2) and failed:  # 2: the mutated module cannot even be imported
        return "KILLED", failed[0]
    return "UNKNOWN", f"pytest gave {process.returncode}: {output[-300:]}"


def end_group(process: subprocess.Popen[str]) -> None:
    """End what the tests have left running, and themselves if they still run."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def chosen(mutations: Sequence[Mutation], which: Sequence[str]) -> list[int]:
    """Return the numbers of the mutations that are named by number or by a part of their name; of all if none is.

    Raises:
        SystemExit: if nothing goes by a name.
    """
    numbers: list[int] = []
    for word in which:
        found = [int(word)] if word.isdecimal() else [i for i, m in enumerate(mutations) if word in m.name]
        if not found or found[-1] >= len(mutations):
            sys.exit(
                f"Choosing mutations: got {word!r}; expected a number below {len(mutations)} or part of a name. "
                "--list shows them."
            )
        numbers += found
    return list(dict.fromkeys(numbers)) if which else list(range(len(mutations)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the mutations that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", help="numbers, or parts of names; none is all")
    parser.add_argument("--list", action="store_true", help="print numbers and names, and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time, each in a copy of its own")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds that the tests of one may take")
    options = parser.parse_args(arguments)
    mutations = load()
    numbers = chosen(mutations, options.which)
    if options.list:
        for i in numbers:
            print(f"{i:4} {mutations[i].name}  ({mutations[i].file})")
        return 0
    count: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        copies: queue.Queue[Path] = queue.Queue()
        for job in range(min(options.jobs, len(numbers))):
            ignore = shutil.ignore_patterns(*NOT_COPIED)
            copies.put(shutil.copytree(ROOT, Path(folder) / str(job), ignore=ignore, symlinks=True))

        def work(i: int) -> Verdict:
            copy = copies.get()
            try:
                return judge(mutations[i], copy, options.timeout)
            finally:
                copies.put(copy)

        for i, verdict in zip(numbers, pool.map(work, numbers), strict=True):
            count[verdict.word] += 1
            print(f"{i:4} {verdict.word:10} {verdict.seconds:5.0f} s  {mutations[i].name}: {verdict.why}", flush=True)
    print(", ".join(f"{n} {word.lower()}" for word, n in count.most_common()))
    return int(any(word not in ("KILLED", "EQUIVALENT") for word in count))


if __name__ == "__main__":
    sys.exit(main())
