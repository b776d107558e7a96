"""Times programs against each other on a noisy machine: A B A B, medians and ratios.

A benchmark script calls `main(parts)` with functions that each return a number (steps per second, say). Run without
arguments it starts itself once for every part and round; `--run NAME` runs one part in this process and prints it.
Lines of a part that begin with NOTE are printed too.
Or it calls `interleave(parts)` with things that are set up once and run in turn for a second or two, which follows a
machine whose speed changes from minute to minute.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Protocol


def main(
    parts: Mapping[str, Callable[[], float]],
    unit: str,
    baseline: str | Sequence[str] | None = None,
    rounds: int = 3,
) -> None:
    """Run all parts in turn, several rounds, and print each one's median and its ratio to the baseline's.

    The last line is the same as JSON.

    Args:
        parts: what to measure, by name.
        unit: of the numbers.
        baseline: the part that ratios are taken to; of several, the one with the best median. None is the first.
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
    candidates = [baseline] if isinstance(baseline, str) else baseline or []
    medians = {name: median(numbers) for name, numbers in results.items()}
    best = max((name for name in candidates if name in results), key=medians.__getitem__, default=args.parts[0])
    print(f"\n{'part':<36} {unit:>14} {'ratio':>7}   all rounds; the ratio is to {best}")
    for name, numbers in results.items():
        rounds_text = " ".join(f"{x:.5g}" for x in numbers)
        print(f"{name:<36} {medians[name]:>14.5g} {medians[name] / medians[best]:>7.2f}   {rounds_text}")
    print("JSON " + json.dumps({"unit": unit, "baseline": best, "rounds": results}))


class Part(Protocol):
    """What `interleave` runs in turn."""

    def run(self, seconds: float) -> float:
        """Return the speed reached in some seconds."""

    def close(self) -> None:
        """Let go of everything."""


def rate(step: Callable[[], int], seconds: float) -> float:
    """Return rows per second of a function that returns the rows of a call."""
    rows, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        rows += step()
    return rows / passed


def interleave(
    parts: Mapping[str, Part], unit: str, baseline_of: Callable[[str], str], rounds: int, seconds: float
) -> None:
    """Run all parts in turn; print medians, and medians of the ratios to the baseline in the same round.

    Args:
        parts: what to measure, by name.
        unit: of the numbers.
        baseline_of: the name of the part that a part is compared with.
        rounds: how often each part is run, after one round to warm up.
        seconds: of one run.
    """
    results: dict[str, list[float]] = {name: [] for name in parts}
    try:
        for round_ in range(rounds + 1):
            for name, part in parts.items():
                result = part.run(seconds)
                if round_:
                    results[name].append(result)
    finally:
        for part in parts.values():
            part.close()
    print(f"\n{'part':<20} {unit:>10}   ratio to")
    for name, numbers in results.items():
        baseline = baseline_of(name) if baseline_of(name) in parts else next(iter(parts))
        ratio = median(a / b for a, b in zip(numbers, results[baseline], strict=True))
        print(f"{name:<20} {median(numbers):>10,.0f}   {ratio:5.2f} {baseline:<10} {part_notes(parts[name])}")


def part_notes(part: Any) -> str:
    """Return what a part has to say beside its speed: its `notes`, where it has any."""
    return vars(part).get("notes", "")


def _run(name: str) -> float:
    process = subprocess.run(
        [sys.executable, sys.argv[0], "--run", name], capture_output=True, text=True, timeout=3600, check=False
    )
    for line in process.stdout.splitlines():
        if line.startswith("NOTE "):
            print(f"{name}: {line.removeprefix('NOTE ')}", flush=True)
        if line.startswith("RESULT "):
            print(f"{name}: {line.removeprefix('RESULT ')}", flush=True)
            return float(line.removeprefix("RESULT "))
    raise RuntimeError(f"{name} gave no result:\n{process.stdout[-2000:]}\n{process.stderr[-4000:]}")
