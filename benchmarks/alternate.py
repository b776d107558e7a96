"""Times programs against each other on a noisy machine: A B A B, each in a process of its own, medians and ratios.

A benchmark script calls `main(parts)` with functions that each return a number (steps per second, say). Run without
arguments it starts itself once for every part and round; `--run NAME` runs one part in this process and prints it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping
from statistics import median


def main(parts: Mapping[str, Callable[[], float]], unit: str, baseline: str | None = None, rounds: int = 3) -> None:
    """Run all parts in turn, several rounds, and print each one's median and its ratio to the baseline's.

    Args:
        parts: what to measure, by name.
        unit: of the numbers.
        baseline: the part that ratios are taken to; None is the first.
        rounds: how often each part is run.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", choices=list(parts))
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--parts", nargs="*", choices=list(parts), default=list(parts))
    args = parser.parse_args()
    if args.run:
        print(f"RESULT {parts[args.run]():.6g}")
        return
    results: dict[str, list[float]] = {name: [] for name in args.parts}
    for _ in range(args.rounds):
        for name in args.parts:
            results[name].append(_run(name))
    baseline = baseline if baseline in results else args.parts[0]
    base = median(results[baseline])
    print(f"\n{'part':<36} {unit:>14} {'ratio':>7}   all rounds")
    for name, numbers in results.items():
        rounds_text = " ".join(f"{x:.5g}" for x in numbers)
        print(f"{name:<36} {median(numbers):>14.5g} {median(numbers) / base:>7.2f}   {rounds_text}")


def _run(name: str) -> float:
    process = subprocess.run(
        [sys.executable, sys.argv[0], "--run", name], capture_output=True, text=True, timeout=3600, check=False
    )
    for line in process.stdout.splitlines():
        if line.startswith("RESULT "):
            print(f"{name}: {line.removeprefix('RESULT ')}", flush=True)
            return float(line.removeprefix("RESULT "))
    raise RuntimeError(f"{name} gave no result:\n{process.stdout[-2000:]}\n{process.stderr[-4000:]}")
