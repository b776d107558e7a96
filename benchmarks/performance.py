"""Peers and this library in turn on the same work: steps per second, ratios, and the share of what the machine allows.

    make bench                                                   (builds the peers' environments first, pinned)
    .venv/bin/python benchmarks/performance.py [--workloads sac_half_cheetah ...] [--parts rlpyt bare ...] [--rounds 3]

Every part runs in a process and an environment of its own: `benchmarks/peers/run_<library>.py`, settings and clock in
`benchmarks/peers/workloads.py`. Rounds are A B C A B C. Each figure is kept at once in `.bench/unfinished.json`: where
a run is cut off, the same command goes on after the last figure, and the file goes when all are there. A part is
measured again where it is named again; what others were measured before stays in
`docs/notes/performance/results.json`. From that file the tables of docs/notes/performance.md are written, the one of
the README, and the pictures; `--report` does only this.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PEERS = Path(__file__).parent / "peers"
README, NOTES = ROOT / "README.md", ROOT / "docs/notes"
PAGE, RESULTS = NOTES / "performance.md", NOTES / "performance/results.json"
UNFINISHED = ROOT / ".bench/unfinished.json"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
sys.path.insert(0, str(PEERS))

from performance_page import details, picture, summary  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

ON_IMAGES = {"ppo_pong", "a2c_pong", "dqn_pong", "rainbow_pong", "r2d1_pong", "sampling_pong"}
WITHOUT_BARE = {"rainbow_pong", "r2d1_pong", "sac_two_cores", "start"}
COMPILED = {
    "dqn_cartpole", "ppo_cartpole", "ppo_half_cheetah", "sac_half_cheetah", "sac_two_cores", "td3_half_cheetah",
    "ddpg_half_cheetah",
}  # fmt: skip
HALF_PRECISION = {"sac_half_cheetah", "sac_two_cores", "td3_half_cheetah", "ddpg_half_cheetah"}


@dataclass(frozen=True)
class Part:
    """One way to do a workload."""

    label: str
    library: str
    setting: str = ""
    """Argument of scripts that know several."""

    def command(self, name: str, seconds: float) -> list[str]:
        """Return the command line, without what pins it."""
        own = self.library in ("rlpyt", "bare", "gymnasium", "ale_py")
        python = ROOT / (".venv" if own else f".bench/{self.library}") / "bin/python"
        setting = ["--setting", self.setting] if self.setting else []
        return [str(python), str(PEERS / f"run_{self.library}.py"), name, "--seconds", str(seconds), *setting]


PEER_LABELS = {
    "stable_baselines3": "Stable-Baselines3",
    "sbx": "SBX",
    "tianshou": "Tianshou",
    "torchrl": "TorchRL",
    "sample_factory": "Sample Factory",
    "rllib": "RLlib",
    "gymnasium": "gymnasium",
    "ale_py": "ale-py AtariVectorEnv",
    "envpool": "EnvPool",
    "rlox": "rlox",
}


IN_ONE_ROUND = {"tianshou", "torchrl", "sample_factory", "rllib"}
"""Peers of which a figure takes long. They are far from the fastest, but for Rainbow, which no faster peer has."""


def parts_of(name: str) -> dict[str, Part]:
    """Return the parts of a workload by key: this library, what the machine allows, and the peers that have it."""
    if name in ON_IMAGES:
        parts = {
            "rlpyt": Part("rlpyt", "rlpyt", "float32"),
            "rlpyt_bfloat16": (
                Part("rlpyt, bfloat16", "rlpyt", "bfloat16")
                if name.startswith("sampling")
                else Part("rlpyt, fastest settings", "rlpyt", "fastest")
            ),
            "bare": Part("bare loop", "bare", "float32"),
            "bare_bfloat16": Part("bare loop, bfloat16", "bare", "bfloat16"),
        }
    else:
        parts = {"rlpyt": Part("rlpyt", "rlpyt"), "bare": Part("bare loop", "bare")}
        if name in HALF_PRECISION:
            parts["rlpyt_bfloat16"] = Part("rlpyt, bfloat16", "rlpyt", "bfloat16")
    if not has_bfloat16():
        parts = {key: part for key, part in parts.items() if not key.endswith("bfloat16")}
    if name in COMPILED:
        parts["rlpyt_compiled"] = Part("rlpyt, compiled", "rlpyt", "compiled")
    if name in WITHOUT_BARE:
        parts = {key: part for key, part in parts.items() if part.library != "bare"}
    for library, label in PEER_LABELS.items():
        script = PEERS / f"run_{library}.py"
        if script.exists() and f'"{name}": ' in script.read_text():
            parts[library] = Part(label, library)
    return parts


def has_bfloat16() -> bool:
    """Return whether the processor has instructions for bfloat16, without which it takes ten times as long."""
    return "bf16" in Path("/proc/cpuinfo").read_text()


def measure(part: Part, name: str, seconds: float, limit: float = 300) -> float:
    """Return steps per second, or for "start" the seconds from the command to the end of the first iteration."""
    work = WORKLOADS[name]
    cores = ",".join(map(str, range(work.cores)))
    environment = os.environ | dict(OMP_NUM_THREADS=str(work.cores), PYTHONWARNINGS="ignore")
    command = ["taskset", "--cpu-list", cores, *part.command(name, 0 if name == "start" else seconds)]
    start = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        alarm = subprocess.Popen(["bash", "-c", f"sleep {limit}; kill -KILL -- -{process.pid}"], start_new_session=True)
        lines: list[str] = []
        try:
            for line in process.stdout:
                lines.append(line)
                if line.startswith("RESULT "):
                    passed = time.perf_counter() - start
                    return passed if name == "start" else float(line.removeprefix("RESULT "))
        finally:
            for group in (process.pid, alarm.pid):
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            alarm.wait()
    raise RuntimeError(f"{name} by {part.label} gave no figure:\n{''.join(lines[-30:])}")


def peer_speed(library: str, name: str, seconds: float = 15) -> float:
    """Return steps per second of a peer, for the benchmarks of one thing."""
    return measure(parts_of(name)[library], name, seconds)


class Figures:
    """The figures of a run, one for each round of a part, kept in a file that a later run goes on from.

    Args:
        conditions: what the figures depend on.

    Raises:
        SystemExit: if the file has figures of other conditions.
    """

    def __init__(self, conditions: Mapping[str, Any]) -> None:
        kept: dict[str, Any] = dict(conditions=conditions, figures={})
        if UNFINISHED.exists():
            kept = json.loads(UNFINISHED.read_text())
        other = [key for key, value in conditions.items() if kept["conditions"].get(key) != value]
        if other:
            sys.exit(
                f"{UNFINISHED} has the figures of a run that was cut off; it had another value of {', '.join(other)} "
                f"than this one, {kept['conditions']}. Give its command again to go on, or --fresh to measure anew."
            )
        self._kept = kept
        self._figures: dict[str, dict[str, list[float | None]]] = kept["figures"]

    def count(self, name: str, key: str) -> int:
        """Return how many rounds of a part there are."""
        return len(self._figures.get(name, {}).get(key, []))

    def add(self, name: str, key: str, figure: float | None) -> None:
        """Keep the figure of the next round, None of a part that failed."""
        self._figures.setdefault(name, {}).setdefault(key, []).append(figure)
        UNFINISHED.parent.mkdir(exist_ok=True)
        new = UNFINISHED.with_suffix(".new")
        new.write_text(json.dumps(self._kept, indent=1) + "\n")
        new.replace(UNFINISHED)

    def of(self, name: str) -> dict[str, list[float]]:
        """Return the figures of the parts of a workload, without those that failed."""
        figures = {key: [x for x in rounds if x is not None] for key, rounds in self._figures.get(name, {}).items()}
        return {key: numbers for key, numbers in figures.items() if numbers}


def measure_all(names: list[str], keys: list[str] | None, rounds: int, seconds: float) -> None:
    """Run the parts in turn, go on where a run was cut off, and keep every figure at once."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if results and results["machine"]["cpu"] != machine()["cpu"]:
        results = {}  # no table has the figures of two machines
    asked = dict(workloads=names, parts=keys, rounds=rounds, seconds=seconds)
    figures = Figures(asked | dict(cpu=machine()["cpu"], code=code()))
    for name in names:
        parts = {key: part for key, part in parts_of(name).items() if keys is None or key in keys}
        for i in range(rounds):
            for key, part in parts.items():
                if figures.count(name, key) > i or (i > 0 and part.library in IN_ONE_ROUND):
                    continue
                figure = attempt(part, name, seconds)
                figures.add(name, key, figure)
                if figure is not None:
                    print(f"{name:<20} {part.label:<26} {figure:>10,.5g}", flush=True)
        results.setdefault(name, {}).update(figures.of(name))
        results["machine"] = machine()
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    UNFINISHED.unlink(missing_ok=True)


def code() -> str:
    """Return what the code of the library and of the scripts is: the commit's trees, and a sum of what has changed."""

    def said(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False).stdout

    changes = said("diff", "HEAD", "--", "rlpyt", "benchmarks/peers")
    return said("rev-parse", "HEAD:rlpyt", "HEAD:benchmarks/peers") + hashlib.sha256(changes.encode()).hexdigest()


def attempt(part: Part, name: str, seconds: float) -> float | None:
    """Return the figure; a peer that fails is said, and left out."""
    try:
        return measure(part, name, seconds)
    except (RuntimeError, OSError) as error:
        if part.library in ("rlpyt", "bare"):
            raise
        print(f"{name}: {part.label} is left out: {error}", flush=True)
        return None


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())  # fmt: skip
    return dict(cpu=model, cores=len(os.sched_getaffinity(0)), date=time.strftime("%Y-%m-%d"))


def report() -> None:
    """Write the tables into the page, and the picture beside it."""
    results = json.loads(RESULTS.read_text())
    for name in WORKLOADS:
        results[name] = {key: numbers for key, numbers in results[name].items() if key in parts_of(name)}
    titles = {name: work.title for name, work in WORKLOADS.items()}
    at = results["machine"]
    lines = [f"Measured on {at['date']}, {at['cores']} cores, {at['cpu']}.", ""]
    table = summary(results, titles, PEER_LABELS)
    lines += [*table, "", "![all figures](performance/speeds.png)", ""]
    lines += ["Medians of all parts, in steps per second, the last row in seconds:", ""]
    lines += details(results, titles, PEER_LABELS)
    for page, block in ((PAGE, lines), (README, table)):
        before, rest = page.read_text().split(BEGIN)
        page.write_text(before + "\n".join([BEGIN, "", *block, "", END]) + rest.split(END)[1])
    picture(RESULTS.parent / "speeds.png", results, titles, {name: labels_of(name) for name in titles})


def labels_of(name: str) -> dict[str, str]:
    """Return the labels of a workload's parts."""
    return {key: part.label for key, part in parts_of(name).items()}


def main() -> None:
    """Read the options, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--parts", nargs="+", help="keys as in docs/notes/performance/results.json; all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12, help="of one part in one round")
    parser.add_argument("--report", action="store_true", help="write the page from the last figures")
    parser.add_argument("--fresh", action="store_true", help="forget the figures of a run that was cut off")
    args = parser.parse_args()
    if args.fresh:
        UNFINISHED.unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # with the part that runs
    if not args.report:
        measure_all(args.workloads, args.parts, args.rounds, args.seconds)
    report()


if __name__ == "__main__":
    main()
